"""How long one decision of the scheduler takes: `python -m benchmarks.plan [--quick]`.

Slots in machines of eight, a few hundred people, runs of all sizes; steady (the plan is carried out, nothing changed since) and after a
change (a tenth of the runs has ended and as many came); with each run on one machine, as in the studio, and spread over several. The figure
is the slowest of them at 10,000 slots and 5,000 runs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from random import Random

from training_runtime.scheduling.facts import Plan, Policy, Rules, RunFacts, SlotFacts
from training_runtime.scheduling.plan import plan

SIZES = ((100, 50), (1_000, 500), (10_000, 5_000))
SLOTS_PER_NODE = 8


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one decision: the fastest of several (what the work costs) and the median (what a busy machine makes of it)."""

    best_ms: float
    median_ms: float


def some_slots(count: int) -> list[SlotFacts]:
    return [SlotFacts(id=index, node=f"node-{index // SLOTS_PER_NODE:05d}", device="gpu") for index in range(count)]


def some_run(number: int, people: int, rng: Random) -> RunFacts:
    size = rng.choice((1, 1, 2, 4, 8, 16))
    return RunFacts(
        id=number,
        name=f"experiment-{number}",
        person=f"person-{rng.randrange(people)}",
        project=f"project-{rng.randrange(people)}",
        submitted_at=float(number),
        min_slots=rng.choice((1, 1, 1, 2)),
        max_slots=max(2, size),
        engines=max(2, size),
        priority=rng.choice((4000, 5000, 6000)),
        device="gpu",
        remaining_s=rng.uniform(10, 10_000),
    )


def carried_out(made: Plan, slots: Sequence[SlotFacts], runs: Sequence[RunFacts]) -> tuple[list[SlotFacts], list[RunFacts]]:
    owner = {slot: run for run, granted in made.grants.items() for slot in granted}
    node = {slot.id: slot.node for slot in slots}
    return [replace(slot, holder=owner.get(slot.id)) for slot in slots], [
        replace(run, held=held, node=node.get(min(held, default=-1))) for run in runs for held in (made.grants.get(run.id, run.held),)
    ]


def measure(slots: Sequence[SlotFacts], runs: Sequence[RunFacts], rules: Rules, *, times: int) -> Timing:
    taken = []
    for _ in range(times):
        began = time.thread_time()
        plan(slots, runs, now=0.0, rules=rules)
        taken.append((time.thread_time() - began) * 1000)
    return Timing(min(taken), statistics.median(taken))


def one_size(slot_count: int, run_count: int, policy: Policy, *, one_machine: bool, times: int) -> tuple[Timing, Timing]:
    rng = Random(7)
    people = max(2, run_count // 20)
    rules = Rules(policy=policy, one_machine=one_machine)
    slots = some_slots(slot_count)
    runs = [some_run(number, people, rng) for number in range(run_count)]
    slots, runs = carried_out(plan(slots, runs, now=0.0, rules=rules), slots, runs)
    steady = measure(slots, runs, rules, times=times)
    gone = run_count // 10
    changed = [*runs[gone:], *(some_run(number, people, rng) for number in range(run_count, run_count + gone))]
    return steady, measure(slots, changed, rules, times=times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    times = 7 if parser.parse_args().quick else 25
    print(f"{'policy':<27}{'slots':>7}{'runs':>7}{'steady, best':>15}{'median':>9}{'changed, best':>15}{'median':>9}   (ms)")
    figures = {}
    policies: tuple[Policy, ...] = ("fair_share", "priority")
    for policy, one_machine in product(policies, (True, False)):
        name = policy if one_machine else f"{policy}, runs spread"
        for slot_count, run_count in SIZES:
            steady, changed = one_size(slot_count, run_count, policy, one_machine=one_machine, times=times)
            print(
                f"{name:<27}{slot_count:>7}{run_count:>7}{steady.best_ms:>15.2f}{steady.median_ms:>9.2f}"
                f"{changed.best_ms:>15.2f}{changed.median_ms:>9.2f}"
            )
            if (slot_count, run_count) == SIZES[-1]:
                key = policy if one_machine else f"{policy}_spread"
                figures[f"{key}_steady_ms"] = round(steady.median_ms, 2)
                figures[f"{key}_changed_ms"] = round(changed.median_ms, 2)
    figures = {"plan_ms": max(figures.values()), **figures}
    print(json.dumps({"benchmark": "plan", "figures": figures, "peers": {}}))


if __name__ == "__main__":
    main()
