#!/usr/bin/env python3
"""Asks a server by reflection and calls it with what it said: reflect.py ADDRESS GENERATED

A client of grpcio that has no protos but reflection's own, whose generated code is in the folder
GENERATED. Prints one line for each thing that it did; exits 1 where something is not as it must be.
"""
import importlib
import sys

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

LIMIT_S = 20
CALLED = "saga.v1.OperatorService"


def ask(stub, messages, **what):
    """One question on a stream of its own."""
    request = messages.ServerReflectionRequest(**what)
    response = next(iter(stub(iter([request]), timeout=LIMIT_S)))
    if response.HasField("error_response"):
        raise SystemExit(f"{what}: {response.error_response}")
    return response


def pool_of(stub, messages, names):
    """All files that these services need."""
    files = {}
    for name in names:
        response = ask(stub, messages, file_containing_symbol=name)
        for packed in response.file_descriptor_response.file_descriptor_proto:
            proto = descriptor_pb2.FileDescriptorProto.FromString(packed)
            files[proto.name] = proto
    pool = descriptor_pool.DescriptorPool()
    added = set()

    def add(name):
        if name not in added:
            added.add(name)
            for needed in files[name].dependency:
                add(needed)
            pool.Add(files[name])

    for name in files:
        add(name)
    return pool


def call(channel, pool, service, method, request):
    """A unary call, by descriptors alone."""
    method = pool.FindServiceByName(service).FindMethodByName(method)
    factory = message_factory.MessageFactory(pool)
    made = factory.GetPrototype(method.input_type)
    reply = factory.GetPrototype(method.output_type)
    unary = channel.unary_unary(
        f"/{service}/{method.name}",
        request_serializer=made.SerializeToString,
        response_deserializer=reply.FromString,
    )
    return unary(json_format.ParseDict(request, made()), timeout=LIMIT_S)


def check(channel, version):
    """All of it, by one version of the protocol."""
    messages = importlib.import_module(f"grpc_.reflection.{version}.reflection_pb2")
    stub = channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=messages.ServerReflectionRequest.SerializeToString,
        response_deserializer=messages.ServerReflectionResponse.FromString,
    )
    listed = ask(stub, messages, list_services="").list_services_response.service
    names = [service.name for service in listed]
    pool = pool_of(stub, messages, names)
    for name in names:
        pool.FindServiceByName(name)
    status = call(channel, pool, CALLED, "GetStatus", {})
    if not status.node:
        raise SystemExit(f"{version}: GetStatus says no node: {status}")
    numbers = ask(stub, messages, all_extension_numbers_of_type="google.protobuf.MethodOptions")
    if not numbers.all_extension_numbers_response.extension_number:
        raise SystemExit(f"{version}: there are no options of methods")
    print(f"{version}: {len(names)} services, called node {status.node}")


def main():
    address, generated = sys.argv[1:]
    sys.path.insert(0, generated)
    with grpc.insecure_channel(address) as channel:
        for version in ("v1", "v1alpha"):
            check(channel, version)


main()
