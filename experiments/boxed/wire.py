"""What goes between the studio, the fork server and its children.

The studio sends an order (a message with descriptors: the channel of this call, then a folder if it hands one over, then files), and gets
on the channel one byte with the child's pidfd (or another: no child could be forked). Then it sends a line of JSON, the request, and gets
a line of JSON: the child's answer, or what the fork server says of a child that ended without one. Nothing is ever unpickled.
"""

from __future__ import annotations

import array
import json
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from training_runtime.host.sandbox.file_box import Folder, Limits

ORDER_BYTES = 4096
MOST_DESCRIPTORS = 8
BEGUN, NOT_BEGUN = b"+", b"-"
_FD = array.array("i").itemsize


@dataclass(frozen=True)
class Order:
    """`folder`: whether a folder comes with it, and what the child may do in it."""

    limits: Limits
    folder: Folder = ""


@dataclass(frozen=True)
class Ended:
    """A child that ended without an answer: by which signal (0: none), and what it took of the processor."""

    signal: int
    cpu_s: float


def send(to: socket.socket, data: bytes, descriptors: Sequence[int]) -> None:
    """One message; all of it, or OSError."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    if to.sendmsg([data], rights, socket.MSG_NOSIGNAL) != len(data):
        raise BlockingIOError("only a part could be sent")


def receive(at: socket.socket, most_bytes: int) -> tuple[bytes, list[int]]:
    """One message, and the descriptors that came with it, which are now ours."""
    data, ancillary, _, _ = at.recvmsg(most_bytes, socket.CMSG_SPACE(MOST_DESCRIPTORS * _FD), socket.MSG_CMSG_CLOEXEC)
    found = array.array("i")
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            found.frombytes(content[: len(content) - len(content) % _FD])
    return data, found.tolist()


def line(said: object) -> bytes:
    return json.dumps(said).encode() + b"\n"  # in ASCII: any text that Python knows, and no line break within
