"""What must be true before the studio starts. Each check passes, or raises Refusal with a sentence that says what to do; it starts
nothing.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import socket
from pathlib import Path
from typing import IO

MOST_PROCESSES = 16
MOST_SLOTS = 4096
NEEDED_BYTES = 256 << 20


class Refusal(Exception):
    """The studio cannot start; the message says why and what to do about it."""


def make_folders(home: Path) -> None:
    """The supervisor's own folders under EDT_HOME, private to this user."""
    try:
        for name in ("run", "log", "redis"):
            (home / name).mkdir(exist_ok=True, mode=0o700)
        probe = home / "run" / "probe"
        probe.write_bytes(b"writable")
        probe.unlink()
    except OSError as error:
        raise Refusal(f"EDT_HOME ({home}) cannot be written to: {error.strerror}. Set EDT_HOME to a folder of your own.") from None


def hold(home: Path, *, address: str) -> IO[str]:
    """The lock on EDT_HOME, held as long as the returned file is open (and no longer than this process lives)."""
    file = open(home / "run" / "studio.lock", "a+")  # noqa: SIM115  (the caller keeps it open)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        where = file.read().strip() or "address unknown"
        file.close()
        raise Refusal(
            f"A studio with this data ({home}) is already running: {where}. Stop that one first, or set EDT_HOME to another folder."
        ) from None
    file.truncate(0)
    file.write(f"{address}, process {os.getpid()}\n")
    file.flush()
    return file


def room(home: Path, *, needed_bytes: int = NEEDED_BYTES) -> None:
    free = shutil.disk_usage(home).free
    if free < needed_bytes:
        raise Refusal(
            f"The disk of EDT_HOME ({home}) has {free >> 20} MiB left and the studio needs {needed_bytes >> 20}: "
            "make room, or set EDT_HOME to a folder on another disk."
        )


def slots(said: str) -> None:
    """What EDT_SLOTS says; empty where it says nothing."""
    if said and not (said.isdecimal() and 1 <= int(said) <= MOST_SLOTS):
        raise Refusal(f"EDT_SLOTS is {said!r}: it must be the number of slots that this machine offers, from 1 to {MOST_SLOTS}.")


def processes(name: str, said: str) -> None:
    """What a setting says of how many processes there are of a kind; empty where it says nothing."""
    if said and not (said.isdecimal() and 1 <= int(said) <= MOST_PROCESSES):
        raise Refusal(f"{name} is {said!r}: it must be a number of processes, from 1 to {MOST_PROCESSES}.")


def address(said: str) -> None:
    """What EDT_NODE_ADDRESS says; empty where it says nothing. The node host looks closer."""
    if said and re.search(r"[\s/@]|\w:\d+$", said) and not re.fullmatch(r"[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*", said):
        raise Refusal(f"EDT_NODE_ADDRESS is {said!r}: it must be a host name or an IP address, without a port.")


def seconds(name: str, said: str) -> None:
    """What a setting in seconds says; empty where it says nothing."""
    if said and not re.fullmatch(r"\d+(\.\d+)?", said):
        raise Refusal(f"{name} is {said!r}: it must be a number of seconds.")


def listen(host: str, port: int) -> socket.socket:
    """A listening socket, which the web process inherits: nobody can take the address between this check and its start, nor while it
    restarts.

    Port 0 lets the system choose.
    """
    if not 0 <= port <= 65535:
        raise Refusal(f"{port} is no port: choose one from 1 to 65535.")
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.socket(family, kind)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(1024)
        except BaseException:
            listener.close()
            raise
    except OSError as error:
        raise Refusal(_why_not(error, host=host, port=port)) from None
    return listener


def _why_not(error: OSError, *, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"Port {port} on {host} is taken by another program: stop it, or choose another port (make up PORT={port + 1})."
    if error.errno == errno.EACCES:
        return f"Port {port} is reserved for the administrator of this machine: choose one above 1023 (make up PORT=8000)."
    return f"The studio cannot listen on {host} port {port}: {error.strerror}."
