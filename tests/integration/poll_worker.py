"""A worker of no SDK: what any language with gRPC can do. It answers each task with its step's name.

usage: poll_worker.py ADDRESS HANDLER   (messages: protoc --python_out of proto/saga/v1/*.proto)
"""
import sys
import time
import uuid

import grpc
from saga.v1 import saga_pb2, worker_pb2 as api

address, handler = sys.argv[1:]
channel = grpc.insecure_channel(address)


def call(name, request):
    method = channel.unary_unary("/saga.v1.WorkerService/" + name, type(request).SerializeToString,
                                 getattr(api, name + "Response").FromString)
    return method(request, timeout=30)


worker = {"worker_id": "python", "instance": str(uuid.uuid4())}
hello = api.Hello(handlers=[api.Subscription(handler=handler, max_in_flight=10)],
                  only_stream=True, **worker)
reports = []  # not yet acknowledged
while True:
    try:
        if not reports:  # so nothing is held
            for task in call("LeaseTasks", api.LeaseTasksRequest(hello=hello, max_tasks=10)).tasks:
                reports.append(api.TaskReport(saga_uid=task.saga_uid, fence=task.fence,
                                              outcome=saga_pb2.OUTCOME_DONE,
                                              output=task.step.encode()))
        if reports:
            call("ReportOutcomes", api.ReportOutcomesRequest(reports=reports, **worker))
            reports = []
    except grpc.RpcError as error:  # nothing is forgotten: the next round says it again
        print(error.code().name, error.details(), file=sys.stderr, flush=True)
        time.sleep(0.2)
