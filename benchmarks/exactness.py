"""Random schedules of slots, with deaths in random phases, against the fixed run: every hash must be equal. `python -m benchmarks.exactness
[--quick]`.

A schedule grants other slots at random steps and lets workers kill themselves at random ranks, steps and phases (see
tests/engine/faults.py). Compared are the final weights with the optimizer's state, every step's metrics and every validation. `--seed N`
replays from there, `--count N`.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import report
from tests.engine.faults import FAULTS, PHASES
from tests.engine.harness import Run, Warm
from tests.engine.scripts import SMALL

STEPS = 96
OPTIMIZERS = ("SGD", "Adam", "Adadelta")


def schedule(seed: int) -> dict[str, Any]:
    """A random job and what happens to it."""
    rng = random.Random(seed)
    engines = rng.choice((1, 2, 3, 4, 4, 5, 7))

    def slots() -> tuple[int, ...]:
        return tuple(rng.sample(range(6), rng.randint(1, min(6, engines + 1))))

    changes = sorted((rng.randint(1, STEPS - 10), slots()) for _ in range(rng.randint(0, 5)))
    if rng.random() < 0.2:  # suspended for a while
        changes = sorted([*changes, (rng.randint(1, STEPS - 10), ())])
    faults = [
        {"phase": rng.choice(PHASES), "step": rng.randint(1, STEPS), "rank": rng.randint(0, 3)} for _ in range(rng.choice((0, 1, 1, 2, 3)))
    ]
    return {"optimizer": rng.choice(OPTIMIZERS), "engines": engines, "changes": [(0, slots()), *changes], "faults": faults}


def arguments_of(job: dict[str, Any]) -> tuple[str, ...]:
    engines = job["engines"]
    samples = 8 * 4 * engines - 3 * engines - 1  # 8 steps an epoch, the last one not full
    return ("--epochs", str(STEPS // 8), "--samples", str(samples), "--engines", str(engines), "--optimizer", job["optimizer"])


def outcome(run: Run) -> tuple[object, ...]:
    return run.weights(), tuple(run.train_lines()), tuple(run.test_lines())


def play(warm: Warm, job: dict[str, Any]) -> tuple[tuple[object, ...], list[Any]]:
    with tempfile.TemporaryDirectory() as folder:
        env = {"FAULTS": json.dumps(job["faults"]), "EDT_HANG_TIMEOUT": "20"}
        run = Run(warm, Path(folder), FAULTS + SMALL, *arguments_of(job), max_slots=6, env=env)
        try:
            for step, slots in job["changes"]:
                run.until(lambda step=step: run.step() >= step or run.events("finished"), what=f"step {step}")
                run.members(*slots)
                if not slots:
                    run.until(lambda: run.events("suspended") or run.events("finished"), what="suspended")
                    run.members(0)
            code = run.wait()
            assert code == 0, run.tail()
            return outcome(run), run.events("generation")
        finally:
            run.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    count = given.count or (8 if given.quick else 1000)
    warm, fixed = Warm(), {}
    differences, generations, redone, began = [], 0, 0, time.monotonic()
    try:
        for seed in range(given.seed, given.seed + count):
            job = schedule(seed)
            key = arguments_of(job)
            if key not in fixed:
                fixed[key], _ = play(warm, {**job, "faults": [], "changes": [(0, (0,))]})
            try:
                found, changes = play(warm, job)
                generations += len(changes)
                redone += sum(g.redone for g in changes)
            except AssertionError as error:
                found = (str(error),)
            if found != fixed[key]:
                differences.append(seed)
                print(f"DIFFERENT: seed {seed} {job}\n{found[0]}", flush=True)
    finally:
        warm.close()
    rows = [(count, generations, redone, len(differences), f"{time.monotonic() - began:.0f} s")]
    report.table("Exactness", ("schedules", "generations", "steps redone", "differences", "time"), rows)
    report.finish("exactness", {"schedules": count, "differences": len(differences)})


if __name__ == "__main__":
    main()
