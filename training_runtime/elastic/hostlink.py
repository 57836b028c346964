"""The driver's end of the conversation with the node host: Members and Stop come in, Holding and Grown go out.

The host connects to a Unix socket that already listens when the driver starts, and may vanish and come back at any time. The newest
connection counts. Every Members is answered by a Holding, and so is every new connection. Nothing here blocks.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable

from training_runtime.errors import ProtocolError
from training_runtime.protocol import MAX_LINE_BYTES, Grown, Holding, Members, Stop, Worker, decode, encode


class HostLink:
    """`wanted` and `stop` are the host's last words. `holding` and `journal_bytes` are told on connection and when they change."""

    def __init__(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._peer: socket.socket | None = None
        self._incoming = b""
        self._outgoing = b""
        self.wanted: Members | None = None
        self.stop: Stop | None = None
        self._holding: tuple[Worker, ...] = ()
        self._settled = 0
        self._forking = False
        self._journal_bytes = 0

    def readable(self) -> list[int]:
        """Descriptors to wait on."""
        return [self._listener.fileno(), *([self._peer.fileno()] if self._peer else [])]

    def poll(self) -> None:
        """Take in whatever has arrived."""
        self._accept()
        while self._peer is not None:
            try:
                data = self._peer.recv(65536)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                return self._hang_up()
            self._incoming += data
            *lines, self._incoming = self._incoming.split(b"\n")
            for line in lines:
                self._take(line)
            if len(self._incoming) > MAX_LINE_BYTES:
                self._hang_up()
        self._send(b"")
        return None

    def leave(self) -> None:
        """In a process that was forked from the driver: let go of the descriptors. Whoever holds them could shut them down."""
        self._listener.close()
        if self._peer is not None:
            self._peer.close()

    def hold(self, workers: tuple[Worker, ...], *, forking: bool) -> None:
        """The processes there are. `forking`: there may soon be more, on slots of the Members taken in so far."""
        if (workers, forking) != (self._holding, self._forking):
            self._holding, self._forking = workers, forking
            self._send(self._said())

    def _said(self) -> bytes:
        # A fork that is under way has no pid yet: until it has, the host must go on counting the slots of the Members that asked for it,
        # so the number of a newer one is not told before.
        if not self._forking and self.wanted:
            self._settled = self.wanted.revision
        return encode(Holding(self._holding, self._settled))

    def grown(self, journal_bytes: int) -> None:
        if journal_bytes != self._journal_bytes:
            self._journal_bytes = journal_bytes
            self._send(encode(Grown(journal_bytes)))

    def _accept(self) -> None:
        try:
            peer, _ = self._listener.accept()
        except OSError:  # nobody there
            return
        self._hang_up()
        peer.setblocking(False)
        self._peer = peer
        self._send(self._said() + encode(Grown(self._journal_bytes)))

    def _take(self, line: bytes) -> None:
        try:
            message = decode(line)
        except ProtocolError:
            return self._hang_up()
        if isinstance(message, Members):
            if self.wanted is None or message.revision >= self.wanted.revision:
                self.wanted = message
            self._send(self._said())
        elif isinstance(message, Stop):
            self.stop = message
        return None

    def _send(self, data: bytes) -> None:
        if self._peer is None:
            return
        self._outgoing += data
        try:
            while self._outgoing:
                self._outgoing = self._outgoing[self._peer.send(self._outgoing) :]
        except BlockingIOError:
            if len(self._outgoing) > MAX_LINE_BYTES:  # it does not read: it will ask again when it is back
                self._hang_up()
        except OSError:
            self._hang_up()

    def _hang_up(self) -> None:
        if self._peer is not None:
            self._peer.close()
        self._peer, self._incoming, self._outgoing = None, b"", b""


class Attendant:
    """Serves a link from a thread while the user's script runs outside train(). Stopped before anything is forked."""

    def __init__(self, link: HostLink, on_stop: Callable[[], None]) -> None:
        self._link, self._on_stop = link, on_stop
        self._thread: threading.Thread | None = None
        self._wake = -1

    def start(self) -> None:
        self._wake = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._serve, args=(self._wake,), name="host-link", daemon=True)
        self._thread.start()

    def pause(self) -> None:
        """The thread is gone when this returns."""
        if self._thread is not None:
            os.eventfd_write(self._wake, 1)
            self._thread.join()
            os.close(self._wake)
            self._thread = None

    def _serve(self, wake: int) -> None:
        while True:
            poll = select.poll()
            for fd in (wake, *self._link.readable()):
                poll.register(fd, select.POLLIN)
            if any(fd == wake for fd, _ in poll.poll()):
                return
            self._link.poll()
            if self._link.stop is not None:
                self._on_stop()
