"""The workers of a run as its driver knows them: slot and state of each. Tells the fork server to fork and to kill."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from training_runtime.elastic.comm.segment import Segment
from training_runtime.elastic.driver import membership
from training_runtime.elastic.driver.worker_process import WorkerProcess
from training_runtime.elastic.multinode.remote_nodes import RemoteNodes
from training_runtime.elastic.processes.commands import Fork, Kill, encode
from training_runtime.elastic.processes.fork_server import ForkServer
from training_runtime.elastic.processes.process_handles import start_ticks
from training_runtime.protocol import SlotRef, Worker


class WorkerTable:
    """`here` holds the fork server's socket; `elsewhere` are the other machines."""

    def __init__(self, here: ForkServer, elsewhere: RemoteNodes) -> None:
        self._here, self._elsewhere = here, elsewhere
        self.workers: dict[int, WorkerProcess] = {}

    def __getitem__(self, worker_id: int) -> WorkerProcess:
        return self.workers[worker_id]

    def start(self, slot: SlotRef, machine: int, *, segment: Segment, avoid: set[int], begin: int, after: int, workers: int) -> None:
        """Have a worker forked for `slot`, with a free worker id of its machine that is not in `avoid`, and add it to `workers`. Does
        nothing if no id is free: call again."""
        worker_ids = segment.layout.worker_ids_of(machine)
        worker_id = next((i for i in worker_ids if i not in avoid and (i not in self.workers or self.workers[i].gone)), None)
        if worker_id is not None:
            segment.clear_worker(worker_id)
            self.workers[worker_id] = WorkerProcess(worker_id, slot, machine, "starting")
            self._command(machine, Fork(worker_id, slot.id, slot.index, slot.device, begin=begin, after=after, workers=workers))

    def forked(self, worker_id: int, pid: int) -> None:
        worker = self.workers[worker_id]
        worker.pid, worker.ticks = pid, 0 if worker.machine else start_ticks(pid)

    def ready(self, worker_id: int, now: float) -> None:
        if self.workers[worker_id].state == "starting":
            self.workers[worker_id].state, self.workers[worker_id].ready_at = "ready", now

    def retires(self, worker_id: int) -> None:
        """A member has finished its work and exits."""
        self.workers[worker_id].state = "left"

    def gives_up(self, worker_id: int) -> None:
        """A newcomer gave up waiting for the state and exits. If it has become a member meanwhile, others wait for it: then it counts as a
        death."""
        if self.workers[worker_id].state in ("starting", "ready"):
            self.workers[worker_id].state = "left"

    def kill(self, worker_ids: Iterable[int]) -> None:
        for worker_id in worker_ids:
            self.workers[worker_id].killed = True
            self._command(self.workers[worker_id].machine, Kill(worker_id))

    def discard(self, worker_ids: Iterable[int]) -> None:
        """End workers that never became members."""
        for worker_id in worker_ids:
            self.workers[worker_id].state = "left"
            self.kill((worker_id,))

    def exited(self, worker_id: int, code: int, *, said_goodbye: bool, over: bool) -> bool:
        """A worker was reaped, so its slot is free. Returns whether it died while needed. `over`: the training has ended."""
        worker = self.workers[worker_id]
        worker.gone = True
        leaves = worker.state == "left" or (worker.state == "leaving" and said_goodbye and code == 0)
        if over or leaves:
            worker.state = "left"
            return False
        if worker.state in ("starting", "ready"):
            worker.state = "left"
        else:
            worker.dead = True
        return True

    def publish(self, members: Iterable[int]) -> None:
        """Make `members` the next generation; former members that are not in it leave."""
        members = set(members)
        for worker in self.workers.values():
            if worker.worker_id in members:
                worker.state = "member"
            elif worker.state in ("member", "leaving"):
                worker.state = "left" if worker.dead else "leaving"

    def home_first(self, members: Iterable[int]) -> tuple[int, ...]:
        """The workers in rank order, those of the driver's machine first: rank 0 writes the run's files, which belong there."""
        return tuple(sorted(members, key=lambda worker_id: self.workers[worker_id].machine > 0))

    def settle(self) -> None:
        """The generation has started: members of the previous one are no longer needed."""
        for worker in self.workers.values():
            if worker.state == "leaving":
                worker.state = "left"

    def forget_the_dead(self) -> None:
        for worker in self.workers.values():
            if worker.gone:
                worker.state, worker.dead = "left", False

    def mark_all_gone(self) -> None:
        """The fork server is gone and all of its workers with it."""
        for worker in self.workers.values():
            worker.state, worker.dead, worker.gone = "left", False, True

    def those(self, *states: membership.State) -> list[int]:
        """Ids of the workers alive in one of these states."""
        return [s.worker_id for s in self.alive() if s.state in states]

    def alive(self) -> list[WorkerProcess]:
        return [s for s in self.workers.values() if not s.gone]

    def on(self, machine: int) -> list[WorkerProcess]:
        return [s for s in self.alive() if s.machine == machine]

    def holding(self) -> tuple[Worker, ...]:
        """One entry for each process that is forked here; of the others the host is told that they are being forked."""
        return tuple(Worker(s.slot.id, s.pid, s.ticks) for s in self.on(0) if s.pid)

    def facts(self) -> tuple[membership.WorkerFacts, ...]:
        matter = (s for s in self.workers.values() if not s.gone or (s.dead and s.state in ("member", "leaving")))
        return tuple(membership.WorkerFacts(s.worker_id, s.slot.id, s.state, s.dead, s.ready_at) for s in matter)

    def _command(self, machine: int, command: Fork | Kill) -> None:
        """A fork server that has just died hears nothing; its driver is about to see that, and all that it was told is void then."""
        if machine:
            return self._elsewhere.command(machine, command)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._here.commands.send(encode(command))
        return None
