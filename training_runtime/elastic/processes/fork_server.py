"""The driver's end of the fork server: what both share is made here, the fork server is started, started again when it dies, and ended with
everything it has forked.

The driver is the subreaper of its run: workers whose fork server died become its children, so that it can tell when they are gone. While
the fork server lives, it is the one who reaps.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Collection, Iterable

from training_runtime import console
from training_runtime.elastic.comm.segment import BEAT, Segment
from training_runtime.elastic.driver.hang_rules import Grace
from training_runtime.elastic.driver.worker_process import WorkerProcess
from training_runtime.elastic.job import Job, RespawnSpec
from training_runtime.elastic.processes import fork_server_process, fork_server_spawned, process_handles, report_socket, script
from training_runtime.elastic.processes.commands import Fork
from training_runtime.elastic.processes.reports import Report, Unforkable
from training_runtime.elastic.processes.worker_context import context_of
from training_runtime.elastic.state import capture, emergency_checkpoint, transfer
from training_runtime.elastic.worker import main as worker_main

_LOOK_S = 0.5


class ForkServer:
    """The shared memory, the sockets and the fork server of one train(). `commands` is the fork server's socket; `leave` lets go, in the
    fork server, of what is the driver's own. `inbox` is where workers report, `fork_server_inbox` where the fork server does: the same
    without `two_inboxes`."""

    def __init__(self, job: Job, leave: Callable[[], None], *, two_inboxes: bool = False) -> None:
        self._job, self.leave, self._two_inboxes = job, leave, two_inboxes
        self.segment_fd, self.state_fd = os.memfd_create("edt-segment"), os.memfd_create("edt-state")
        self.snapshot_fd = os.memfd_create("edt-snapshot")
        self.wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.driver = os.pidfd_open(os.getpid())
        self.start_fd = os.memfd_create("edt-start")
        process_handles.adopt_orphans(True)
        self.start()

    def start(self) -> None:
        """A fork server, forked from this process as it is now or else a fresh one, and a new socket for reports: the last one may have
        been shut down."""
        self.inbox, self._outbox = report_socket.pair(self.driver)
        self.fork_server_inbox, self._fork_server_outbox = (
            report_socket.pair(self.driver) if self._two_inboxes else (self.inbox, self._outbox)
        )
        if self._job.respawn is None:
            self.pid, self.commands = fork_server_process.start(self._job, self, self._fork_server_outbox)
        else:
            self.pid, self.commands = self._start_spawned(self._job.respawn)
        self.handle = os.pidfd_open(self.pid)

    def start_spawned(self, report: Unforkable) -> str:
        """Another fork server, from which workers run the script, instead of one that says it must not fork any; what a person should know
        of that."""
        assert self._job.fallback is not None
        why = f"after the datasets function {report.why}"
        self._job.respawn = dataclasses.replace(self._job.fallback, why=why, lengths=(report.samples, report.test_samples))
        self._end_fork_server()
        self.close_reports()
        self.start()
        return script.warning(why)

    def _start_spawned(self, spec: RespawnSpec) -> tuple[int, socket.socket]:
        transfer.pack(self.start_fd, capture.capture(self._job.live), 0, 1)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        args = fork_server_spawned.SpawnArgs(
            script=spec.script,
            call=spec.call,
            config=self._job.config,
            lengths=spec.lengths,
            layout=self._job.layout(self._job.shape(*spec.lengths)),
            parent=os.getpid(),
            **self._shared(),
            start_fd=self.start_fd,
            commands=theirs.fileno(),
            own_outbox=self._fork_server_outbox.fileno(),
            outbox=self._outbox.fileno(),
            inbox=self.inbox.fileno(),
            shim=console.shim_fd(),
        )
        with theirs:
            return fork_server_spawned.begin(args), ours

    def _shared(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in fork_server_spawned.SHARED}

    def __call__(self, command: Fork, lengths: tuple[int, int]) -> None:
        """A worker's process begins here, forked by the fork server."""
        context = context_of(command, **self._shared(), reports=self._outbox, inbox=self.inbox)
        context.settle(self._job.result_dir, in_studio=self._job.in_studio)
        (self._job.begin or worker_main.run)(self._job, context, lengths)

    def terminate_workers(self, segment: Segment | None, workers: Iterable[WorkerProcess], hear: Callable[[], None]) -> None:
        """The fork server has died, or nothing can be heard any more: the workers write down what they know and go; who does not is ended.
        Returns when all are gone. All have one time for it, which begins anew while bytes are written. `hear` is called meanwhile."""
        workers = list(workers)
        if segment is not None:
            emergency_checkpoint.declare(segment)
        self._end_fork_server()
        if segment is not None:
            _await_emergency_checkpoint(segment, workers, hear)
        for worker in workers:
            process_handles.end(worker.pid, worker.ticks)

    def report(self, report: Report) -> None:
        """To the driver, as fork server and workers do."""
        self._outbox.send(report)

    def close_reports(self) -> None:
        """Close the socket for reports, when all that was said has been read."""
        for end in (self.inbox, self._outbox, self.fork_server_inbox, self._fork_server_outbox):
            end.close()

    def end(self, workers: Collection[WorkerProcess]) -> None:
        """Leave nothing behind; `workers` are those that are still there, after an error."""
        for worker in workers:
            process_handles.end(worker.pid, worker.ticks)
        if self.pid:
            self._end_fork_server()
        for worker in workers:
            process_handles.reap(worker.pid)  # its parent may have died before it could
        for fd in (self.segment_fd, self.state_fd, self.snapshot_fd, self.start_fd, self.wake_fd, self.driver):
            os.close(fd)
        self.close_reports()
        process_handles.adopt_orphans(False)

    def _end_fork_server(self) -> None:
        signal.pidfd_send_signal(self.handle, signal.SIGKILL)  # not reaped yet, so this is it, alive or not
        os.waitpid(self.pid, 0)
        self.pid = 0
        os.close(self.handle)
        self.commands.close()


def _await_emergency_checkpoint(segment: Segment, workers: Iterable[WorkerProcess], hear: Callable[[], None]) -> None:
    """Until all have ended, are stopped by a signal, or have shown nothing for too long."""
    alive: dict[int, WorkerProcess] = {}  # by pidfd
    for worker in workers:
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(worker.pid)
            if process_handles.start_ticks(worker.pid) == worker.ticks:
                alive[handle] = worker
            else:
                os.close(handle)
    grace = Grace(fork_server_process.EMERGENCY_S, time.monotonic())
    while going := [handle for handle, worker in alive.items() if not process_handles.is_stopped(worker.pid)]:
        if grace.is_over(time.monotonic(), tuple(segment.get(alive[handle].worker_id, BEAT) for handle in going)):
            break
        poll = select.poll()
        for handle in going:
            poll.register(handle, select.POLLIN)
        for handle, _ in poll.poll(1000 * _LOOK_S):
            os.close(handle)
            del alive[handle]
        hear()
    for handle in alive:
        os.close(handle)
