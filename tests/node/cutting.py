"""A way to a server that breaks: a proxy that ends the connection after so many bytes of answers, and knows what was asked."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType


class CuttingProxy:
    """`cut_after`: bytes of answers that are let through from now on, None for all; then every connection ends until it is set anew.
    `cut_up_after`: the same of requests. `asked`: first lines of requests. `passed`, `passed_up`: bytes of answers, of requests."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self.cut_after: int | None = None
        self.cut_up_after: int | None = None
        self.passed_up = 0
        self.asked: list[str] = []
        self.passed = 0
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]

    def __enter__(self) -> CuttingProxy:
        self._threads[0].start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in list(self._open):
            _end(each)
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()

    def _accept(self) -> None:
        while True:
            try:
                client = self._listener.accept()[0]
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._to))
            self._open += [client, server]
            for way in (self._up, self._down):
                self._threads.append(threading.Thread(target=way, args=(client, server)))
                self._threads[-1].start()

    def _up(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                if data.split(b" ", 1)[0] in (b"GET", b"POST", b"PUT", b"DELETE"):
                    self.asked.append(data.split(b"\r\n", 1)[0].decode())
                if self.cut_up_after is not None:
                    data = data[: self.cut_up_after]
                    self.cut_up_after -= len(data)
                    if not data:
                        break
                self.passed_up += len(data)
                server.sendall(data)
        _end(server)
        _end(client)

    def _down(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 14):
                if self.cut_after is not None:
                    data = data[: self.cut_after]
                    self.cut_after -= len(data)
                    if not data:
                        break
                self.passed += len(data)
                client.sendall(data)
        _end(client)
        _end(server)


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
