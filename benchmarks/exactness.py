"""Random schedules of slots and deaths against the fixed run: every hash must be equal. `python -m benchmarks.exactness [--quick]`.

A schedule grants other slots at random steps (grow, shrink, move, suspend) and lets processes end or stop (SIGSTOP) at random steps and
phases: workers of any rank, the driver, the template, or several at once (see tests/engine/faults.py). Compared are the final weights with
the optimizer's state, every step's metrics, every validation, and that the journal has each line once. All runs are forked from one warm
process, so a schedule takes about a second. `--seed N` replays from there, `--count N`, `--seconds N`. With `--machines N` the slots are
those of so many machines, of which whole ones may be lost, their stations and relays too.
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
from pathlib import Path
from typing import Any

from benchmarks import report
from tests.engine.faults import DRIVER_PHASES, FAULTS, PHASES
from tests.engine.harness import HERE, Run, Station, Warm, in_session, until_gone
from tests.engine.scripts import SMALL
from training_runtime.elastic.kinship import is_stopped

STEPS_PER_EPOCH, EPOCHS = 6, 6
STEPS = STEPS_PER_EPOCH * EPOCHS
OPTIMIZERS = ("SGD", "Nesterov", "Adam", "Adadelta", "Clipped")
HANG_S = 1.0
GRACE_S = 20.0  # the host's is 30 s


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


def elsewhere(faults: list[dict[str, Any]], rng: random.Random) -> list[dict[str, Any]]:
    """Deaths that only a run on several machines knows."""
    kinds = ("relay", "station", "its relay", "its template", "machine", "station stops")
    return faults + [{"phase": "outside", "step": rng.randint(1, STEPS), "strike": [rng.choice(kinds)]} for _ in range(rng.randint(0, 2))]


class Machines:
    """Those of one run: slot s is on machine s modulo their number. Each but the first is what its node host would make of it."""

    def __init__(self, run: Run, count: int) -> None:
        self._run = run
        self._stations = [Away(run, f"station-{i}") for i in range(1, count)]

    def members(self, *slots: int) -> None:
        count = len(self._stations) + 1
        for i, machine in enumerate((self._run, *self._stations)):
            machine.members(*(slot for slot in slots if slot % count == i))

    def look(self) -> None:
        for station in self._stations:
            station.look()

    def strike(self, victim: str) -> bool:
        """Whether it was one that only a run on several machines knows."""
        pids: list[int] = []
        if victim == "relay":
            pids = [pid for pid in children(self._run.pid) if pid not in {parent(worker) for worker in self._run.workers.values()}]
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


def follow(run: Run, machines: Machines, job: dict[str, Any]) -> None:
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
        run.within(60.0)
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


def play(warm: Warm, job: dict[str, Any], machines: int = 1) -> tuple[tuple[object, ...], list[Any], int]:
    with tempfile.TemporaryDirectory() as folder:
        env = {"FAULTS": json.dumps([f for f in job["faults"] if "strike" not in f]), "EDT_HANG_TIMEOUT": str(HANG_S)}
        env |= HERE if machines > 1 else {}
        arguments = (*arguments_of(job), "--checkpoint", str(job["checkpoint"]))
        run = Played(warm, Path(folder), FAULTS + SMALL, *arguments, max_slots=6, env=env)
        all_of_them = Machines(run, machines)
        try:
            follow(run, all_of_them, job)
            return outcome(run), run.events("generation"), run.spec.attempt
        finally:
            run.close()
            all_of_them.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--machines", type=int, default=1, help="on which the slots are")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this long, whatever the count")
    given = parser.parse_args()
    warm, fixed = Warm(), {}
    differences: list[int] = []
    count: Counter[str] = Counter()
    began = time.monotonic()
    try:
        for seed in range(given.seed, given.seed + (given.count or (12 if given.quick else 2000))):
            if time.monotonic() > began + given.seconds:
                break
            job = schedule(seed)
            if given.machines > 1:
                job["faults"] = elsewhere(job["faults"], random.Random(f"machines {seed}"))
            key = arguments_of(job)
            if key not in fixed:
                fixed[key] = play(warm, {**job, "faults": [], "changes": [(0, (0,))]})[0]
            count["schedules"] += 1
            try:
                found, changes, attempts = play(warm, job, given.machines)
                count["generations"] += len(changes)
                count["redone"] += sum(g.redone for g in changes)
                count["drivers"] += attempts - 1
            except AssertionError as error:
                found = (str(error),)
            if found != fixed[key]:
                differences.append(seed)
                what = [name for name, a, b in zip(("weights", "steps", "tests"), found, fixed[key], strict=False) if a != b]
                print(f"DIFFERENT: seed {seed} {job}\n{found[0] if len(found) == 1 else what}", flush=True)
    finally:
        warm.close()
    row = (*(count[name] for name in ("schedules", "generations", "redone", "drivers")), len(differences))
    columns = ("schedules", "generations", "steps redone", "drivers killed", "differences", "time")
    report.table("Exactness", columns, [(*row, f"{time.monotonic() - began:.0f} s")])
    report.finish(
        "exactness", {"schedules": count["schedules"], "differences": len(differences), "last_seed": given.seed + count["schedules"] - 1}
    )


if __name__ == "__main__":
    main()
