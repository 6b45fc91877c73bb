"""A TCP proxy between a worker and the scripted orchestrator, that resets, freezes and refuses
connections when it is told to. Any thread."""

import socket
import struct
import threading
import time

PIECE = 65536


def reset(sock):
    """Closes with RST: what is under way is lost."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.shutdown(socket.SHUT_RD)  # wakes whoever reads it
    except OSError:
        pass  # it is gone already
    sock.close()


class Cutter:
    def __init__(self, target_port):
        self.target_port = target_port  # of connections to come
        self.refuses = False  # connections to come are reset as soon as they are there
        self.attempts = []  # when each one came
        self.state = threading.Condition()
        self.frozen = False
        self.upstream_left = None  # bytes towards the orchestrator before all is reset
        self.pairs = []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        reset(self.listener)
        self.cut()

    def cut(self):
        """Resets every connection that there is."""
        with self.state:
            pairs, self.pairs = self.pairs, []
            self.upstream_left = None
            self.frozen = False
            self.state.notify_all()
        for pair in pairs:
            for sock in pair:
                reset(sock)

    def cut_after(self, upstream_bytes):
        """Resets them once so many more bytes went towards the orchestrator."""
        with self.state:
            self.upstream_left = upstream_bytes

    def freeze(self):
        """Connections stay, and nothing passes any more."""
        with self.state:
            self.frozen = True

    def thaw(self):
        with self.state:
            self.frozen = False
            self.state.notify_all()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.attempts.append(time.monotonic())
            if self.refuses:
                reset(client)
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self.target_port))
            except OSError:
                reset(client)
                continue
            for sock in (client, server):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.state:
                self.pairs.append((client, server))
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=(source, sink, source is client),
                                 daemon=True).start()

    def _pump(self, source, sink, upstream):
        while True:
            try:
                data = source.recv(PIECE)
            except OSError:
                data = b""
            with self.state:
                while self.frozen and data:
                    self.state.wait()
                over = False
                if upstream and self.upstream_left is not None:
                    over = len(data) >= self.upstream_left
                    data = data[:self.upstream_left]
                    self.upstream_left -= len(data)
            try:
                if data:
                    sink.sendall(data)
            except OSError:
                data = b""
            if over:
                self.cut()
                return
            if not data:
                for sock in (source, sink):
                    reset(sock)
                return
