"""The process that workers of torchrun are forked from: what it is asked for, and what it does. It runs no thread, nor anything of the
script's but imports of packages (see `ahead`).
"""

from __future__ import annotations

import errno
import gc
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn

from training_runtime.elastic.processes import process_handles
from training_runtime.elastic.torchrun import ahead, worker
from training_runtime.imported import Imported
from training_runtime.records import build

WORKER, AHEAD = b"worker", b"ahead"
ANSWER_BYTES = 32  # the pid of what was forked, or the number of an error, negative
WORD_BYTES = 2000
READY = b"ready"  # another fork server has imported ahead; any other word is why it has not
_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Work:
    """`python ARGV` in `folder` with this environment, for the process `agent`; `module`: as `python -m MODULE`."""

    agent: int
    argv: tuple[str, ...]
    folder: str
    environment: dict[str, str] = field(repr=False)
    module: str = ""


@dataclass(frozen=True)
class Ahead:
    """To be imported, for workers whose environments differ in the variables `varying`."""

    imported: Imported
    varying: tuple[str, ...]


def serve(commands: socket.socket, agent: int, added: Mapping[str, str] = _NOTHING) -> NoReturn:
    """The whole life of a fork server: until the agent closes its end, or is gone. `added`: variables that packages have set as they were
    imported ahead."""
    process_handles.die_with_parent(agent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        what, fds, _, _ = socket.recv_fds(commands, ANSWER_BYTES, 4)
        if not what:
            os._exit(0)
        try:
            answer = _fork(commands, what, fds, added)
        except OSError as error:
            answer = -(error.errno or errno.EAGAIN)
        commands.send(str(answer).encode())
        for fd in fds:
            os.close(fd)


def _fork(commands: socket.socket, what: bytes, fds: list[int], added: Mapping[str, str]) -> int:
    """By way of a process between, at whose end the other becomes the agent's."""
    told, tells = os.pipe()
    is_adopted, adopts = os.pipe()
    between = os.fork()
    if not between:
        try:
            if pid := os.fork():
                os.write(tells, str(pid).encode())
                os._exit(0)
            for fd in (told, tells, adopts, commands.detach()):
                os.close(fd)
            os.read(is_adopted, 1)
            os.close(is_adopted)
            _become(what, fds, added)
        except BaseException:  # which the log of the worker, or of the driver, has to say
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(1)
    os.close(tells)
    os.waitpid(between, 0)
    answer = os.read(told, ANSWER_BYTES)
    for fd in (told, is_adopted, adopts):
        os.close(fd)
    if not answer:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return int(answer)


def _become(what: bytes, fds: list[int], added: Mapping[str, str]) -> NoReturn:
    """The order is in the first file. Other workers share its position, so that is left alone."""
    order, *others = fds
    raw_work, raw_ahead = json.loads(os.pread(order, os.fstat(order).st_size, 0))
    os.close(order)
    work = build(Work, raw_work)
    if what == AHEAD:
        _import_ahead(work, build(Ahead, raw_ahead), socket.socket(fileno=others[0]))
    os.setpgid(0, 0)  # and the driver's session, by which a host finds what belongs to a run
    process_handles.die_with_parent(work.agent)
    worker.main(work.argv, work.folder, {**added, **work.environment}, *others, module=work.module)


def _import_ahead(work: Work, asked: Ahead, commands: socket.socket) -> NoReturn:
    process_handles.die_with_parent(work.agent)
    score = Path("/proc/self/oom_score_adj")
    usual = score.read_text()
    try:
        with suppress(OSError):  # where the run has no memory left for it, it is the first to go
            score.write_text("1000")
        inside = ahead.Inside(work.argv, work.folder, work.module)
        added = ahead.prepare(asked.imported, inside, work.environment, frozenset(asked.varying))
        with suppress(OSError):
            score.write_text(usual)
    except BaseException as error:
        commands.send(str(error).encode()[:WORD_BYTES] or b"?")
        os._exit(0)
    gc.collect()
    gc.freeze()  # its pages stay shared with the workers
    commands.send(READY)
    serve(commands, work.agent, added)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
