"""A small orchestrator on a loopback port, for tests of the worker with a real stream."""

import concurrent.futures
import queue
import time

import grpc

from saga.v1 import saga_pb2, worker_pb2

LIMIT_S = 10


def task_message(fence, handler="echo", lease_s=30, attempt_s=60, **more):
    message = worker_pb2.Task(
        saga_uid=bytes(range(16)),
        namespace="default",
        definition="settlement",
        saga_id="order-17",
        run=1,
        revision=3,
        step="debit",
        operation=saga_pb2.OPERATION_KIND_ACTION,
        handler=handler,
        fence=fence,
        **{"try": 1},
        **more,
    )
    message.saga_start_time.FromSeconds(1700000000)
    message.lease.FromMilliseconds(int(lease_s * 1000))
    message.attempt_remaining.FromMilliseconds(int(attempt_s * 1000))
    return message


class Stream:
    """One stream of the worker: what it said, and what is said to it."""

    def __init__(self):
        self.received = queue.Queue()
        self.to_send = queue.Queue()

    def send(self, **command):
        self.to_send.put(worker_pb2.ServerMessage(**command))

    def tasks(self, *tasks):
        self.send(tasks=worker_pb2.Tasks(tasks=tasks))

    def ack(self, fence):
        self.send(
            acks=worker_pb2.Acks(
                acks=[
                    worker_pb2.Ack(
                        saga_uid=bytes(range(16)),
                        fence=fence,
                        result=worker_pb2.Ack.RESULT_ACCEPTED,
                    )
                ]
            )
        )

    def end(self):
        self.to_send.put(None)

    def expect(self, command):
        """The next message of that kind; others are passed over."""
        until = time.monotonic() + LIMIT_S
        while True:
            message = self.received.get(timeout=max(0.001, until - time.monotonic()))
            if message.WhichOneof("command") == command:
                return getattr(message, command)

    def welcome(self):
        hello = self.expect("hello")
        self.send(welcome=worker_pb2.Welcome(node="test", session=1))
        return hello


class Server(grpc.GenericRpcHandler):
    """Hands out the streams that the worker opens, one after the other."""

    def __init__(self):
        self.streams = queue.Queue()
        self._server = grpc.server(
            concurrent.futures.ThreadPoolExecutor(8),
            options=[("grpc.max_receive_message_length", -1)],
        )
        self._server.add_generic_rpc_handlers([self])
        self.address = "127.0.0.1:%d" % self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def stop(self):
        self._server.stop(0).wait()

    def stream(self):
        return self.streams.get(timeout=LIMIT_S)

    def service(self, details):
        if details.method != "/saga.v1.WorkerService/Work":
            return None
        return grpc.stream_stream_rpc_method_handler(
            self._work,
            worker_pb2.WorkerMessage.FromString,
            worker_pb2.ServerMessage.SerializeToString,
        )

    def _work(self, messages, context):
        stream = Stream()
        self.streams.put(stream)

        def read():
            try:
                for message in messages:
                    stream.received.put(message)
            except Exception:  # the stream broke
                pass
            stream.to_send.put(None)

        context.add_callback(lambda: stream.to_send.put(None))
        reader = concurrent.futures.ThreadPoolExecutor(1)
        reader.submit(read)
        while True:
            message = stream.to_send.get()
            if message is None:
                return
            yield message
