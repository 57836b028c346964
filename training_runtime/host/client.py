"""What the studio calls: ask a node host to make things so, and listen to what it sees. Synchronous, standard library only.

No secret is sent and nothing that comes back is trusted beyond its form (`protocol.decode`).
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path

from training_runtime.errors import HostUnavailable, ProtocolError
from training_runtime.host import sockets
from training_runtime.protocol import MAX_STUDIO_LINE_BYTES, VERSION, Apply, Observation, Subscribe, decode, encode

_LOOK_UP_S = 0.2


def socket_path(home: Path | str, node: str) -> Path:
    """Where the host of `node` listens. It may be longer than a socket's address can be: connect through `apply` and `subscribe`."""
    return Path(home) / "host" / node / "host.sock"


def apply(home: Path | str, node: str, wanted: Apply, timeout_s: float = 10) -> Observation:
    """Sends `wanted` and returns what the host sees right after it has acted. Raises HostUnavailable."""
    with _connected(home, node, timeout_s) as connection:
        _send(connection, wanted, node)
        for observation in _observations(connection, node, None, timeout_s):
            return observation
    raise HostUnavailable(f"the node host of {node} gave no answer within {timeout_s:g} s, or refused the message (see its log)")


def subscribe(
    home: Path | str, node: str, *, stop: threading.Event | None = None, timeout_s: float | None = None, connect_timeout_s: float = 10
) -> Iterator[Observation]:
    """Observations as they come, the present one first. Ends when `stop` is set (noticed within 0.2 s) or nothing has come for `timeout_s`.

    Raises HostUnavailable when the host cannot be reached or goes away.
    """
    with _connected(home, node, connect_timeout_s) as connection:
        _send(connection, Subscribe(), node)
        if not (yield from _observations(connection, node, stop, timeout_s)):
            raise HostUnavailable(f"the node host of {node} went away")


def _connected(home: Path | str, node: str, timeout_s: float) -> socket.socket:
    path = socket_path(home, node)
    try:
        return sockets.connect(path, timeout_s=timeout_s)
    except OSError as error:
        raise HostUnavailable(
            f"the node host of {node} does not answer on {path} ({error.strerror or error}); is the studio running there?"
        ) from error


def _send(connection: socket.socket, message: Apply | Subscribe, node: str) -> None:
    try:
        connection.sendall(encode(message))
    except OSError as error:
        raise HostUnavailable(f"the node host of {node} did not take the message: {error.strerror or error}") from error


def _observations(
    connection: socket.socket, node: str, stop: threading.Event | None, timeout_s: float | None
) -> Generator[Observation, None, bool]:
    """Returns True when it was to end (`stop`, silence), False when the host closed the connection. Raises HostUnavailable on nonsense."""
    received = bytearray()
    heard_at = time.monotonic()
    connection.settimeout(_LOOK_UP_S if timeout_s is None else min(_LOOK_UP_S, timeout_s))
    while stop is None or not stop.is_set():
        try:
            chunk = connection.recv(1 << 16)
        except TimeoutError:
            if timeout_s is not None and time.monotonic() - heard_at >= timeout_s:
                return True
            continue
        except OSError:
            return False
        if not chunk:
            return False
        received += chunk
        lines: list[bytearray] = []
        if b"\n" in chunk:  # a long line comes in many pieces, and is looked through once
            *lines, received = received.split(b"\n")
        if len(received) > MAX_STUDIO_LINE_BYTES:
            raise HostUnavailable(f"the node host of {node} sent a message that is too long")
        for line in lines:
            yield _parsed(bytes(line), node)
            heard_at = time.monotonic()
    return True


def _parsed(line: bytes, node: str) -> Observation:
    try:
        message = decode(line, limit_bytes=MAX_STUDIO_LINE_BYTES)
    except ProtocolError as error:
        raise HostUnavailable(f"the node host of {node} sent something that is not an observation: {error}") from error
    if not isinstance(message, Observation):
        raise HostUnavailable(f"the node host of {node} sent a {message.type} instead of an observation")
    if message.version != VERSION:
        raise HostUnavailable(
            f"the node host of {node} is of another version ({message.version}, the studio's is {VERSION}): end it, and let the studio "
            "start it again; its runs go on"
        )
    return message
