"""A machine that takes part in the run of another one: it has brought the script up to train(), and forks workers when the driver says
so.

What the driver is told by its fork server and workers, it is told by those of a remote agent too, over the wire. The slots are granted by
the remote agent's own node host, or are those of the machine where there is no studio. It never outlives its usefulness: without the driver
its workers write down what they know, and it goes, for its host to start it again.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
import time

from training_runtime.elastic.comm.segment import Segment
from training_runtime.elastic.driver.hang_rules import STOPPED_S, TimeoutWatchdog
from training_runtime.elastic.driver.host_link import HostLink
from training_runtime.elastic.driver.worker_process import WorkerProcess
from training_runtime.elastic.job import Job
from training_runtime.elastic.multinode import admission as admissions
from training_runtime.elastic.multinode import bridge, rendezvous
from training_runtime.elastic.multinode.admission import Admission, describe_build
from training_runtime.elastic.multinode.connection import LAST_S, Ends
from training_runtime.elastic.multinode.travelling_files import forget_written
from training_runtime.elastic.multinode.wire import Wire
from training_runtime.elastic.processes import process_handles, reports
from training_runtime.elastic.processes.becoming import at_the_end
from training_runtime.elastic.processes.commands import Command, End, Fork, Kill, decode, encode
from training_runtime.elastic.processes.fork_server import ForkServer
from training_runtime.elastic.processes.process_handles import start_ticks
from training_runtime.elastic.processes.reports import Report
from training_runtime.elastic.state import emergency_checkpoint
from training_runtime.errors import ProtocolError, UserError
from training_runtime.meeting import Meeting
from training_runtime.protocol import SlotRef, Worker

OVER, AGAIN = 0, 75  # exit codes: nothing more to do; the driver was lost or not found (EX_TEMPFAIL)
FIND_S = 60.0
_LOOK_S = 0.2
_DIFFERENT = "this machine's script came to another model or dataset than the driver's; it must make the same ones on every machine"

_NO_LOCKS = (
    "the file system of the run's folder has no locks, without which no run can use several machines: mount it with them (NFS: lock)"
)


class Lost(Exception):
    """The driver cannot be reached, or not any more."""


class RemoteAgent:
    """One call of train() on a machine that is not the driver's. `link` is None without the studio: then `slots` are offered from start to
    end. `meeting`: where the driver was to be met when this process began, if this machine does not see its folder."""

    def __init__(self, job: Job, *, link: HostLink | None, slots: tuple[SlotRef, ...], meeting: Meeting | None = None) -> None:
        self._job, self._link, self._slots, self._meeting = job, link, slots, meeting
        self._reason = "another machine joins"
        self._revision = -1
        self._leaving = False
        self._over = False
        self._workers: dict[int, WorkerProcess] = {}
        self._stopped = TimeoutWatchdog()
        self._segment: Segment | None = None
        self._fork_server: ForkServer | None = None

    def run(self) -> int:
        """Until the training is over, or this machine is not wanted any more; the exit code. Raises UserError where the script makes
        something else here than on the driver's machine."""
        if not emergency_checkpoint.has_locks(self._job.result_dir):
            raise UserError(_NO_LOCKS)
        if self._meeting is not None:
            forget_written(self._job.result_dir)
        try:
            found = self._find()
        except Lost as lost:
            return self._say(AGAIN, str(lost))
        if found is None:
            return OVER
        wire, admission = found
        try:
            self._load_start(wire, admission)
            return self._take_part(wire, admission)
        except (OSError, EOFError, ProtocolError) as error:
            return self._say(AGAIN, f"the driver was lost: {error}")

    def _take_part(self, wire: Wire, admission: Admission) -> int:
        fork_server = self._fork_server = ForkServer(
            self._job, self._link.leave if self._link is not None else lambda: None, two_inboxes=True
        )
        with at_the_end(lambda: self._end(fork_server)):
            self._lay_out(fork_server, admission)
            return self._serve(fork_server, wire, admission.machine)

    def _end(self, fork_server: ForkServer) -> None:
        fork_server.end(self._workers.values())
        if self._link is not None:
            self._link.hold((), forking=False)

    def interrupt(self, _reason: str) -> None:
        """Leave at the next step boundary. From a signal handler."""
        self._leaving = True
        if self._fork_server is not None:
            os.eventfd_write(self._fork_server.wake_fd, 1)

    def _say(self, code: int, message: str) -> int:
        print(f"edt: {message}", file=sys.stderr, flush=True)  # noqa: T201 - for whoever reads this machine's log
        return code

    # -- to the driver

    def _find(self) -> tuple[Wire, Admission] | None:
        """A connection to the driver and what it says of the run; None where this machine is to go before there is one."""
        end = time.monotonic() + FIND_S
        why = "its folder says of no driver that other machines could reach"
        while time.monotonic() < end:
            self._poll_host(_LOOK_S)
            if self._leaving:
                return None
            found = rendezvous.read(self._job.result_dir) if self._meeting is None else self._meeting
            if found is None:
                continue
            try:
                wire = Wire(socket.create_connection((found.address, found.port), timeout=_LOOK_S * 10))
                wire.greet(found.token, listens=False)
                admission = admissions.decode(wire.receive_message())
            except (OSError, EOFError, ProtocolError) as error:
                why = f"{found.address} port {found.port}: {error}"
                continue
            if admission.refused:
                raise Lost(f"the driver refuses: {admission.refused}")
            return wire, admission
        raise Lost(f"the driver was not found within {FIND_S:g} s: {why}")

    def _load_start(self, wire: Wire, admission: Admission) -> None:
        """Make what the script has made here equal to what it has made there."""
        if admission.build != (own := describe_build()):
            raise UserError(f"the driver's machine has {admission.build}, this one {own}: they would not compute the same")
        job = self._job
        job.config = admission.configure(job.config)
        kind, _, length = wire.header()
        if kind != "start":
            raise ProtocolError(f"{kind!r} came instead of the state to begin with")
        fd = os.memfd_create("edt-start")
        wire.into_file(fd, length)
        if not job.load_start(fd):
            raise UserError(_DIFFERENT)
        os.close(fd)

    def _lay_out(self, fork_server: ForkServer, admission: Admission) -> None:
        """An segment like the driver's, when the fork server has the datasets."""
        lengths = self._sized(fork_server)
        layout = self._job.layout(self._job.shape(*lengths))
        if lengths != admission.lengths or repr(layout) != admission.layout:
            raise UserError(f"{_DIFFERENT} (samples {list(lengths)} and {list(admission.lengths)})")
        self._segment = Segment(fork_server.segment_fd, layout, create=True)

    def _sized(self, fork_server: ForkServer) -> tuple[int, int]:
        while True:
            self._wait((fork_server.fork_server_inbox.fileno(), fork_server.handle), None)
            for report in fork_server.fork_server_inbox.receive():
                match report:
                    case reports.Sized(samples, test_samples):
                        return samples, test_samples
                    case reports.ForkServerFailed(where, traceback):
                        raise UserError(f"{where}:\n{traceback}")
                    case reports.Unforkable():
                        self._say(OVER, fork_server.start_spawned(report))
            if process_handles.has_ended(fork_server.handle):
                raise UserError("the process that workers are forked from died")

    # -- with the driver

    def _serve(self, fork_server: ForkServer, wire: Wire, machine: int) -> int:
        assert self._segment is not None
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        fds, own_folder = (fork_server.segment_fd, fork_server.state_fd, fork_server.wake_fd), self._meeting is not None
        ends = Ends(self._segment.layout, *fds, theirs, self._job.result_dir, own_folder)

        def leave() -> None:
            fork_server.leave()
            control.close()

        pid = bridge.remote_agent(ends, wire, machine, inbox=fork_server.inbox, leave=leave)
        theirs.close()
        wire.socket.close()
        handle = os.pidfd_open(pid)
        try:
            _send(control, reports.Joined(self._offered(), self._reason, own_folder=own_folder))
            self._say(OVER, "this machine takes part in the training")
            code = self._attend(fork_server, control, handle)
        finally:
            control.close()
            process_handles.wait(handle, LAST_S + 1)
            process_handles.end(pid, start_ticks(pid))
            os.close(handle)
        return code

    def _attend(self, fork_server: ForkServer, control: socket.socket, bridge_handle: int) -> int:
        """Until the end of the training, of the connection, of the fork server, or of our being wanted."""
        while True:
            ready = self._wait((fork_server.fork_server_inbox.fileno(), fork_server.handle, bridge_handle, control.fileno()), control)
            for report in fork_server.fork_server_inbox.receive():
                self._note(report)
                _send(control, report)
            connected = self._receive_commands(fork_server, control) and bridge_handle not in ready
            if (self._over or self._leaving) and not self._workers:
                return OVER
            if not connected or fork_server.handle in ready:
                return self._drain(fork_server, "the fork server died" if fork_server.handle in ready else "the driver was lost")
            self._end_the_stopped(fork_server)

    def _receive_commands(self, fork_server: ForkServer, control: socket.socket) -> bool:
        """All that the driver has said so far; False where it will say nothing more."""
        while True:
            try:
                raw = control.recv(bridge.MAX_MESSAGE, socket.MSG_DONTWAIT)
            except ConnectionResetError:  # the bridge went without hearing us out; what it had passed on is still here
                continue
            except BlockingIOError:
                return True
            if not raw:
                return False
            self._handle(fork_server, decode(raw))

    def _wait(self, handles: tuple[int, ...], control: socket.socket | None) -> set[int]:
        """Until something happens; what. The host's wishes are passed on."""
        links = self._link.readable() if self._link is not None else []
        assert self._fork_server is not None
        poll = select.poll()
        for fd in (*handles, *links, self._fork_server.wake_fd):
            poll.register(fd, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(1000 * 1.0)}
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._fork_server.wake_fd)
        before = (self._slots, self._leaving)
        self._poll_host(0)
        if control is not None and before != (self._slots, self._leaving):
            _send(control, reports.Offered(self._offered(), self._reason))
        return ready

    def _poll_host(self, timeout_s: float) -> None:
        """What our own host wants; without one this machine offers what it has."""
        if self._link is None:
            select.select([], [], [], timeout_s)
            return
        if timeout_s:
            select.select(self._link.readable(), [], [], timeout_s)
        self._link.poll()
        if self._link.wanted is not None and self._link.wanted.revision != self._revision:
            self._revision, self._slots, self._reason = self._link.wanted.revision, self._link.wanted.slots, self._link.wanted.reason
            self._meeting = self._meeting and (self._link.wanted.meeting or self._meeting)
        if self._link.stop is not None:
            self._leaving, self._reason = True, self._link.stop.reason

    def _offered(self) -> tuple[SlotRef, ...]:
        return () if self._leaving else self._slots

    def _note(self, report: Report) -> None:
        """Which processes there are on which slots, for the host."""
        if isinstance(report, reports.Forked):
            worker = self._workers[report.worker_id]
            worker.pid, worker.ticks = report.pid, start_ticks(report.pid)
        elif isinstance(report, reports.Exited):
            self._workers.pop(report.worker_id, None)
        self._tell_host()

    def _tell_host(self) -> None:
        if self._link is not None:
            known = tuple(Worker(w.slot.id, w.pid, w.ticks) for w in self._workers.values() if w.pid)
            self._link.hold(known, forking=len(known) < len(self._workers))

    def _handle(self, fork_server: ForkServer, command: Command) -> None:
        """One command of the driver."""
        if isinstance(command, End):
            self._over = True
            return
        if isinstance(command, Fork):
            assert self._segment is not None
            self._segment.clear_worker(command.worker_id)
            unknown = SlotRef(command.slot, "", command.index, command.kind)
            slot = next((slot for slot in self._slots if slot.id == command.slot), unknown)
            self._workers[command.worker_id] = WorkerProcess(command.worker_id, slot, 0, "starting")
            self._tell_host()
        fork_server.commands.send(encode(command))

    def _end_the_stopped(self, fork_server: ForkServer) -> None:
        """Who is stopped by a signal shows nothing to the driver but that others wait; here it can be seen."""
        pids = {worker_id: w.pid for worker_id, w in self._workers.items() if w.pid}
        seen = {
            worker_id: (f"{pid} {stopped}", STOPPED_S if stopped else float("inf"))
            for worker_id, pid in pids.items()
            for stopped in (process_handles.is_stopped(pid),)
        }
        for worker_id in self._stopped.expired(time.monotonic(), seen):
            fork_server.commands.send(encode(Kill(worker_id)))

    def _drain(self, fork_server: ForkServer, why: str) -> int:
        """Nobody leads the workers here any more: they write down what they know and go."""
        assert self._segment is not None
        fork_server.terminate_workers(
            self._segment, [worker for worker in self._workers.values() if worker.pid], lambda: self._poll_host(0)
        )
        emergency_checkpoint.add(self._job.result_dir, self._segment, fork_server.inbox.receive())
        self._workers = {}
        self._tell_host()
        return self._say(AGAIN, why)


def _send(control: socket.socket, report: Report) -> None:
    """To the bridge; one that has just died is about to be noticed."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        control.send(reports.encode(report))
