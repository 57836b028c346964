"""The driver's view of the other machines of its run: the slots they offer, the connection to each, and which are lost.

Without an address by which others could reach this machine (EDT_ADDRESS) there are none, and nothing of this is started.
"""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import os
import socket
import time

from training_runtime.elastic.comm.segment import Layout
from training_runtime.elastic.driver.host_link import HostLink
from training_runtime.elastic.job import Job
from training_runtime.elastic.multinode import admission, bridge, rendezvous
from training_runtime.elastic.multinode.connection import Ends
from training_runtime.elastic.multinode.replication import HEAD_NODE
from training_runtime.elastic.processes import process_handles, reports
from training_runtime.elastic.processes.commands import Acknowledge, Command, Cut, End, Kill, Start, encode
from training_runtime.elastic.processes.fork_server import ForkServer
from training_runtime.elastic.state import capture, transfer
from training_runtime.protocol import SlotRef

MACHINES = 8  # that may take part in a run, the head node included
UNRESPONSIVE_S = 15.0  # how long a machine may take to end a worker before it is abandoned itself
_END_S = 6.0


def address() -> str:
    """The address under which other machines reach this one; empty if none may take part."""
    return os.environ.get("EDT_ADDRESS", "")


def listen(where: str) -> socket.socket:
    """On this one address, if it is a number of ours; else on all, since a name may stand for another one here than elsewhere."""
    try:
        return socket.create_server((str(ipaddress.ip_address(where)), 0), family=_family(where), backlog=MACHINES)
    except (ValueError, OSError):
        both = socket.has_dualstack_ipv6()
        return socket.create_server(("", 0), family=socket.AF_INET6 if both else socket.AF_INET, backlog=MACHINES, dualstack_ipv6=both)


def _family(number: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in number else socket.AF_INET


class RemoteNodes:
    """Those of one train(). `handles`: of processes whose end has to be noticed. `link`: to the host, by which remote agents hear of this
    machine that do not see the run's folder."""

    def __init__(self, job: Job, fork_server: ForkServer, link: HostLink | None) -> None:
        self._job, self._fork_server, self._link = job, fork_server, link
        self._slots: dict[int, tuple[SlotRef, ...]] = {}
        self._killed: dict[int, float] = {}
        self.handles: tuple[int, ...] = ()
        self._pid = 0
        self._control: socket.socket | None = None
        self._laid_out: tuple[Layout, tuple[int, int]] | None = None

    def open(self, layout: Layout, lengths: tuple[int, int]) -> None:
        """Accept other machines from now on. `lengths`: of both datasets, in samples."""
        self._laid_out = layout, lengths
        if address():
            self._start(layout, lengths)

    def _start(self, layout: Layout, lengths: tuple[int, int]) -> None:
        job, fork_server = self._job, self._fork_server
        token = bridge.new_token()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, listen(address()) as listener:
            ends = Ends(layout, fork_server.segment_fd, fork_server.state_fd, fork_server.wake_fd, theirs, job.result_dir)
            self._pid = bridge.head_node(
                ends,
                listener,
                token=token,
                welcome=admission.of_run(job.config, layout, lengths),
                start_fd=fork_server.start_fd,
                to_driver=fork_server.report,
                leave=self._leave,
            )
            self.handles = (os.pidfd_open(self._pid),)
            port = listener.getsockname()[1]
            rendezvous.write(job.result_dir, rendezvous.Rendezvous(address(), port, token))
            if self._link is not None:
                self._link.meets(port, token)

    def _leave(self) -> None:
        """In the bridge: let go of what is the driver's own."""
        self._fork_server.leave()
        if self._control is not None:
            self._control.close()

    # -- what they offer

    def slots(self) -> tuple[SlotRef, ...]:
        return tuple(slot for machine in sorted(self._slots) for slot in self._slots[machine])

    def machine_of(self, slot: SlotRef) -> int:
        return next((machine for machine, offered in self._slots.items() if slot in offered), 0)

    def receive(self, report: reports.OfMachine) -> str:
        """What a machine says of itself; why it says so, if it does."""
        if isinstance(report, reports.StartAsked):
            self._send_start()
            return ""
        self._set_slots(report.machine, report.slots)
        return report.reason

    def _send_start(self) -> None:
        """Another machine wants the state that all begin with. It is laid out for the first one."""
        job, fd = self._job, self._fork_server.start_fd
        if not os.fstat(fd).st_size:
            transfer.pack(fd, capture.capture(job.live), 0, 1)
        self.command(HEAD_NODE, Start())

    def _set_slots(self, machine: int, offered: tuple[SlotRef, ...]) -> None:
        """Which slots it has for this run. Without the studio their numbers are only its own."""
        if not self._job.in_studio:
            offered = tuple(dataclasses.replace(slot, id=1000 * machine + slot.id) for slot in offered)
        self._slots[machine] = offered

    def forget(self, machine: int) -> None:
        self._slots.pop(machine, None)
        self._killed.pop(machine, None)

    # -- what they are told

    def command(self, machine: int, command: Command) -> None:
        """To a remote agent, or (HEAD_NODE) to all; nothing happens where it has just been lost, of which the driver is about to hear."""
        if self._control is not None:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self._control.send(encode(command, machine=machine))
        if isinstance(command, Kill):
            self._killed.setdefault(machine, time.monotonic())

    def acknowledge(self, report: reports.Journaled | reports.Exactness) -> None:
        """Word of another machine is in the journal: it need not keep it any more."""
        if not isinstance(report, reports.Exactness) and report.machine:
            self.command(report.machine, Acknowledge())

    def worker_ended(self, machine: int) -> None:
        """A worker has ended there."""
        self._killed.pop(machine, None)

    def abandon_unresponsive(self, now: float) -> None:
        """Cut off machines that do not even end their workers."""
        for machine, since in tuple(self._killed.items()):
            if now > since + UNRESPONSIVE_S:
                del self._killed[machine]
                self.command(machine, Cut())

    def restart(self) -> tuple[int, ...]:
        """Start a new bridge after the last one died with all its connections. Returns the machines that are lost."""
        lost = tuple(self._slots)
        self.end(over=False)
        self._slots, self._killed = {}, {}
        if self._laid_out is not None:
            self.open(*self._laid_out)
        return lost

    def end(self, *, over: bool = True) -> None:
        """Let go of all of them. `over`: the training is, so they need not come back."""
        if self._control is None:
            return
        rendezvous.forget(self._job.result_dir)
        if over:
            self.command(HEAD_NODE, End())
        self._control.close()
        self._control = None
        (handle,), self.handles = self.handles, ()
        process_handles.wait(handle, _END_S)
        process_handles.end(self._pid, process_handles.start_ticks(self._pid))
        os.close(handle)
