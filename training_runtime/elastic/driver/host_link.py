"""The driver's end of the conversation with the node host: Members and Stop come in, Holding, Grown and Meets go out.

The host connects to a Unix socket that already listens when the driver starts, and may vanish and come back at any time. The newest
connection that has said the driver's secret counts; any other is nobody's. Every Members is answered by a Holding, and so is every new
connection. Nothing here blocks.
"""

from __future__ import annotations

import hmac
import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable

from training_runtime.errors import ProtocolError, UnknownMessage
from training_runtime.imported import Imported
from training_runtime.meeting import Meets
from training_runtime.protocol import MAX_LINE_BYTES, Authenticate, Grown, Holding, Members, Stop, Worker, decode, encode
from training_runtime.unknown_messages import LeftOut

log = logging.getLogger(__name__)
_MOST_STRANGERS = 8
_READ_S = 2.0
_GREETING_BYTES = 512


class HostLink:
    """`wanted` and `stop` are what the host said last. `holding`, `journal_bytes` and where remote agents meet the driver are told on
    connection and when they change. `secret`: what whoever connects has to say first; empty: nothing."""

    def __init__(self, listener: socket.socket, secret: str = "") -> None:
        listener.setblocking(False)
        self._listener = listener
        self._secret = secret
        self._strangers: dict[socket.socket, bytes] = {}  # connected, and what they have said so far
        self._peer: socket.socket | None = None
        self._incoming = b""
        self._outgoing = b""
        self.wanted: Members | None = None
        self.stop: Stop | None = None
        self._holding: tuple[Worker, ...] = ()
        self._settled = 0
        self._forking = False
        self._journal_bytes = 0
        self._meets: Meets | None = None
        self._left_out = LeftOut(log)

    def readable(self) -> list[int]:
        """Descriptors to wait on."""
        return [self._listener.fileno(), *(s.fileno() for s in self._strangers), *([self._peer.fileno()] if self._peer else [])]

    def poll(self) -> None:
        """Process the messages that have arrived. Never blocks."""
        self._accept()
        self._greet()
        while self._peer is not None:
            try:
                data = self._peer.recv(65536)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                return self._close_peer()
            self._incoming += data
            self._take_lines()
            if len(self._incoming) > MAX_LINE_BYTES:
                self._close_peer()
        self._send(b"")
        return None

    def leave(self) -> None:
        """Close the descriptors in a process that was forked from the driver: it could shut them down."""
        self._listener.close()
        for each in (*self._strangers, *([self._peer] if self._peer else [])):
            each.close()

    def hold(self, workers: tuple[Worker, ...], *, forking: bool) -> None:
        """The processes there are. `forking`: there may soon be more, on slots of the Members taken in so far."""
        if (workers, forking) != (self._holding, self._forking):
            self._holding, self._forking = workers, forking
            self._send(self._holding_line())

    def _holding_line(self) -> bytes:
        # A fork that is under way has no pid yet: until it has, the host must go on counting the slots of the Members that asked for it,
        # so the number of a newer one is not told before.
        if not self._forking and self.wanted:
            self._settled = self.wanted.revision
        return encode(Holding(self._holding, self._settled))

    def grown(self, journal_bytes: int) -> None:
        if journal_bytes != self._journal_bytes:
            self._journal_bytes = journal_bytes
            self._send(encode(Grown(journal_bytes)))

    def meets(self, port: int, token: str) -> None:
        """Announce the port of the machine's address on which remote agents reach this driver."""
        self._meets = Meets(port, token)
        self._send(encode(self._meets))

    def imported(self, imported: Imported) -> bool:
        """Whether somebody listens, who is told which modules of packages there are: more than a socket holds, so it may take a moment."""
        self._send(encode(imported))
        until = time.monotonic() + _READ_S
        while self._peer is not None and self._outgoing and (left := until - time.monotonic()) > 0:
            select.select([], [self._peer], [], left)
            self._send(b"")
        return self._peer is not None

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:  # nobody there
                break
            peer.setblocking(False)
            self._strangers[peer] = b""
            if len(self._strangers) > _MOST_STRANGERS:  # the host speaks as soon as it has connected; the oldest is not the host
                oldest = next(iter(self._strangers))
                del self._strangers[oldest]
                oldest.close()
            self._greet()

    def _greet(self) -> None:
        """Read from connections that have not sent the secret yet. One that has becomes the host."""
        for stranger, said in tuple(self._strangers.items()):
            said, is_open = _more(stranger, said) if self._secret else (b"\n", True)
            if is_open and b"\n" not in said and len(said) <= _GREETING_BYTES:
                self._strangers[stranger] = said
                continue
            del self._strangers[stranger]
            line, _, rest = said.partition(b"\n")
            if is_open and (not self._secret or _is_greeting(line, self._secret)):
                self._close_peer()
                self._peer, self._incoming = stranger, rest
                self._send(self._holding_line() + encode(Grown(self._journal_bytes)) + (encode(self._meets) if self._meets else b""))
                self._take_lines()
            else:
                stranger.close()

    def _take_lines(self) -> None:
        *lines, self._incoming = self._incoming.split(b"\n")
        for line in lines:
            self._handle_line(line)

    def _handle_line(self, line: bytes) -> None:
        try:
            message = decode(line)
        except UnknownMessage as error:  # of a newer host
            return self._left_out.note(error, of="the host")
        except ProtocolError:
            return self._close_peer()
        if isinstance(message, Members):
            if self.wanted is None or message.revision >= self.wanted.revision:
                self.wanted = message
            self._send(self._holding_line())
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
                self._close_peer()
        except OSError:
            self._close_peer()

    def _close_peer(self) -> None:
        if self._peer is not None:
            self._peer.close()
        self._peer, self._incoming, self._outgoing = None, b"", b""


def _more(stranger: socket.socket, said: bytes) -> tuple[bytes, bool]:
    """The lines received so far, and whether the connection is still open."""
    try:
        data = stranger.recv(_GREETING_BYTES)
    except BlockingIOError:
        return said, True
    except OSError:
        return said, False
    return said + data, bool(data)


def _is_greeting(line: bytes, secret: str) -> bool:
    try:
        message = decode(line)
    except ProtocolError:
        return False
    return isinstance(message, Authenticate) and hmac.compare_digest(message.secret.encode(errors="replace"), secret.encode())


class LinkThread:
    """Serves a link in a thread while the user's script runs outside train(). Stopped before anything is forked."""

    def __init__(self, link: HostLink, on_stop: Callable[[], None], *, look: Callable[[], None], every_s: float) -> None:
        """`look` is called every so many seconds."""
        self._link, self._on_stop = link, on_stop
        self._look, self._every_s = look, every_s
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
            if any(fd == wake for fd, _ in poll.poll(1000 * self._every_s)):
                return
            self._link.poll()
            self._look()
            if self._link.stop is not None:
                self._on_stop()
