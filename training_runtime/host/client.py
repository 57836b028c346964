"""What the studio calls: ask a node host to make things so, and listen to what it sees. Synchronous, standard library only.

No secret is sent and nothing that comes back is trusted beyond its form (`protocol.decode`).
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path

from training_runtime.errors import HostUnavailable, ProtocolError, UnknownMessage
from training_runtime.host import sockets
from training_runtime.protocol import MAX_STUDIO_LINE_BYTES, SPOKEN, Apply, Observation, Subscribe, decode, encode, spoken_by
from training_runtime.unknown_messages import LeftOut
from training_runtime.version_skew import Behind, ProtocolVersion, too_far_behind

log = logging.getLogger(__name__)
_left_out = LeftOut(log)
_LOOK_UP_S = 0.2


class OtherVersion(HostUnavailable):
    """The node host speaks a version that the studio does not work with. `spoken`: by the host."""

    def __init__(self, message: str, spoken: ProtocolVersion) -> None:
        super().__init__(message)
        self.spoken = spoken


def upgrade_words(behind: Behind) -> str:
    """What to do where host and studio are too far apart. `behind`: as the studio sees it, "ours" is the studio."""
    if behind == "ours":
        return "the studio is older: start the release that was there before, or a newer one"
    return (
        "end the host's process alone (`manage.py stop --host-only` on the studio's machine, kill -9 on one that shares its folders) and "
        "have it started again as the studio's release; its runs train on"
    )


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
            if (observation := _parsed(bytes(line), node)) is not None:
                yield observation
            heard_at = time.monotonic()
    return True


def _parsed(line: bytes, node: str) -> Observation | None:
    """None for a message of a kind that is not known. Raises HostUnavailable on nonsense, OtherVersion where the two are too far apart."""
    try:
        message = decode(line, limit_bytes=MAX_STUDIO_LINE_BYTES)
    except UnknownMessage as error:
        _left_out.note(error, of=f"the node host of {node}")
        return None
    except ProtocolError as error:
        raise HostUnavailable(f"the node host of {node} sent something that is not an observation: {error}") from error
    if not isinstance(message, Observation):
        raise HostUnavailable(f"the node host of {node} sent a {message.type} instead of an observation")
    theirs = spoken_by(message)
    if behind := too_far_behind(SPOKEN, theirs):
        words = f"the node host of {node} speaks {theirs}; the studio speaks {SPOKEN}: {upgrade_words(behind)}"
        raise OtherVersion(words, theirs)
    return message
