"""A child that is forked from the studio's process, which has imported what it needs already, and not started as a program of its own.

It begins as a new process would: what of the parent it does not keep is named here, thing by thing. Modules stay, and whatever they hold.
Nothing here knows Django, or which programs there are.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import gc
import io
import logging
import os
import re
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn

import setproctitle

PR_SET_PDEATHSIG = 1
Main = Callable[[], object]


@dataclass(frozen=True)
class Setting:
    """What a child finds when it begins. `output`: where what it prints goes. `inherited`: the descriptors that it gets, under the same
    numbers. `tie`: called first in its new session, see `tie_to_this_process`."""

    title: str
    argv: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    output: IO[bytes]
    inherited: Sequence[int] = ()
    tie: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Forked:
    """A child that runs, or waits to be reaped. As much of a Popen as its owner needs."""

    pid: int

    def wait(self) -> int:
        """Reap it: the exit status, or less than 0 for the signal that ended it."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def tie_to_this_process() -> Callable[[], None]:
    """What a child of this process calls so that SIGTERM reaches it when this process dies."""
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def tie() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died between fork and prctl: no signal will come
            os._exit(1)

    return tie


def loaded(load: Callable[[], Main]) -> Main:
    """What `load` returns. Where it fails, something that fails with the same error: in the child, whose log is where people look."""
    try:
        return load()
    except Exception as error:
        failed = error

        def fail() -> NoReturn:
            raise failed

        return fail


def fork(main: Main, setting: Setting) -> Forked:
    """Call `main` in a child that ends when it returns (status 0), exits, or raises (1, and a traceback on standard error).

    Raises OSError where the system has no process left.
    """
    threads = len(list(Path("/proc/self/task").iterdir()))
    assert threads == 1, f"{threads} threads: what another one holds at the fork, a lock say, is held in the child for ever"
    gc.freeze()  # what is there by now stays: a collection that wrote to it would copy the pages that both share
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # a terminal that has gone away
            stream.flush()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # none reaches the child while our handlers are its own
    try:
        if pid := os.fork():
            return Forked(pid)
        _live(main, setting, mask)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _live(main: Main, setting: Setting, mask: set[int | signal.Signals]) -> NoReturn:
    """All that happens in the child. It never returns into the parent's code, and leaves that one's exit work alone."""
    status = 1
    try:
        _begin(setting, mask)
        status = _status_of(main)
        threading._shutdown()  # type: ignore[attr-defined]  # as at the end of every Python, and of multiprocessing's children
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _status_of(main: Main) -> int:
    try:
        main()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        print(end.code, file=sys.stderr)  # noqa: T201
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _begin(setting: Setting, mask: set[int | signal.Signals]) -> None:
    os.setsid()
    setting.tie()
    _default_signals()
    _files(setting.output.fileno(), setting.inherited)
    _streams()
    atexit._clear()
    atexit.register(logging.shutdown)
    _entitle(setting.title)  # it looks for the command line beside the environment that the process was started with
    os.environ.clear()
    os.environ.update(setting.environment)
    os.chdir(setting.folder)
    sys.argv = list(setting.argv)
    _heed_warnings(setting.environment.get("PYTHONWARNINGS", ""))
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _default_signals() -> None:
    """What is ignored stays so, as it does for a program."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def _files(output: int, inherited: Sequence[int]) -> None:
    """Nothing on standard input, the log behind both outputs, and of the rest only what is inherited. The other numbers are let go of, the
    studio's lock among them, but stay taken: objects of the parent's know them, and could close what has come to have the same number."""
    null, log = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC), fcntl.fcntl(output, fcntl.F_DUPFD_CLOEXEC, 3)
    for number, source in enumerate((null, log, log)):
        os.dup2(source, number)
    for number in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if number > 2 and number not in (null, *inherited) and _is_open(number):
            os.dup2(null, number, inheritable=False)


def _is_open(number: int) -> bool:
    """Unlike the descriptor that the list itself was read by."""
    with contextlib.suppress(OSError):
        return fcntl.fcntl(number, fcntl.F_GETFD) >= 0
    return False


def _streams() -> None:
    """Unbuffered, as PYTHONUNBUFFERED says to those that are started as programs."""
    streams = {
        "stdin": io.TextIOWrapper(io.BufferedReader(io.FileIO(0, "r", closefd=False))),
        "stdout": io.TextIOWrapper(io.FileIO(1, "w", closefd=False), write_through=True),
        "stderr": io.TextIOWrapper(io.FileIO(2, "w", closefd=False), errors="backslashreplace", write_through=True),
    }
    for name, stream in streams.items():
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _heed_warnings(said: str) -> None:
    """`said`: as PYTHONWARNINGS has it, action and beginning of the message. What the studio was told itself holds as well, below it."""
    for option in filter(None, said.split(",")):
        action, _, message = option.partition(":")
        warnings.filterwarnings(action, re.escape(message))  # type: ignore[arg-type]


def _entitle(title: str) -> None:
    """For ps. What the process was started with stays readable beside it (SPT_NOENV), and keeps its room: a long title is cut."""
    os.environ["SPT_NOENV"] = "1"
    setproctitle.setproctitle(title)
    del os.environ["SPT_NOENV"]
