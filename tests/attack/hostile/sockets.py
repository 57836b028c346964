"""Every socket that somebody listens on: the studio's, those of other runs, the machine's, and what lies beyond it."""

from __future__ import annotations

import errno
import json
import os
import socket
import urllib.parse
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

Try = tuple[str, str, Callable[[], object]]
PATIENCE_S = 2.0
METADATA = ("169.254.169.254", 80)
WORDS = {
    "broker": b"PING\r\n",
    "host": b'{"type":"subscribe","version":2}\n',
    "driver": b'{"type":"authenticate","secret":""}\n{"type":"stop","reason":"because I say so"}\n',
    "other": b"GET / HTTP/1.0\r\n\r\n",
}
EMPTY = json.dumps({"type": "apply", "version": 2, "revision": 1 << 60, "runs": []}).encode() + b"\n"


def reach(family: int, address: Any, words: bytes) -> bytes:
    """What is answered. ConnectionAbortedError where it closes the connection without a word."""
    with socket.socket(family, socket.SOCK_STREAM) as link:
        link.settimeout(PATIENCE_S)
        link.connect(address)
        try:
            link.sendall(words)
            said = link.recv(200)
        except (ConnectionError, TimeoutError):
            said = b""
    if not said:
        raise ConnectionAbortedError("it was connected to, and said nothing")
    return said


def by_path(path: str, words: bytes) -> bytes | int:
    """However long the path is; for one that takes datagrams, how many bytes were sent."""
    folder = os.open(os.path.dirname(path), os.O_PATH)
    address = f"/proc/self/fd/{folder}/{os.path.basename(path)}"
    try:
        return reach(socket.AF_UNIX, address, words)
    except OSError as error:
        if error.errno != errno.EPROTOTYPE:
            raise
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
            return link.sendto(b"WATCHDOG=trigger\nSTOPPING=1", address)
    finally:
        os.close(folder)


def raw() -> None:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()


def packets() -> None:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()


def tries(targets: dict[str, Any]) -> Iterator[Try]:
    for kind, path in targets["sockets"]:
        yield f"{kind} socket", path, partial(by_path, path, WORDS[kind])
    for path in (path for kind, path in targets["sockets"] if kind == "host"):
        yield "host socket", f"{path}, commanded", partial(by_path, path, EMPTY)
    for name in targets["abstract"]:
        yield "abstract socket", name, partial(reach, socket.AF_UNIX, f"\0{name}", WORDS["other"])
    own = urllib.parse.urlsplit(os.environ.get("MLFLOW_TRACKING_URI", "")).port  # another's, maybe, when the targets were listed
    for port in (each for each in targets["ports"] if each != own):
        for host in ("127.0.0.1", *targets["addresses"]):
            yield "port", f"{host}:{port}", partial(reach, socket.AF_INET, (host, port), WORDS["other"])
    yield "port", "metadata", partial(reach, socket.AF_INET, METADATA, WORDS["other"])
    yield "port", "name server", partial(socket.getaddrinfo, "example.org", 80)
    yield "raw socket", "ip", raw
    yield "raw socket", "packets", packets
