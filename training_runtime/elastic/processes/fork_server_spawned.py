"""Workers for a script that must not be forked: a fresh interpreter takes the place of the fork server, and each worker that it forks runs
the script itself, up to train().

The interpreter runs nothing of the user's, so it may fork as the usual fork server does, in milliseconds; a worker then takes as long as
the script takes up to train(), while the others go on. To be what a forked worker would have been it gets the initial state of the driver,
and is refused where it comes to another model or dataset. What the driver has to say goes through a memfd.
"""

from __future__ import annotations

import json
import os
import pickle
import socket
import subprocess
import sys
import traceback
from dataclasses import dataclass
from typing import NoReturn

from training_runtime import console
from training_runtime.elastic.comm.segment import Layout
from training_runtime.elastic.job import Job, TrainConfig
from training_runtime.elastic.processes import becoming, fork_server_process, script
from training_runtime.elastic.processes.commands import Fork
from training_runtime.elastic.processes.process_handles import see_children_end
from training_runtime.elastic.processes.report_socket import Inbox, Outbox
from training_runtime.elastic.processes.worker_context import WorkerContext, context_of
from training_runtime.elastic.state import transfer
from training_runtime.elastic.worker import main as worker
from training_runtime.errors import UserError

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from training_runtime.elastic.processes import fork_server_spawned as spawned; spawned.main(int(sys.argv[2]))"
)


SHARED = ("segment_fd", "state_fd", "snapshot_fd", "wake_fd", "driver")  # what every worker inherits


@dataclass(frozen=True)
class SpawnArgs:
    """From the driver. `call`: which train() of the script it is, from 1; `start_fd` holds the state that all begin with. `own_outbox` is
    the fork server's, `outbox` that of workers; `shim`: through whom logs are written (see `console`), -1 where there is nobody.
    Descriptors are inherited under the same numbers."""

    script: script.Script
    call: int
    config: TrainConfig
    lengths: tuple[int, int]
    layout: Layout
    parent: int
    segment_fd: int
    state_fd: int
    snapshot_fd: int
    start_fd: int
    wake_fd: int
    driver: int
    commands: int
    own_outbox: int
    outbox: int
    inbox: int
    shim: int = -1


def begin(args: SpawnArgs) -> int:
    """Start the interpreter; its pid, which the caller reaps."""
    fd = os.memfd_create("edt-args")
    transfer.write_all(fd, memoryview(pickle.dumps(args)), 0)
    command = [sys.executable, "-c", _BOOT, json.dumps(args.script.outside_path()), str(fd)]
    names = (*SHARED, "start_fd", "commands", "own_outbox", "outbox", "inbox", "shim")
    passed = {number for name in names if (number := getattr(args, name)) >= 0}
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[fd, *passed])
    os.close(fd)
    process.returncode = 0  # so that its object does not reap it as well
    return process.pid


def main(fd: int) -> NoReturn:
    """The interpreter: do what a fork server does."""
    args: SpawnArgs = pickle.loads(os.pread(fd, os.fstat(fd).st_size, 0))  # noqa: S301 - written by this run's own driver
    os.close(fd)
    console.inherit(args.shim)
    from training_runtime.elastic.processes.warm import warm_up

    def prepare() -> tuple[tuple[int, int], Layout]:
        warm_up()
        return args.lengths, args.layout

    reports = Outbox(socket.socket(fileno=args.outbox), args.driver)
    child = _Child(args, reports, Inbox(socket.socket(fileno=args.inbox)))
    own = reports if args.own_outbox == args.outbox else Outbox(socket.socket(fileno=args.own_outbox), args.driver)
    fork_server_process.run(args.parent, prepare, child, socket.socket(fileno=args.commands), own, where="fresh interpreter")


class _Child:
    """How a worker begins here."""

    def __init__(self, args: SpawnArgs, reports: Outbox, inbox: Inbox) -> None:
        self._args, self._reports, self._inbox = args, reports, inbox
        self.segment_fd, self.driver = args.segment_fd, args.driver

    def leave(self) -> None:
        """Nothing of the driver's own was passed on."""

    def __call__(self, command: Fork, lengths: tuple[int, int]) -> None:
        global _part
        args, config = self._args, self._args.config
        fds = {name: getattr(args, name) for name in SHARED}
        context = context_of(command, **fds, reports=self._reports, inbox=self._inbox)
        try:
            context.settle(config.result_dir, in_studio=config.in_studio)
            _part = Part(args, context, lengths)
            args.script.run(config.seed if config.in_studio else None)
            becoming.conclude(None)
        except SystemExit as stop:
            becoming.conclude(stop)
        except BaseException as error:
            becoming.conclude(error)
            worker.fail(context, error)
        worker.fail(context, UserError("this worker ran the script, which ended without coming to the train() that the driver is in"))


class Part:
    """What train() does in a process that runs the script as a worker."""

    def __init__(self, args: SpawnArgs, context: WorkerContext, lengths: tuple[int, int]) -> None:
        self._args, self._context, self._lengths, self._calls = args, context, lengths, 0
        self.config = args.config

    def is_turn(self) -> bool:
        """Whether this is the train() that the worker is for. What those before it have made is in the state that it gets."""
        self._calls += 1
        return self._calls == self._args.call

    def enter(self, job: Job) -> tuple[WorkerContext, tuple[int, int]]:
        """What a worker that runs a loop of the script's begins with."""
        self._become_equal(job)
        return self._context, self._lengths

    def work(self, job: Job) -> NoReturn:
        """The rest of this process: be a worker."""
        code = 0
        try:
            self._become_equal(job)
            worker.run(job, self._context, self._lengths)
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        except BaseException:
            traceback.print_exc()
            code = 1
        finally:  # the script must not go on, whatever it catches
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _become_equal(self, job: Job) -> None:
        """Have the datasets and the state that a worker forked from the driver would have had."""
        see_children_end()  # of loaders, whatever the script has chosen
        try:
            lengths, args = job.prepare_datasets(), self._args
            self._context.set_threads()  # the script may have set others
            if script.why_not_fork():
                job.loader_threads = 0  # loaders would be forked from here
            if lengths != self._lengths or job.layout(job.shape(*lengths)) != args.layout:
                raise UserError(f"{_DIFFERENT} (samples {lengths} and {self._lengths})")
            if not job.load_start(args.start_fd):
                raise UserError(_DIFFERENT)
        except BaseException as error:
            worker.fail(self._context, error)


_DIFFERENT = "this worker ran the script and came to another model or dataset than the driver; it must make the same ones each time"
_part: Part | None = None


def current() -> Part | None:
    """The part of this process; None in the driver."""
    return _part
