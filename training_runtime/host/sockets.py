"""Unix stream sockets that carry one JSON record a line, without blocking and with bounded buffers; and paths of any length for them.

The address of a Unix socket holds 107 bytes, a home folder's path may be longer: both ends name the socket through an open folder
(/proc/self/fd/N/NAME), so no other, shorter place is needed.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from training_runtime.errors import ProtocolError
from training_runtime.protocol import MAX_LINE_BYTES

_CHUNK_BYTES = 1 << 16


@contextmanager
def _short_address(path: Path) -> Iterator[str]:
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def listen(path: Path) -> socket.socket:
    """A listening socket at `path` that only its owner can connect to; whatever was there is replaced.

    It is renamed after it was bound, because /proc/net/unix shows everybody the name that a socket was bound to.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    bound = path.with_name(".new.sock")
    bound.unlink(missing_ok=True)
    mask = os.umask(0o177)  # the file must not be open to others even for a moment
    try:
        with _short_address(bound) as address:
            listener.bind(address)
    finally:
        os.umask(mask)
    listener.listen(64)
    bound.replace(path)
    return listener


def connect(path: Path, *, timeout_s: float | None) -> socket.socket:
    """A connected socket. Raises OSError. A zero timeout makes it non-blocking."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(timeout_s)
    try:
        with _short_address(path) as address:
            connection.connect(address)
    except BaseException:
        connection.close()
        raise
    return connection


class LineSocket:
    """One end of a conversation, non-blocking. Not knowing what the lines mean, it only keeps them whole and bounded."""

    def __init__(
        self, connection: socket.socket, *, max_line_bytes: int = MAX_LINE_BYTES, max_unsent_bytes: int = 4 * MAX_LINE_BYTES
    ) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._received = bytearray()
        self._unsent = bytearray()
        self._max_line_bytes = max_line_bytes
        self._max_unsent_bytes = max_unsent_bytes

    def fileno(self) -> int:
        return self._connection.fileno()

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def receive(self) -> tuple[list[bytes], bool]:
        """Whole lines that have come in (without their ends) and whether the connection is still open.

        Reads a bounded amount, so that one talker cannot keep the loop for itself. Raises ProtocolError when a line is too long.
        """
        is_open, chunk = True, b""
        try:
            chunk = self._connection.recv(_CHUNK_BYTES)
            is_open = bool(chunk)
            self._received += chunk
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            is_open = False
        lines: list[bytearray] = []
        if b"\n" in chunk:  # a long line comes in many pieces, and is looked through once
            *lines, self._received = self._received.split(b"\n")
        if len(self._received) > self._max_line_bytes:
            raise ProtocolError(f"a message is longer than {self._max_line_bytes} bytes")
        return [bytes(line) for line in lines], is_open

    def send(self, data: bytes) -> None:
        """Queues and sends what can be sent now. Raises OSError when the other end is gone or does not read."""
        self._unsent += data
        self.flush()
        if len(self._unsent) > self._max_unsent_bytes:
            raise ConnectionError("the other end does not read")

    def flush(self) -> None:
        """Sends what can be sent without waiting. Raises OSError when the other end is gone."""
        with contextlib.suppress(BlockingIOError, InterruptedError):
            while self._unsent:
                del self._unsent[: self._connection.send(self._unsent[:_CHUNK_BYTES])]

    def close(self) -> None:
        self._connection.close()
