"""The workers of a run as its driver knows them: who sits where, in which state. It tells the fork server to fork and to kill."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable

from training_runtime.elastic.comm.segment import Segment
from training_runtime.elastic.driver import membership
from training_runtime.elastic.driver.worker_process import WorkerProcess
from training_runtime.elastic.multinode.remote_nodes import Outposts
from training_runtime.elastic.processes.fork_server import ForkServer
from training_runtime.elastic.processes.process_handles import start_ticks
from training_runtime.protocol import SlotRef, Worker


class WorkerTable:
    """`here` has the fork server's socket, `elsewhere` are the other machines."""

    def __init__(self, here: ForkServer, elsewhere: Outposts) -> None:
        self._here, self._elsewhere = here, elsewhere
        self.seated: dict[int, WorkerProcess] = {}

    def __getitem__(self, seat: int) -> WorkerProcess:
        return self.seated[seat]

    def start(self, slot: SlotRef, machine: int, *, segment: Segment, avoid: set[int], begin: int, after: int, workers: int) -> None:
        """Have a worker forked for `slot`, on a seat of its machine that is none of `avoid`; it will be one of `workers`. Where no seat is
        free yet, nothing: it is asked for again."""
        seats = segment.layout.seats_of(machine)
        seat = next((i for i in seats if i not in avoid and (i not in self.seated or self.seated[i].gone)), None)
        if seat is not None:
            segment.clear_seat(seat)
            self.seated[seat] = WorkerProcess(seat, slot, machine, "starting")
            place = {"seat": seat, "slot": slot.id, "index": slot.index, "kind": slot.device}
            self._command(machine, do="fork", **place, begin=begin, after=after, workers=workers)

    def forked(self, seat: int, pid: int) -> None:
        seated = self.seated[seat]
        seated.pid, seated.ticks = pid, 0 if seated.machine else start_ticks(pid)

    def ready(self, seat: int, now: float) -> None:
        if self.seated[seat].state == "starting":
            self.seated[seat].state, self.seated[seat].ready_at = "ready", now

    def retires(self, seat: int) -> None:
        """A member that has done all there was for it to do."""
        self.seated[seat].state = "left"

    def gives_up(self, seat: int) -> None:
        """A newcomer has asked for the state often enough and goes. If it is a member by now, others wait for it: then that is a death."""
        if self.seated[seat].state in ("starting", "ready"):
            self.seated[seat].state = "left"

    def kill(self, seats: Iterable[int]) -> None:
        for seat in seats:
            self.seated[seat].killed = True
            self._command(self.seated[seat].machine, do="kill", seat=seat)

    def discard(self, seats: Iterable[int]) -> None:
        """End workers that never became members."""
        for seat in seats:
            self.seated[seat].state = "left"
            self.kill((seat,))

    def exited(self, seat: int, code: int, *, said_goodbye: bool, over: bool) -> bool:
        """A worker is reaped, so its slot is free; whether that was a death. `over`: the training has ended, nobody is needed any more."""
        seated = self.seated[seat]
        seated.gone = True
        leaves = seated.state == "left" or (seated.state == "leaving" and said_goodbye and code == 0)
        if over or leaves:
            seated.state = "left"
            return False
        if seated.state in ("starting", "ready"):
            seated.state = "left"
        else:
            seated.dead = True
        return True

    def publish(self, members: Iterable[int]) -> None:
        """`members` make the next generation; who was in the last one and is not in it, leaves."""
        members = set(members)
        for seated in self.seated.values():
            if seated.seat in members:
                seated.state = "member"
            elif seated.state in ("member", "leaving"):
                seated.state = "left" if seated.dead else "leaving"

    def settle(self) -> None:
        """The generation works: who was leaving is not needed any more."""
        for seated in self.seated.values():
            if seated.state == "leaving":
                seated.state = "left"

    def forget_the_dead(self) -> None:
        for seated in self.seated.values():
            if seated.gone:
                seated.state, seated.dead = "left", False

    def bury_all(self) -> None:
        """The fork server is gone and all of its workers with it."""
        for seated in self.seated.values():
            seated.state, seated.dead, seated.gone = "left", False, True

    def those(self, *states: membership.State) -> list[int]:
        """The seats of who is alive in one of these states."""
        return [s.seat for s in self.alive() if s.state in states]

    def alive(self) -> list[WorkerProcess]:
        return [s for s in self.seated.values() if not s.gone]

    def on(self, machine: int) -> list[WorkerProcess]:
        return [s for s in self.alive() if s.machine == machine]

    def holding(self) -> tuple[Worker, ...]:
        """One entry for each process that is forked here; of the others the host is told that they are being forked."""
        return tuple(Worker(s.slot.id, s.pid, s.ticks) for s in self.on(0) if s.pid)

    def facts(self) -> tuple[membership.WorkerFacts, ...]:
        matter = (s for s in self.seated.values() if not s.gone or (s.dead and s.state in ("member", "leaving")))
        return tuple(membership.WorkerFacts(s.seat, s.slot.id, s.state, s.dead, s.ready_at) for s in matter)

    def _command(self, machine: int, **command: object) -> None:
        """A fork server that has just died hears nothing; its driver is about to see that, and all that it was told is void then."""
        if machine:
            return self._elsewhere.command(machine, **command)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._here.commands.send(json.dumps(command).encode())
        return None
