"""Random schedules of slots and deaths against the fixed run: every hash must be equal. `python -m benchmarks.exactness [--quick]`.

A schedule grants other slots at random steps (grow, shrink, move, suspend) and lets processes end or stop (SIGSTOP) at random steps and
phases: workers of any rank, the driver, the fork server, or several at once (see tests/engine/faults.py). Compared are the final weights
with the optimizer's state, every step's metrics, every validation, and that the journal has each line once. All runs are forked from one
warm process, so a schedule takes about a second. `--seed N` replays from there, `--count N`, `--seconds N`. With `--machines N` the slots
are those of so many machines, of which whole ones may be lost, their remote agents and bridges too. With `--link 1gbit` (as root) a cable
of that rate leads to all but the first, and is pulled out for a while.

With `--programs` not one script is played but random ones, which cross what users' scripts do (see `benchmarks._programs`), each on some
schedules. One that ends with a sentence that refuses it must be refused on every schedule.

With `--sharded` workers share the optimizer's step out, every second time with the parameters in common, and die in the midst of that too;
the fixed run has one worker, which cannot. By what way gradients meet is drawn then for each schedule, and on how many of the machines it
is played.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks import report
from benchmarks._programs import Program, program
from benchmarks._stage import REFUSED, Stage, staged
from tests.engine.faults import DRIVER_PHASES, PHASES, SHARDED_PHASES
from tests.engine.scripts import SMALL
from training_runtime.elastic.job import COLLECTIVE, SEGMENT

STEPS_PER_EPOCH, EPOCHS = 6, 6
STEPS = STEPS_PER_EPOCH * EPOCHS
OPTIMIZERS = ("SGD", "Nesterov", "Adam", "Adadelta", "Clipped")
SHARDED_OPTIMIZERS = ("SGD", "Adam", "Adadelta")
SHARDED = """
import functools as _functools
import fabric_model as _fabric_model
_fabric_model.FabricModel.train = _functools.partialmethod(_fabric_model.FabricModel.train, {}=True)
"""
ASKED = ("shard_optimizer", "shard_parameters")  # by the seed
NEVER_SHARDED = ("edt.elastic", "fn_step_train", "register_step_", "foreach=True", "fused=True", "Adafactor", "torch.optim.Optimizer)")
PLAYS = 3  # schedules of each random program


@dataclass(frozen=True)
class Kind:
    """What cases are made of: on so many `machines`, with a `cable`, with the optimizer's step shared out; of programs that are `loops`, or
    have the `piece` of that name, only."""

    machines: int = 1
    cable: bool = False
    sharded: bool = False
    loops: bool = False
    piece: str = ""


@dataclass(frozen=True)
class Case:
    """A script, and the schedule that it is played on. Cases with one `key` have the same fixed run."""

    seed: int
    script: str
    arguments: tuple[str, ...]
    job: dict[str, Any]
    key: object
    shown: str


def prelude(seed: int) -> str:
    """What has a script share out what it would not by itself."""
    return SHARDED.format(ASKED[seed % len(ASKED)])


def schedule(seed: int, *, sharded: bool = False) -> dict[str, Any]:
    """A random job and what happens to it. Twenty in a row share the job, and so the fixed run that they are compared with."""
    shared, rng = random.Random(f"job {seed // 20}"), random.Random(seed)
    engines = shared.choice((1, 2, 3, 4, 4, 5, 7))

    def slots() -> tuple[int, ...]:
        return tuple(rng.sample(range(6), rng.randint(1, min(6, engines + 1))))

    changes = [(rng.randint(1, STEPS - 3), slots()) for _ in range(rng.choice((0, 1, 2, 3, 5)))]
    if rng.random() < 0.15:  # suspended for a while
        changes.append((rng.randint(1, STEPS - 3), ()))
    phases = PHASES + 3 * SHARDED_PHASES if sharded else PHASES
    faults = [fault(rng, STEPS, phases=phases) for _ in range(rng.choice((0, 1, 1, 2, 2, 3)))]
    return {
        "optimizer": shared.choice(SHARDED_OPTIMIZERS if sharded else OPTIMIZERS),
        "engines": engines,
        "checkpoint": rng.choice((0, 1, 3)),
        "changes": [(0, slots()), *sorted(changes)],
        "faults": faults,
    }


def fault(rng: random.Random, steps: int, *, stops: float = 0.1, phases: tuple[str, ...] = PHASES) -> dict[str, Any]:
    """Somebody's death, or standstill (`stops` of all). `strike`: from outside, to these at once; else by themselves, in a phase."""
    step = rng.randint(1, steps)
    how = rng.random()
    if how < 0.15:
        return {"phase": rng.choice(DRIVER_PHASES), "step": step}
    if how < 0.25:
        victims = rng.choice((["fork server"], ["driver", "worker"], ["driver", "fork server"], ["workers"], ["driver", "workers"]))
        return {"phase": "outside", "step": step, "strike": victims}
    number = "SIGSTOP" if how < 0.25 + stops else "SIGKILL"
    return {"phase": rng.choice(phases), "step": step, "rank": rng.randint(0, 3), "signal": number}


def arguments_of(job: dict[str, Any]) -> tuple[str, ...]:
    engines = job["engines"]
    samples = STEPS_PER_EPOCH * 4 * engines - 3 * engines - 1  # the last step of an epoch is not full
    return ("--epochs", str(EPOCHS), "--samples", str(samples), "--engines", str(engines), "--optimizer", job["optimizer"])


def elsewhere(faults: list[dict[str, Any]], rng: random.Random, *, cable: bool) -> list[dict[str, Any]]:
    """What only a run on several machines knows."""
    kinds = ("bridge", "remote agent", "its bridge", "its fork server", "machine", "remote agent stops", *(["cable"] * 6 * cable))
    return faults + [{"phase": "outside", "step": rng.randint(1, STEPS), "strike": [rng.choice(kinds)]} for _ in range(rng.randint(0, 2))]


def place(seed: int, kind: Kind) -> dict[str, Any]:
    """Where a schedule with the optimizer's step shared out is played."""
    rng = random.Random(f"place {seed}")
    return {"reduce": rng.choice((SEGMENT, COLLECTIVE)), "machines": rng.randint(1, kind.machines)}


def cases(first: int, kind: Kind) -> Iterator[Case]:
    """The schedules of one script from this seed on."""
    for seed in itertools.count(first):
        script = prelude(seed) + SMALL if kind.sharded else SMALL
        job = schedule(seed, sharded=kind.sharded) | (place(seed, kind) if kind.sharded else {})
        if job.get("machines", kind.machines) > 1:
            job["faults"] = elsewhere(job["faults"], random.Random(f"machines {seed}"), cable=kind.cable)
        arguments = arguments_of(job)
        yield Case(seed, script, (*arguments, "--checkpoint", str(job["checkpoint"])), job, arguments, str(job))


def programs(first: int, kind: Kind) -> Iterator[Case]:
    """Random programs, each on PLAYS schedules."""
    for seed in itertools.count(first):
        made = program(seed // PLAYS)
        if (kind.loops and "loop" not in made.features) or (kind.piece and kind.piece not in made.features):
            continue
        if kind.sharded and any(never in made.text for never in NEVER_SHARDED):
            continue
        job = short_schedule(seed, made, sharded=kind.sharded) | (place(seed, kind) if kind.sharded else {})
        yield Case(
            seed, prelude(seed) + made.text if kind.sharded else made.text, (), job, made.seed, f"program {made.seed} {made.features} {job}"
        )


def short_schedule(seed: int, made: Program, *, sharded: bool = False) -> dict[str, Any]:
    """What happens to a program of few steps: other members at steps at which they are waited for, and faults."""
    rng = random.Random(f"short {seed}")
    most = min(4, made.engines + 1)

    def slots(other_than: tuple[int, ...] = ()) -> tuple[int, ...]:
        while set(found := tuple(rng.sample(range(4), rng.randint(1, most)))) == set(other_than):
            pass
        return found

    changes = [(0, slots())]
    for step in sorted(rng.sample(range(1, made.steps - 1), rng.choice((0, 1, 1, 2, 2, 3)))):
        changes.append((step, () if rng.random() < 0.2 else slots(changes[-1][1] or (0,))))
    phases = PHASES + 3 * SHARDED_PHASES if sharded else PHASES
    faults = [fault(rng, made.steps, stops=0.02, phases=phases) for _ in range(rng.choice((0, 0, 1, 1, 2)))]
    return {"changes": changes, "faults": faults, "holds": [step + 1 for step, _ in changes[1:]]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--machines", type=int, default=1, help="on which the slots are")
    parser.add_argument("--link", help="the rate of a cable between them, as tc(8) writes it")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this long, whatever the count")
    parser.add_argument("--programs", action="store_true", help="random scripts")
    parser.add_argument("--loops", action="store_true", help="of these only such as have a training step of their own")
    parser.add_argument("--piece", default="", help="of these only such as have the piece of this name (benchmarks/_programs/pieces.py)")
    parser.add_argument("--sharded", action="store_true", help="with the optimizer's step shared out over the workers")
    given = parser.parse_args()
    kind = Kind(given.machines, bool(given.link), given.sharded, given.loops, given.piece)
    count: Counter[str] = Counter()
    began = time.monotonic()
    with staged(given.machines, given.link) as stage:
        found = (programs if given.programs or given.loops or given.piece else cases)(given.seed, kind)
        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C: the figures so far
            play(stage, itertools.islice(found, given.count or (12 if given.quick else 2000)), count, until=began + given.seconds)
    names = ("schedules", "programs", "generations", "redone", "drivers", "refused", "differences")
    columns = ("schedules", "scripts", "generations", "steps redone", "drivers killed", "refused", "differences", "time")
    report.table("Exactness", columns, [(*(count[name] for name in names), f"{time.monotonic() - began:.0f} s")])
    kept = {name: count[name] for name in ("schedules", "programs", "refused", "differences")}
    report.finish("exactness", {**kept, "last_seed": given.seed + count["schedules"] - 1})


def play(stage: Stage, found: Iterator[Case], count: Counter[str], *, until: float) -> None:
    fixed: dict[object, tuple[object, ...]] = {}
    for case in found:
        if time.monotonic() > until:
            break
        if case.key not in fixed:
            fixed = {case.key: fixed_run(stage, case)}
            count["programs"] += 1
        compare(stage, case, fixed[case.key], count)
        count["schedules"] += 1


def fixed_run(stage: Stage, case: Case) -> tuple[object, ...]:
    """What the script gives on one slot that nothing happens to."""
    job = {**case.job, "faults": [], "changes": [(0, (0,))], "holds": []}
    try:
        return stage.play(case.script, case.arguments, job, machines=1)[0]
    except AssertionError as error:
        return (f"on one slot: {error}",)


def compare(stage: Stage, case: Case, fixed: tuple[object, ...], count: Counter[str]) -> None:
    """Play the case; count and print a difference."""
    try:
        found, changes, attempts = stage.play(case.script, case.arguments, case.job)
        count["generations"] += len(changes)
        count["redone"] += sum(g.redone for g in changes)
        count["drivers"] += attempts - 1
    except AssertionError as error:
        found = (str(error),)
    if found == fixed and len(found) > 1:
        count["refused"] += found[0] == REFUSED
        return
    count["differences"] += 1
    what = [name for name, a, b in zip(("weights", "steps", "tests"), found, fixed, strict=False) if a != b]
    said = [each[-1] for each in (fixed, found) if len(each) < 3]
    print(f"DIFFERENT: seed {case.seed} {case.shown}\n{said or what}{'' if case.script.endswith(SMALL) else case.script}", flush=True)


if __name__ == "__main__":
    main()
