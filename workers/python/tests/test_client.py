"""The client. Goal: requests say what was asked, errors keep their details. Method: a server on a
loopback port that answers as the script says. (Against a real one:
tests/conformance/quickstart.sh.)
"""

import concurrent.futures
import datetime
import unittest

import grpc
from google.protobuf.duration_pb2 import Duration

from sagad import details_pb2
from sagad.client import Client, SagaError
from saga.v1 import saga_pb2

TYPES = {
    "StartSaga": (saga_pb2.StartSagaRequest, saga_pb2.StartSagaResponse),
    "GetSaga": (saga_pb2.GetSagaRequest, saga_pb2.Saga),
    "WaitSaga": (saga_pb2.WaitSagaRequest, saga_pb2.Saga),
    "CancelSaga": (saga_pb2.CancelSagaRequest, saga_pb2.Saga),
    "WatchSaga": (saga_pb2.WatchSagaRequest, saga_pb2.WatchSagaResponse),
}


class Service(grpc.GenericRpcHandler):
    def __init__(self):
        self.requests = []
        self.answers = {}

    def service(self, details):
        name = details.method.rpartition("/")[2]
        request, answer = TYPES[name]

        def one(message, context):
            self.requests.append(message)
            return self.answers[name](context)

        def many(message, context):
            self.requests.append(message)
            yield from self.answers[name](context)

        if name == "WatchSaga":
            return grpc.unary_stream_rpc_method_handler(
                many, request.FromString, answer.SerializeToString
            )
        return grpc.unary_unary_rpc_method_handler(
            one, request.FromString, answer.SerializeToString
        )


class ClientTest(unittest.TestCase):
    def setUp(self):
        self.service = Service()
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(2), [self.service])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        self.addCleanup(lambda: server.stop(0).wait())
        self.client = Client(f"127.0.0.1:{port}", namespace="shop")
        self.addCleanup(self.client.close)

    def answer(self, name, message):
        self.service.answers[name] = lambda context: message

    def test_start(self):
        self.answer("StartSaga", saga_pb2.StartSagaResponse(uid="u", existed=True))
        when = datetime.datetime(
            2026, 12, 1, 11, tzinfo=datetime.timezone(datetime.timedelta(hours=1))
        )
        answer = self.client.start(
            "settlement",
            b"in",
            saga_id="order-17",
            labels={"a": "b"},
            start_at=when,
            related_saga="r",
        )
        self.assertTrue(answer.existed)
        request = self.service.requests[0]
        self.assertEqual(
            (request.namespace, request.definition, request.saga_id, request.input),
            ("shop", "settlement", "order-17", b"in"),
        )
        self.assertEqual(request.start_at.ToJsonString(), "2026-12-01T10:00:00Z")
        self.assertEqual((dict(request.labels), request.related_saga), ({"a": "b"}, "r"))
        with self.assertRaisesRegex(ValueError, "time zone"):
            self.client.start("settlement", start_at=datetime.datetime(2026, 12, 1))

    def test_get_wait_cancel(self):
        saga = saga_pb2.Saga(uid="u", state=saga_pb2.SAGA_STATE_SUCCEEDED)
        for name in ("GetSaga", "WaitSaga", "CancelSaga"):
            self.answer(name, saga)
        self.assertEqual(self.client.get("d", "s", run=2), saga)
        self.assertEqual(self.client.wait("d", "s", timeout=1.5, or_parked=True), saga)
        self.assertEqual(self.client.cancel("d", "s", reason="why", actor="me"), saga)
        got, waited, cancelled = self.service.requests
        self.assertEqual((got.saga.namespace, got.saga.run), ("shop", 2))
        self.assertEqual(got.view, saga_pb2.SAGA_VIEW_FULL)
        self.assertEqual(waited.timeout.ToMilliseconds(), 1500)
        self.assertTrue(waited.or_parked)
        self.assertEqual((cancelled.reason, cancelled.actor), ("why", "me"))

    def test_watch(self):
        def tell(context):
            yield saga_pb2.WatchSagaResponse(resume_token="1")
            context.abort(grpc.StatusCode.UNAVAILABLE, "the server stops")

        self.service.answers["WatchSaga"] = tell
        seen = []
        with self.assertRaises(SagaError) as raised:
            for response in self.client.watch("d", "s", resume_token="0"):
                seen.append(response.resume_token)
        self.assertEqual(seen, ["1"])
        self.assertTrue(raised.exception.is_retryable)
        self.assertEqual(self.service.requests[0].resume_token, "0")

    def test_errors_keep_their_details(self):
        status = details_pb2.Status(code=6, message="known with other input")
        for name, detail in (
            ("ErrorInfo", details_pb2.ErrorInfo(reason="INPUT_MISMATCH", metadata={"a": "b"})),
            (
                "BadRequest",
                details_pb2.BadRequest(
                    field_violations=[
                        details_pb2.BadRequest.FieldViolation(
                            field="input", description="too large"
                        )
                    ]
                ),
            ),
            ("RetryInfo", details_pb2.RetryInfo(retry_delay=Duration(seconds=1, nanos=500000000))),
            ("Help", details_pb2.RetryInfo()),
        ):
            status.details.add(
                type_url="type.googleapis.com/google.rpc." + name, value=detail.SerializeToString()
            )

        def refuse(context):
            context.set_trailing_metadata(
                (("grpc-status-details-bin", status.SerializeToString()),)
            )
            context.abort(grpc.StatusCode.ALREADY_EXISTS, "known with other input")

        self.service.answers["StartSaga"] = refuse
        with self.assertRaises(SagaError) as raised:
            self.client.start("d", saga_id="s")
        error = raised.exception
        self.assertIs(error.code, grpc.StatusCode.ALREADY_EXISTS)
        self.assertEqual((error.reason, error.metadata), ("INPUT_MISMATCH", {"a": "b"}))
        self.assertEqual(error.fields, {"input": "too large"})
        self.assertEqual(error.retry_after, 1.5)
        self.assertEqual(str(error), "ALREADY_EXISTS: known with other input [INPUT_MISMATCH]")

    def test_details_that_are_none(self):
        def refuse(context):
            context.set_trailing_metadata((("grpc-status-details-bin", b"\xff\xff"),))
            context.abort(grpc.StatusCode.NOT_FOUND, "no such saga")

        self.service.answers["GetSaga"] = refuse
        with self.assertRaises(SagaError) as raised:
            self.client.get("d", "s")
        self.assertEqual((raised.exception.reason, raised.exception.message), ("", "no such saga"))
        self.assertFalse(raised.exception.is_retryable)


if __name__ == "__main__":
    unittest.main()
