"""The quiet parent that workers are forked from: imports, model and dataset are in its memory, no thread runs, no device is initialised.

It calls the datasets function once, so that all workers of the machine share the dataset copy-on-write; then it only forks, kills and reaps
on command of the driver and reports every exit. It dies with the driver, and the workers die with it.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from training_runtime.elastic import reports
from training_runtime.elastic.doorbell import die_with_parent
from training_runtime.elastic.job import Job
from training_runtime.elastic.sampler import derive, seed_everything

Child = Callable[[dict[str, Any], tuple[int, int]], None]


def start(job: Job, child: Child, to_driver: socket.socket) -> tuple[int, socket.socket]:
    """Fork the template from a process without threads; its pid and the socket for commands. `child` runs a worker in a process of
    its own."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    pid = os.fork()
    if pid:
        theirs.close()
        return pid, ours
    ours.close()
    return _run(parent, job, child, theirs, to_driver)


def _run(parent: int, job: Job, child: Child, commands: socket.socket, to_driver: socket.socket) -> NoReturn:
    code = 1
    try:
        die_with_parent(parent)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal reaches everybody; the driver decides
        seed_everything(derive(job.seed, 0, 0, 0, "datasets"))
        samples, test_samples = job.load_datasets()
        gc.collect()
        gc.freeze()
        reports.send(to_driver, "sized", samples=samples, test_samples=test_samples)
        _serve(child, commands, to_driver, (samples, test_samples))
        code = 0
    except BaseException:
        reports.send(to_driver, "error", seat=-1, where="datasets function", traceback=traceback.format_exc())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _serve(child: Child, commands: socket.socket, to_driver: socket.socket, lengths: tuple[int, int]) -> None:
    """Until the driver hangs up. A pidfd becomes readable when its process has exited; then it is reaped and reported."""
    alive: dict[int, tuple[int, int]] = {}  # pidfd -> pid, seat
    poll = select.poll()
    poll.register(commands.fileno(), select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd in alive:
                pid, seat = alive.pop(fd)
                poll.unregister(fd)
                os.close(fd)
                _, status = os.waitpid(pid, 0)
                reports.send(to_driver, "exited", seat=seat, pid=pid, code=os.waitstatus_to_exitcode(status))
                continue
            raw = commands.recv(65536)
            if not raw:
                return
            command = json.loads(raw)
            if command["do"] == "kill":
                for pid in (pid for pid, seat in alive.values() if seat == command["seat"]):
                    os.kill(pid, signal.SIGKILL)  # our child and not reaped: the pid is still its own
                continue
            pid = _fork(child, command, commands, lengths)
            fd = os.pidfd_open(pid)
            alive[fd] = (pid, command["seat"])
            poll.register(fd, select.POLLIN)
            reports.send(to_driver, "forked", seat=command["seat"], pid=pid)


def _fork(child: Child, command: dict[str, Any], commands: socket.socket, lengths: tuple[int, int]) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        commands.close()
        die_with_parent(parent)
        child(command, lengths)
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
