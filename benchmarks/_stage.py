"""Plays schedules of slots, deaths and standstills on real runs: what `benchmarks.exactness` compares.

A job's `changes` are (step, slots) pairs, its `faults` deaths and standstills (see tests/engine/faults.py); those with `strike` come from
outside. A worker waits before each of the steps `holds` until its members are to change, so that even a short run lives through it, but not
once those that the schedule ends with are there. By `reduce` its gradients meet, and `machines` are how many of the stage's it has, where
it says so.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._network import LOOPBACK, Machine, linked, plug
from tests.engine.faults import FAULTS
from tests.engine.harness import RemoteAgent, Run, Warm, in_session, until_gone
from training_runtime.elastic.processes.process_handles import is_stopped

HANG_S = 1.0
GRACE_S = 20.0  # the host's is 30 s
LIMIT_S, LIMIT_OVER_A_CABLE_S = 60.0, 150.0
OUT_S = (0.5, 4.0, 9.0, 11.0, 15.0)  # how long a cable is out; after 10 s a machine that says nothing is given up

REFUSED = "refused"

HOLD = """
import json as _json, os as _os, time as _time
from training_runtime.elastic.state import emergency_checkpoint as _orphans; from training_runtime.elastic.worker import main as _holding
from training_runtime.elastic.comm.segment import WANTED as _WANTED
_HOLDS = _json.loads(_os.environ.get("HOLDS", "[]"))
def _last_members():
    try:
        with open(_os.environ["RESULT_DIR"] + "/last-members") as file:
            return file.read()
    except OSError:
        return ""
def _hold(inner):
    def step(self, unit):
        mark = _os.environ["RESULT_DIR"] + f"/held-{unit.step}"
        if unit.step in _HOLDS and not _os.path.exists(mark):
            end = _time.monotonic() + 4
            with self._excused():
                while self.segment.words[_WANTED] <= self.group.number and _time.monotonic() < end:
                    if _os.path.exists(mark) or _last_members() == str(self.group.size):
                        break
                    _time.sleep(0.002)
                    _orphans.look(self.segment, self.context.driver)
            open(mark, "w").close()
        return inner(self, unit)
    return step
_holding.Worker._begin_step = _hold(_holding.Worker._begin_step)
"""


def outcome(run: Run) -> tuple[object, ...]:
    """Weights, steps and tests; of a run that was refused the sentence that says why."""
    lines = run.lines()
    assert [line.seq for line in lines] == list(range(1, len(lines) + 1)), "the journal's lines are not in order"
    if run.events("finished")[-1].outcome == "failed":
        said = run.events("error")[-1].message
        assert "UserError: " in said, run.tail()
        return REFUSED, said[said.index("UserError: ") :]
    return run.weights(), tuple(run.train_lines()), tuple(run.test_lines())


class Machines:
    """Those of one run: slot s is on machine s modulo their number. Each but the first is what its node host would make of it."""

    def __init__(self, run: Run, count: int, *, away: Warm, home: Machine) -> None:
        self._run, self._home = run, home
        self._agents = [Away(run, f"agent-{i}", warm=away) for i in range(1, count)]
        self._back = 0.0  # when the cable is put in again

    def members(self, *slots: int) -> None:
        count = len(self._agents) + 1
        for i, machine in enumerate((self._run, *self._agents)):
            machine.members(*(slot for slot in slots if slot % count == i))

    def holding(self) -> set[int]:
        """Slots that have a worker."""
        return {slot for machine in (self._run, *self._agents) for slot in machine.holding}

    def look(self) -> None:
        for agent in self._agents:
            agent.look()
        if self._back and time.monotonic() > self._back:
            self._plug(out_s=0)

    def _plug(self, *, out_s: float) -> None:
        """Pull the cable out for so long; 0: put it in again."""
        plug(self._home, out=out_s > 0)
        self._back = time.monotonic() + out_s if out_s else 0.0

    def strike(self, victim: str) -> bool:
        """Whether it was one that only a run on several machines knows."""
        pids: list[int] = []
        if victim == "bridge":
            pids = [pid for pid in children(self._run.pid) if pid not in {parent(worker) for worker in self._run.workers.values()}]
        elif victim == "cable":
            self._plug(out_s=OUT_S[self._run.step() % len(OUT_S)])
        elif not victim.startswith(("remote agent", "its", "machine")):
            return False
        elif self._agents:
            agent = self._agents[0]
            fork_servers = {parent(worker) for worker in agent.workers.values()}
            if victim == "machine":
                pids = in_session(agent.pid)
            elif victim.startswith("remote agent"):
                pids = [agent.pid]
            else:
                pids = [pid for pid in children(agent.pid) if (pid in fork_servers) == (victim == "its fork server")]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP if victim == "remote agent stops" else signal.SIGKILL)
        return True

    def close(self) -> None:
        for agent in self._agents:
            agent.close()
        if self._back:
            self._plug(out_s=0)


class Away(RemoteAgent):
    """A remote agent that is started again whenever it has not ended for good. One that shows nothing for long is ended, as its host
    would."""

    wanted: tuple[int, ...] = ()
    stopped_at = 0.0

    def members(self, *slots: int, reason: str = "test") -> None:
        self.wanted = slots
        super().members(*slots, reason=reason)

    def look(self) -> None:
        self.pump(0)
        self.stopped_at = (self.stopped_at or time.monotonic()) if is_stopped(self.pid) else 0.0
        if self.stopped_at and time.monotonic() > self.stopped_at + HANG_S:
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            if self.warm.wait(self.pid, 0.001):
                clear(self.pid)
                self.again()
                self.members(*self.wanted)

    def close(self) -> None:
        for pid in in_session(self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        super().close()


def parent(pid: int) -> int:
    """0 where it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def children(pid: int) -> list[int]:
    return [each for each in in_session(pid) if parent(each) == pid]


def strike(run: Run, machines: Machines, victims: list[str]) -> None:
    """Kill several processes in the same instant."""
    if machines.strike(victims[0]):
        return
    workers = list(run.workers.values())
    pids: list[int] = []
    for victim in victims:
        if victim == "driver":
            pids.append(run.pid)
        elif workers and victim == "fork server":
            pids += [pid for pid in (parent(workers[0]),) if pid]
        else:
            pids += workers if victim == "workers" else workers[:1]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def clear(session: int) -> None:
    """Give workers that have lost their driver time to write down what they know, then end whoever is left, as the host does: one may
    have been stopped over it."""
    end = time.monotonic() + GRACE_S
    while in_session(session) and time.monotonic() < end:
        select.select([], [], [], 0.005)
    for pid in in_session(session):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until_gone(session)


def tell_last(run: Run, machines: Machines, wanted: tuple[int, ...]) -> None:
    """Tell workers that wait for a change how many they are in the end, once these and no others are there."""
    count = min(len(wanted), run.events("started")[-1].engines) if run.events("started") else 0
    there, told = machines.holding(), run.result_dir / "last-members"
    if count and there <= {*wanted} and len(there) == count:
        told.write_text(str(count))
    else:
        told.unlink(missing_ok=True)


def follow(run: Run, machines: Machines, job: dict[str, Any], *, limit_s: float) -> None:
    """Grant and strike at the steps of the schedule until the run ends; start the driver again where it is killed, as the host does."""
    blows = [(f["step"], ("strike", f["strike"])) for f in job["faults"] if "strike" in f]
    waiting: list[Any] = sorted([*((step, ("grant", slots)) for step, slots in job["changes"]), *blows], key=lambda each: each[0])
    wanted: tuple[int, ...] = ()
    while True:
        if run.pid in run.warm.codes:
            if (code := run.wait()) != -signal.SIGKILL:
                break
            clear(run.pid)
            run.again()
            machines.members(*wanted)
        while waiting and run.step() >= waiting[0][0]:
            _, (kind, what) = waiting.pop(0)
            if kind == "strike":
                strike(run, machines, what)
                continue
            suspensions = len(run.events("suspended"))
            machines.members(*what)
            wanted = what or (0,)
            if not what:  # until it is, or something else has happened
                end = time.monotonic() + 1
                while len(run.events("suspended")) == suspensions and run.pid not in run.warm.codes and time.monotonic() < end:
                    run.look(0.02)
                    machines.look()
                machines.members(*wanted)
        if not any(kind == "grant" for _, (kind, _) in waiting):
            tell_last(run, machines, wanted)
        run.look(0.02)
        machines.look()
        run.within(limit_s)
    assert code == 0 or run.events("error"), run.tail()


class Played(Run):
    """A run that notices its driver's death, and that it takes too long."""

    began = 0.0

    def start(self) -> None:
        self.began = self.began or time.monotonic()
        super().start()

    def look(self, timeout_s: float) -> None:
        """Take in what the driver says and whether it has ended."""
        self.pump(timeout_s)
        with contextlib.suppress(TimeoutError):
            self.warm.wait(self.pid, 0.001)

    def within(self, limit_s: float) -> None:
        assert time.monotonic() < self.began + limit_s, f"not within {limit_s:g} s\n{self.tail()}"


@dataclass(frozen=True)
class Stage:
    """What schedules are played on: so many machines, `home` the one of drivers. Drivers are forked from `warm`, remote agents from
    `away`."""

    warm: Warm
    away: Warm
    home: Machine
    machines: int
    limit_s: float

    def play(
        self, script: str, arguments: tuple[str, ...], job: dict[str, Any], *, machines: int | None = None
    ) -> tuple[tuple[object, ...], list[Any], int]:
        """What came of a script on the schedule of `job`, its generations, and how many drivers it took."""
        count = machines or job.get("machines", self.machines)
        with tempfile.TemporaryDirectory() as folder:
            env = {"FAULTS": json.dumps([f for f in job["faults"] if "strike" not in f]), "EDT_HANG_TIMEOUT": str(HANG_S)}
            env |= {"HOLDS": json.dumps(job.get("holds", []))}
            env |= {"EDT_ADDRESS": self.home.address} if count > 1 else {}
            env |= {"EDT_REDUCE": job["reduce"]} if "reduce" in job else {}
            prelude = FAULTS + HOLD if job.get("holds") else FAULTS
            run = Played(self.warm, Path(folder), prelude + script, *arguments, max_slots=6, env=env)
            all_of_them = Machines(run, count, away=self.away, home=self.home)
            try:
                follow(run, all_of_them, job, limit_s=self.limit_s)
                return outcome(run), run.events("generation"), run.spec.attempt
            finally:
                run.close()
                all_of_them.close()


@contextlib.contextmanager
def staged(machines: int, link: str | None) -> Iterator[Stage]:
    """`link`: the rate of the cable, if there is one."""
    with linked(link) if link else contextlib.nullcontext(LOOPBACK) as (home, other):
        warm = Warm(home.within)
        away = Warm(other.within) if link else warm
        try:
            yield Stage(warm, away, home, machines, LIMIT_OVER_A_CABLE_S if link else LIMIT_S)
        finally:
            for each in {warm, away}:
                each.close()
