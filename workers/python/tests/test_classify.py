"""What proves that nothing was sent. Goal: RETRY only where that is so. Method: real calls to ports
where nobody listens, that cut the connection, redirect, or speak no TLS."""

import asyncio
import contextlib
import importlib.util
import socket
import ssl
import threading
import unittest
import urllib.request

import grpc

from sagad import OutcomeKind, classify
from sagad.classify import nothing_was_sent

TIMEOUT_S = 5


def closed_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Peer:
    """Listens, and answers each connection with these bytes after it has read something."""

    def __init__(self, answer=b"", greeting=b""):
        self._answer, self._greeting = answer, greeting
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                conn, _ = self._listener.accept()
                with conn, contextlib.suppress(OSError):
                    conn.sendall(self._greeting)
                    conn.recv(65536)
                    conn.sendall(self._answer)

    def close(self):
        # A thread that waits in accept holds the socket until it is shut down.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(TIMEOUT_S)
        self._listener.close()


# A settings frame, so that the client takes the connection for one.
HTTP2_SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"


def get(url, context=None):
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    request = urllib.request.Request(url, data=b"body", method="POST")
    with opener.open(request, timeout=TIMEOUT_S) as response:
        response.read()


def call_grpc(port, host="127.0.0.1"):
    with grpc.insecure_channel(f"{host}:{port}", [("grpc.enable_http_proxy", 0)]) as channel:
        channel.unary_unary("/a.B/C")(b"x", timeout=TIMEOUT_S)


class ClassifyTest(unittest.TestCase):
    def peer(self, *args):
        peer = Peer(*args)
        self.addCleanup(peer.close)
        return peer.port

    def judge(self, call, *args):
        try:
            call(*args)
        except Exception as error:
            return nothing_was_sent(error), error
        self.fail("the call did not fail")

    def sent(self, call, *args):
        verdict, error = self.judge(call, *args)
        self.assertFalse(verdict, error)

    def not_sent(self, call, *args):
        verdict, error = self.judge(call, *args)
        self.assertTrue(verdict, error)
        self.assertIs(classify(error).outcome().kind, OutcomeKind.RETRY)

    def test_the_standard_library(self):
        port = closed_port()
        self.not_sent(get, f"http://127.0.0.1:{port}/")
        self.not_sent(get, "http://name.invalid/")
        self.not_sent(socket.create_connection, ("127.0.0.1", port))
        self.not_sent(lambda: asyncio.run(asyncio.open_connection("127.0.0.1", port)))
        self.sent(get, f"http://127.0.0.1:{self.peer()}/")  # cut
        self.sent(get, f"http://127.0.0.1:{self.peer(b'HTTP/1.1 500 No')}/")

    def test_a_redirect_to_where_nobody_listens(self):
        answer = (
            b"HTTP/1.1 303 See Other\r\nContent-Length: 0\r\nConnection: close\r\n"
            b"Location: http://127.0.0.1:%d/\r\n\r\n" % closed_port()
        )
        self.sent(get, f"http://127.0.0.1:{self.peer(answer)}/")

    def test_tls(self):
        self.not_sent(
            get, f"https://127.0.0.1:{self.peer(b'no tls')}/", ssl.create_default_context()
        )
        self.not_sent(get, f"https://127.0.0.1:{closed_port()}/", ssl.create_default_context())

    def test_grpc(self):
        for host in ("127.0.0.1", "localhost", "[::1]", "dns:///127.0.0.1"):
            self.not_sent(call_grpc, closed_port(), host)
        self.not_sent(call_grpc, closed_port(), "name.invalid")
        self.sent(call_grpc, self.peer(b"", HTTP2_SETTINGS))

    def test_a_server_that_answers_in_the_librarys_words(self):
        import concurrent.futures

        class Handler(grpc.GenericRpcHandler):
            def service(self, details):
                def answer(request, context):
                    context.abort(
                        grpc.StatusCode.UNAVAILABLE,
                        "failed to connect to all addresses; last error: UNKNOWN:"
                        " ipv4:127.0.0.1:1: Failed to connect to remote host",
                    )

                return grpc.unary_unary_rpc_method_handler(answer)

        server = grpc.server(concurrent.futures.ThreadPoolExecutor(1), handlers=[Handler()])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        self.addCleanup(lambda: server.stop(0).wait())
        self.sent(call_grpc, port)

    @unittest.skipUnless(importlib.util.find_spec("psycopg"), "psycopg is not installed")
    def test_psycopg(self):
        import psycopg

        self.not_sent(psycopg.connect, f"host=127.0.0.1 port={closed_port()} dbname=x")
        self.not_sent(
            lambda: asyncio.run(
                psycopg.AsyncConnection.connect(f"host=127.0.0.1 port={closed_port()} dbname=x")
            )
        )

    @unittest.skipUnless(importlib.util.find_spec("psycopg2"), "psycopg2 is not installed")
    def test_psycopg2(self):
        import psycopg2

        self.not_sent(psycopg2.connect, f"host=127.0.0.1 port={closed_port()} dbname=x")

    @unittest.skipUnless(importlib.util.find_spec("pymysql"), "PyMySQL is not installed")
    def test_pymysql(self):
        import pymysql

        port = closed_port()
        self.not_sent(lambda: pymysql.connect(host="127.0.0.1", port=port))
        self.sent(self.raise_it, pymysql.err.OperationalError(2013, "Lost connection"))

    @unittest.skipUnless(importlib.util.find_spec("requests"), "requests is not installed")
    def test_requests(self):
        import requests

        session = requests.Session()
        session.trust_env = False

        def post(url):
            session.post(url, data=b"x", timeout=TIMEOUT_S)

        answer = (
            b"HTTP/1.1 303 See Other\r\nContent-Length: 0\r\n"
            b"Location: http://127.0.0.1:%d/\r\n\r\n" % closed_port()
        )
        self.not_sent(post, f"http://127.0.0.1:{closed_port()}/")
        self.not_sent(post, "http://name.invalid/")
        self.sent(post, f"http://127.0.0.1:{self.peer()}/")
        self.sent(post, f"http://127.0.0.1:{self.peer(answer)}/")

    @unittest.skipUnless(importlib.util.find_spec("urllib3"), "urllib3 is not installed")
    def test_urllib3_that_tries_again(self):
        import urllib3

        def put(port, peer):
            pool = urllib3.HTTPConnectionPool("127.0.0.1", port, timeout=TIMEOUT_S)
            if peer:
                new_conn = pool.ConnectionCls.connect
                calls = []

                class Once(pool.ConnectionCls):
                    def connect(self):
                        if calls:
                            peer.close()
                        calls.append(1)
                        new_conn(self)

                pool.ConnectionCls = Once
            pool.request("PUT", "/", body=b"x", retries=urllib3.Retry(2, backoff_factor=0))

        self.not_sent(put, closed_port(), None)
        peer = Peer()
        self.sent(put, peer.port, peer)  # the first time it was sent

    @unittest.skipUnless(importlib.util.find_spec("httpx"), "httpx is not installed")
    def test_httpx(self):
        import httpx

        def post(url):
            with httpx.Client(trust_env=False, follow_redirects=True) as client:
                client.post(url, content=b"x", timeout=TIMEOUT_S)

        answer = (
            b"HTTP/1.1 303 See Other\r\nContent-Length: 0\r\n"
            b"Location: http://127.0.0.1:%d/\r\n\r\n" % closed_port()
        )
        self.not_sent(post, f"http://127.0.0.1:{closed_port()}/")
        self.not_sent(post, "http://name.invalid/")
        self.sent(post, f"http://127.0.0.1:{self.peer()}/")
        self.sent(post, f"http://127.0.0.1:{self.peer(answer)}/")

    @unittest.skipUnless(importlib.util.find_spec("aiohttp"), "aiohttp is not installed")
    def test_aiohttp(self):
        import aiohttp

        async def post(url):
            async with aiohttp.ClientSession() as session:
                async with session.post(url, data=b"x") as response:
                    await response.read()

        def run(url):
            asyncio.run(asyncio.wait_for(post(url), TIMEOUT_S))

        answer = (
            b"HTTP/1.1 303 See Other\r\nContent-Length: 0\r\n"
            b"Location: http://127.0.0.1:%d/\r\n\r\n" % closed_port()
        )
        self.not_sent(run, f"http://127.0.0.1:{closed_port()}/")
        self.not_sent(run, "http://name.invalid/")
        self.sent(run, f"http://127.0.0.1:{self.peer()}/")
        self.sent(run, f"http://127.0.0.1:{self.peer(answer)}/")

    # Chains.

    def raise_it(self, error):
        raise error

    def refuse(self):
        socket.create_connection(("127.0.0.1", closed_port()))

    def test_a_wrapper_of_the_users(self):
        def wrapped():
            try:
                self.refuse()
            except OSError as error:
                raise RuntimeError("the other side is away") from error

        self.not_sent(wrapped)

    def test_after_something_else_that_failed(self):
        def first_cut_then_refused():
            try:
                raise ConnectionResetError()  # of a call that was sent
            except OSError:
                self.refuse()

        def first_refused_then_cut():
            try:
                self.refuse()
            except OSError:
                raise ConnectionResetError()

        def after_a_look_into_a_cache():
            try:
                {}["connection"]
            except KeyError:
                self.refuse()

        def a_wrapper_of_nothing():
            try:
                self.refuse()
            except OSError:
                raise RuntimeError("says nothing of why")

        self.sent(first_cut_then_refused)
        self.sent(first_refused_then_cut)
        self.not_sent(after_a_look_into_a_cache)
        self.sent(a_wrapper_of_nothing)

    def test_what_proves_nothing(self):
        for error in (
            TimeoutError(),
            BrokenPipeError(),
            ConnectionResetError(),
            OSError("something"),
            ValueError(),
            grpc.RpcError(),
        ):
            with self.subTest(error=error):
                self.sent(self.raise_it, error)
                self.assertIsNone(classify(error))


if __name__ == "__main__":
    unittest.main()
