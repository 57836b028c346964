"""Random schedules of slots and deaths against the fixed run: every hash must be equal. `python -m benchmarks.exactness [--quick]`.

A schedule grants other slots at random steps (grow, shrink, move, suspend) and lets processes end or stop (SIGSTOP) at random steps and
phases: workers of any rank, the driver, the template, or several at once (see tests/engine/faults.py). Compared are the final weights with
the optimizer's state, every step's metrics, every validation, and that the journal has each line once. All runs are forked from one warm
process, so a schedule takes about a second. `--seed N` replays from there, `--count N`, `--seconds N`. With `--machines N` the slots are
those of so many machines, of which whole ones may be lost, their stations and relays too. With `--link 1gbit` (as root) a cable of that
rate leads to all but the first, and is pulled out for a while.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import select
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks._network import LOOPBACK, Machine, linked, plug
from tests.engine.faults import DRIVER_PHASES, FAULTS, PHASES
from tests.engine.harness import Run, Station, Warm, in_session, until_gone
from tests.engine.scripts import SMALL
from training_runtime.elastic.kinship import is_stopped

STEPS_PER_EPOCH, EPOCHS = 6, 6
STEPS = STEPS_PER_EPOCH * EPOCHS
OPTIMIZERS = ("SGD", "Nesterov", "Adam", "Adadelta", "Clipped")
HANG_S = 1.0
GRACE_S = 20.0  # the host's is 30 s
LIMIT_S, LIMIT_OVER_A_CABLE_S = 60.0, 150.0
OUT_S = (0.5, 4.0, 9.0, 11.0, 15.0)  # how long a cable is out; after 10 s a machine that says nothing is given up


def schedule(seed: int) -> dict[str, Any]:
    """A random job and what happens to it. Twenty in a row share the job, and so the fixed run that they are compared with."""
    shared, rng = random.Random(f"job {seed // 20}"), random.Random(seed)
    engines = shared.choice((1, 2, 3, 4, 4, 5, 7))

    def slots() -> tuple[int, ...]:
        return tuple(rng.sample(range(6), rng.randint(1, min(6, engines + 1))))

    changes = [(rng.randint(1, STEPS - 3), slots()) for _ in range(rng.choice((0, 1, 2, 3, 5)))]
    if rng.random() < 0.15:  # suspended for a while
        changes.append((rng.randint(1, STEPS - 3), ()))
    faults = [fault(rng) for _ in range(rng.choice((0, 1, 1, 2, 2, 3)))]
    return {
        "optimizer": shared.choice(OPTIMIZERS),
        "engines": engines,
        "checkpoint": rng.choice((0, 1, 3)),
        "changes": [(0, slots()), *sorted(changes)],
        "faults": faults,
    }


def fault(rng: random.Random) -> dict[str, Any]:
    """Somebody's death or standstill. `strike`: from outside, to these at once; else by themselves, in a phase."""
    step = rng.randint(1, STEPS)
    how = rng.random()
    if how < 0.15:
        return {"phase": rng.choice(DRIVER_PHASES), "step": step}
    if how < 0.25:
        victims = rng.choice((["template"], ["driver", "worker"], ["driver", "template"], ["workers"], ["driver", "workers"]))
        return {"phase": "outside", "step": step, "strike": victims}
    number = "SIGSTOP" if how < 0.35 else "SIGKILL"
    return {"phase": rng.choice(PHASES), "step": step, "rank": rng.randint(0, 3), "signal": number}


def arguments_of(job: dict[str, Any]) -> tuple[str, ...]:
    engines = job["engines"]
    samples = STEPS_PER_EPOCH * 4 * engines - 3 * engines - 1  # the last step of an epoch is not full
    return ("--epochs", str(EPOCHS), "--samples", str(samples), "--engines", str(engines), "--optimizer", job["optimizer"])


def outcome(run: Run) -> tuple[object, ...]:
    lines = run.lines()
    assert [line.seq for line in lines] == list(range(1, len(lines) + 1)), "the journal's lines are not in order"
    return run.weights(), tuple(run.train_lines()), tuple(run.test_lines())


def elsewhere(faults: list[dict[str, Any]], rng: random.Random, *, cable: bool) -> list[dict[str, Any]]:
    """What only a run on several machines knows."""
    kinds = ("relay", "station", "its relay", "its template", "machine", "station stops", *(["cable"] * 6 * cable))
    return faults + [{"phase": "outside", "step": rng.randint(1, STEPS), "strike": [rng.choice(kinds)]} for _ in range(rng.randint(0, 2))]


class Machines:
    """Those of one run: slot s is on machine s modulo their number. Each but the first is what its node host would make of it."""

    def __init__(self, run: Run, count: int, *, away: Warm, home: Machine) -> None:
        self._run, self._home = run, home
        self._stations = [Away(run, f"station-{i}", warm=away) for i in range(1, count)]
        self._back = 0.0  # when the cable is put in again

    def members(self, *slots: int) -> None:
        count = len(self._stations) + 1
        for i, machine in enumerate((self._run, *self._stations)):
            machine.members(*(slot for slot in slots if slot % count == i))

    def look(self) -> None:
        for station in self._stations:
            station.look()
        if self._back and time.monotonic() > self._back:
            self._plug(out_s=0)

    def _plug(self, *, out_s: float) -> None:
        """Pull the cable out for so long; 0: put it in again."""
        plug(self._home, out=out_s > 0)
        self._back = time.monotonic() + out_s if out_s else 0.0

    def strike(self, victim: str) -> bool:
        """Whether it was one that only a run on several machines knows."""
        pids: list[int] = []
        if victim == "relay":
            pids = [pid for pid in children(self._run.pid) if pid not in {parent(worker) for worker in self._run.workers.values()}]
        elif victim == "cable":
            self._plug(out_s=OUT_S[self._run.step() % len(OUT_S)])
        elif not victim.startswith(("station", "its", "machine")):
            return False
        elif self._stations:
            station = self._stations[0]
            templates = {parent(worker) for worker in station.workers.values()}
            if victim == "machine":
                pids = in_session(station.pid)
            elif victim.startswith("station"):
                pids = [station.pid]
            else:
                pids = [pid for pid in children(station.pid) if (pid in templates) == (victim == "its template")]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP if victim == "station stops" else signal.SIGKILL)
        return True

    def close(self) -> None:
        for station in self._stations:
            station.close()
        if self._back:
            self._plug(out_s=0)


class Away(Station):
    """A station that is started again whenever it has not ended for good. One that shows nothing for long is ended, as its host would."""

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
        elif workers and victim == "template":
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


def follow(run: Run, machines: Machines, job: dict[str, Any], *, limit_s: float) -> None:
    """Grant and strike at the steps of the schedule; start the driver again where it is killed, as the host does."""
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
        run.look(0.02)
        machines.look()
        run.within(limit_s)
    assert code == 0, run.tail()


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
    """What schedules are played on: so many machines, `home` the one of drivers. Drivers are forked from `warm`, stations from `away`."""

    warm: Warm
    away: Warm
    home: Machine
    machines: int
    limit_s: float

    def play(self, job: dict[str, Any], *, machines: int | None = None) -> tuple[tuple[object, ...], list[Any], int]:
        count = machines or self.machines
        with tempfile.TemporaryDirectory() as folder:
            env = {"FAULTS": json.dumps([f for f in job["faults"] if "strike" not in f]), "EDT_HANG_TIMEOUT": str(HANG_S)}
            env |= {"EDT_ADDRESS": self.home.address} if count > 1 else {}
            arguments = (*arguments_of(job), "--checkpoint", str(job["checkpoint"]))
            run = Played(self.warm, Path(folder), FAULTS + SMALL, *arguments, max_slots=6, env=env)
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


def jobs(first: int, count: int, *, machines: int, cable: bool) -> Iterator[tuple[int, dict[str, Any]]]:
    """The schedules with these seeds."""
    for seed in range(first, first + count):
        job = schedule(seed)
        if machines > 1:
            job["faults"] = elsewhere(job["faults"], random.Random(f"machines {seed}"), cable=cable)
        yield seed, job


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--machines", type=int, default=1, help="on which the slots are")
    parser.add_argument("--link", help="the rate of a cable between them, as tc(8) writes it")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this long, whatever the count")
    given = parser.parse_args()
    fixed: dict[tuple[str, ...], tuple[object, ...]] = {}
    count: Counter[str] = Counter()
    began = time.monotonic()
    with staged(given.machines, given.link) as stage:
        for seed, job in jobs(given.seed, given.count or (12 if given.quick else 2000), machines=given.machines, cable=bool(given.link)):
            if time.monotonic() > began + given.seconds:
                break
            key = arguments_of(job)
            if key not in fixed:
                fixed[key] = stage.play({**job, "faults": [], "changes": [(0, (0,))]}, machines=1)[0]
            count["schedules"] += 1
            try:
                found, changes, attempts = stage.play(job)
                count["generations"] += len(changes)
                count["redone"] += sum(g.redone for g in changes)
                count["drivers"] += attempts - 1
            except AssertionError as error:
                found = (str(error),)
            if found != fixed[key]:
                count["differences"] += 1
                what = [name for name, a, b in zip(("weights", "steps", "tests"), found, fixed[key], strict=False) if a != b]
                print(f"DIFFERENT: seed {seed} {job}\n{found[0] if len(found) == 1 else what}", flush=True)
    row = [count[name] for name in ("schedules", "generations", "redone", "drivers", "differences")]
    columns = ("schedules", "generations", "steps redone", "drivers killed", "differences", "time")
    report.table("Exactness", columns, [(*row, f"{time.monotonic() - began:.0f} s")])
    last = given.seed + count["schedules"] - 1
    report.finish("exactness", {"schedules": count["schedules"], "differences": count["differences"], "last_seed": last})


if __name__ == "__main__":
    main()
