"""What workers and the template tell the driver: small JSON datagrams over one Unix socket that all of them inherit.

Rare events only; finished steps go through the ring in shared memory. Sender and reader are processes of the same user and run.
"""

from __future__ import annotations

import json
import socket
from typing import Any

MAX_BYTES = 64 * 1024


def pair() -> tuple[socket.socket, socket.socket]:
    """(for the driver, for everybody else). Datagrams: whole messages, also from many writers."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.setblocking(False)
    return ours, theirs


def send(to: socket.socket, kind: str, **fields: Any) -> None:
    for name, value in fields.items():
        if isinstance(value, str) and len(value) > MAX_BYTES // 4:
            fields[name] = value[: MAX_BYTES // 16] + "\n[...]\n" + value[-MAX_BYTES // 8 :]
    to.send(json.dumps({"kind": kind, **fields}).encode())


def receive(source: socket.socket) -> list[dict[str, Any]]:
    """All that has arrived."""
    found = []
    while True:
        try:
            found.append(json.loads(source.recv(4 * MAX_BYTES)))
        except BlockingIOError:
            return found
