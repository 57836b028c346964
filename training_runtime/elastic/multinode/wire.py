"""The connection between two machines of one run: mutual authentication, and messages of a few kinds, large ones without a copy.

Both sides prove with a keyed hash over fresh numbers of both that they know the run's token, without sending it. What follows is not
encrypted: like any traffic between workers it belongs into a network of its own. A machine that has gone silent is noticed by the kernel.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import socket
import struct
from typing import Any

from training_runtime.errors import ProtocolError

SILENT_S = 10  # after which a machine that answers nothing is given up
GREET_S = 10.0
_HEADER = struct.Struct("<4sBxxxqq")  # magic, kind, where, bytes that follow
_MAGIC = b"EDT1"
_NONCE, _PROOF = 16, 32
_PIECE = 1 << 20
_LONGEST_MESSAGE = 1 << 24

KINDS = ("bytes", "words", "ring", "marks", "state", "start", "message", "name", "file")
Header = tuple[str, int, int]


class Wire:
    """One end of it. One thread may send and another receive."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in ((socket.TCP_KEEPIDLE, SILENT_S // 2), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, SILENT_S // 2)):
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * SILENT_S)

    def greet(self, token: str, *, listens: bool) -> None:
        """Prove to the other side that we belong together, and have it prove that. Raises ProtocolError where it does not, OSError where it
        takes too long."""
        self.socket.settimeout(GREET_S)
        ours = secrets.token_bytes(_NONCE)
        self.socket.sendall(_MAGIC + ours)
        hello = self._exactly(len(_MAGIC) + _NONCE)
        if not hello.startswith(_MAGIC):
            raise ProtocolError("the other side speaks something else")
        theirs = hello[len(_MAGIC) :]
        self.socket.sendall(_proof(token, theirs, ours, listens=listens))
        if not hmac.compare_digest(self._exactly(_PROOF), _proof(token, ours, theirs, listens=not listens)):
            raise ProtocolError("the other side does not know the run's token")
        self.socket.settimeout(None)

    def send(self, kind: str, data: Any = b"", *, at: int = 0) -> None:
        """Send a whole message; `data` is any buffer."""
        view = memoryview(data).cast("B")
        head = _HEADER.pack(_MAGIC, KINDS.index(kind), at, len(view))
        sent = self.socket.sendmsg([head, view])
        if sent < len(head):
            self.socket.sendall(head[sent:])
        self.socket.sendall(view[max(0, sent - len(head)) :])

    def send_file(self, kind: str, fd: int, length: int) -> None:
        """Send the first `length` bytes of a file, without a copy."""
        self.socket.sendall(_HEADER.pack(_MAGIC, KINDS.index(kind), 0, length))
        at = 0
        while at < length:
            sent = os.sendfile(self.socket.fileno(), fd, at, length - at)
            if not sent:
                raise EOFError("the file became shorter while it was sent")
            at += sent

    def send_message(self, message: bytes) -> None:
        """Send an object as JSON."""
        self.send("message", message)

    def header(self) -> Header:
        """(kind, where, bytes that follow) of the next message. Raises EOFError at the end."""
        magic, kind, at, length = _HEADER.unpack(self._exactly(_HEADER.size))
        if magic != _MAGIC or kind >= len(KINDS) or length < 0:
            raise ProtocolError("the other side sent something that is no message")
        return KINDS[kind], at, length

    def into(self, view: memoryview) -> None:
        """Receive the bytes that follow into the buffer."""
        while view:
            read = self.socket.recv_into(view)
            if not read:
                raise EOFError("the other side has closed the connection")
            view = view[read:]

    def into_file(self, fd: int, length: int) -> None:
        """Receive the bytes that follow into a file, from its start."""
        piece, at = bytearray(min(_PIECE, length)), 0
        while at < length:
            view = memoryview(piece)[: length - at]
            self.into(view)
            while view:
                written = os.pwrite(fd, view, at)
                view, at = view[written:], at + written

    def data(self, length: int) -> bytes:
        return self._exactly(length)

    def read_message(self, length: int) -> bytes:
        """A message that was sent by `send_message`."""
        if length > _LONGEST_MESSAGE:
            raise ProtocolError(f"a message of {length} bytes is too long")
        return self._exactly(length)

    def receive_message(self) -> bytes:
        """The next message, which must be one from `send_message`."""
        kind, _, length = self.header()
        if kind != "message":
            raise ProtocolError(f"{kind!r} came where a message had to come")
        return self.read_message(length)

    def done(self) -> None:
        """Nothing more will be sent; what the other side sends can still be taken in."""
        self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Also wakes a thread that waits here."""
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # it was not connected any more
            return

    def _exactly(self, length: int) -> bytes:
        data = bytearray(length)
        self.into(memoryview(data))
        return bytes(data)


def _proof(token: str, theirs: bytes, ours: bytes, *, listens: bool) -> bytes:
    """What the side that listens, or the one that does not, answers to `theirs`."""
    return hmac.digest(token.encode(), b"home" * listens + theirs + ours, hashlib.sha256)
