"""What sharing costs and brings: `python -m benchmarks.simulate [--traces FOLDER [--pollux FOLDER]] [--quick] [--plot FILE.svg]`.

Replays workloads through these policies: static first come, first served (a job gets all it asked for or waits), Tiresias (the same, but
preempting those that have had much service), and the studio's fair share and priority, which are the very function the studio calls: with
jobs that may be spread over machines, as the peers' are, and with each on one machine, as the studio runs them today.
With --traces the eight Philly workloads on 64 slots in 16 machines of 4, with measured profiles, and (without --quick) the trace of 30,940
jobs; without it generated workloads of the same shape. With --pollux also the eight workloads of Pollux's authors, which the published
figures belong to. All are read where they are and never copied. A change of members costs what benchmarks.pause has measured at worst.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks._figures import Figures, alone_s, figures, mean, percentile
from benchmarks._plot import over_time, share_done, write_svg
from benchmarks._simulator import Outcome, simulate
from benchmarks._workload import Workload, generated, philly, philly_30940, pollux

OURS = ("fair_share", "priority", "fair_share_one_machine")
POLICIES = ("static", "tiresias", *OURS)
RESTART_S = 30.0  # what a change costs a peer that restarts from a checkpoint; Pollux charges as much, Sia 15 to 250 s
COLUMNS = ("avg_jct_h", "p99_jct_h", "makespan_h", "busy_share", "jain", "ftf_under_2_share", "realloc_loss_share")

# The last line of `python -m benchmarks.pause`, from the run that docs/scheduling.md names.
MEASURED_PAUSE = Path(__file__).parent / "measured" / "pause.json"

# Reported on Pollux's own workloads (Qiao et al., OSDI 2021, table 2): average and p99 completion time and makespan, in hours.
PUBLISHED = {
    "Optimus with an oracle, tuned jobs": (1.5, 15, 20),
    "Tiresias, tuned jobs": (1.2, 15, 24),
    "Optimus with an oracle, untuned jobs": (2.7, 22, 28),
    "Tiresias, untuned jobs": (2.8, 25, 31),
    "Pollux (changes the batch size)": (0.76, 11, 16),
}


def measured_change_s() -> float:
    """The longest pause at a change of members that was measured, with the largest model, in seconds."""
    figures = json.loads(MEASURED_PAUSE.read_text(encoding="utf-8"))["figures"]
    return float(max(value for name, value in figures.items() if name.endswith("_max"))) / 1000


def replay(workloads: Iterable[Workload], policy: str, *, change_s: float, every_s: float = 0.0) -> list[Outcome]:
    return [simulate(workload, policy, change_s=change_s, every_s=every_s) for workload in workloads]


def change_cost(policy: str, change_s: float) -> float:
    """What a change of members costs under a policy: nothing where there is none, ours as measured, a restart elsewhere."""
    return 0.0 if policy == "static" else change_s if policy in OURS else RESTART_S


def row(name: str, made: Figures) -> str:
    return f"{name:<38}" + "".join(f"{getattr(made, column):>{width(column)}.4f}" for column in COLUMNS)


def width(column: str) -> int:
    return max(9, len(column) + 2)


def compare(title: str, workloads: Sequence[Workload], *, change_s: float, every_s: float = 0.0) -> dict[str, list[Outcome]]:
    """Replay through every policy and print the averages."""
    print(f"\n{title}\n{'':<38}" + "".join(f"{column:>{width(column)}}" for column in COLUMNS))
    made = {}
    for policy in POLICIES:
        began = time.perf_counter()
        made[policy] = replay(workloads, policy, change_s=change_cost(policy, change_s), every_s=every_s)
        decisions = sum(outcome.decisions for outcome in made[policy])
        spent = time.perf_counter() - began
        print(row(policy, mean([figures(each) for each in made[policy]])) + f"   {decisions} decisions in {spent:.1f} s", flush=True)
    return made


def bound(workloads: Sequence[Workload]) -> None:
    """What no scheduler can beat that leaves the jobs their batch and their size: every job alone on an empty cluster."""
    alone = [sorted(alone_s(job, workload.slots_per_node) / 3600 for job in workload.jobs) for workload in workloads]
    average = sum(sum(each) / len(each) for each in alone) / len(alone)
    p99 = sum(percentile(each, 0.99) for each in alone) / len(alone)
    print(f"{'every job alone, for comparison':<38}{average:>{width('avg_jct_h')}.4f}{p99:>{width('p99_jct_h')}.4f}")


def dearer_changes(workloads: Sequence[Workload], change_s: float) -> None:
    """The same fair share, if a change of members cost what it costs elsewhere."""
    print("\nfair share by what a change of members costs")
    for cost in (change_s, 1.0, RESTART_S, 120.0):
        print(row(f"{cost:g} s", mean([figures(each) for each in replay(workloads, "fair_share", change_s=cost)])), flush=True)


def draw(path: Path, made: dict[str, list[Outcome]]) -> None:
    taken = {
        policy: [(each.ended_s[job.id] - job.submitted_s) / 3600 for each in outcomes for job in each.workload.jobs]
        for policy, outcomes in made.items()
    }
    held = {policy: [(t / 3600, float(busy)) for t, busy, _ in outcomes[0].ledger.timeline] for policy, outcomes in made.items()}
    waiting = {policy: [(t / 3600, float(wait)) for t, _, wait in outcomes[0].ledger.timeline] for policy, outcomes in made.items()}
    first = made["static"][0].workload.name
    panels = [
        share_done("Jobs done", taken),
        over_time(f"Waiting ({first})", "jobs that hold nothing", waiting),
        over_time(f"Held ({first})", "slots", held),
    ]
    write_svg(path, panels)
    print(f"\ndrawn to {path}")


def published(arguments: argparse.Namespace) -> dict[str, list[Outcome]]:
    """The published figures, under what the same policies make of the workloads they belong to, where those are given."""
    made: dict[str, list[Outcome]] = {}
    if arguments.pollux:
        numbers = range(1, 9)
        workloads = [pollux(arguments.traces / "profiles", arguments.pollux, number, people=arguments.people) for number in numbers]
        made = compare("Pollux's own eight workloads", workloads, change_s=arguments.change_s)
        bound(workloads)
    print("\npublished on Pollux's own eight workloads (simulated by its authors; avg, p99, makespan in hours)")
    for name, hours in PUBLISHED.items():
        print(f"{name:<38}" + "".join(f"{each:>11.2f}" for each in hours))
    return made


def eight_workloads(folder: Path, people: int | None) -> list[Workload]:
    return [philly(folder, number, people=people) for number in range(1, 9)]


def generated_workloads(people: int | None) -> list[Workload]:
    return [generated(seed, jobs=160, nodes=16, slots_per_node=4, people=people or 160, load=1.2) for seed in range(1, 5)]


def shapes(arguments: argparse.Namespace) -> Callable[[int | None], list[Workload]]:
    return (lambda people: eight_workloads(arguments.traces, people)) if arguments.traces else generated_workloads


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, help="folder with the traces and profiles; without it workloads are generated")
    parser.add_argument("--pollux", type=Path, help="folder with workload-1.csv to workload-8.csv of Pollux's authors; needs --traces")
    parser.add_argument("--quick", action="store_true", help="the main comparison only")
    parser.add_argument("--people", type=int, default=16, help="people among whom the jobs are dealt out (default 16)")
    parser.add_argument("--change-s", type=float, help="seconds that a change of members costs a job of ours (default: as measured)")
    parser.add_argument("--plot", type=Path, help="write a picture here (SVG)")
    arguments = parser.parse_args()
    if arguments.pollux and not arguments.traces:
        parser.error("--pollux needs --traces: the measured profiles are there")
    if arguments.change_s is None:
        arguments.change_s = measured_change_s()
    return arguments


def main() -> None:
    arguments = parsed()
    workloads_for = shapes(arguments)
    workloads = workloads_for(arguments.people)
    print(f"{len(workloads)} workloads, {len(workloads[0].jobs)} jobs each, {arguments.people} people, {arguments.change_s} s a change")
    made = compare("averages over the workloads", workloads, change_s=arguments.change_s)
    bound(workloads)
    theirs = published(arguments) if arguments.traces else {}
    if arguments.plot:
        draw(arguments.plot, made)
    if not arguments.quick:
        compare("every job its own person's", workloads_for(None), change_s=arguments.change_s)
        dearer_changes(workloads, arguments.change_s)
        if arguments.traces:
            large = philly_30940(arguments.traces, nodes=128, slots_per_node=8)
            title = f"{len(large.jobs)} jobs on 1,024 slots in 128 machines of 8, a decision at most every 10 s"
            compare(title, [large], change_s=arguments.change_s, every_s=10.0)
    peers = {"published_avg_p99_makespan_h": PUBLISHED if arguments.traces else {}, "on_pollux_workloads": averages(theirs)}
    ours = averages(made)
    peers["tiresias_here"] = ours.pop("tiresias")
    print(json.dumps({"benchmark": "simulate", "figures": ours, "peers": peers}))


def averages(made: dict[str, list[Outcome]]) -> dict[str, dict[str, float]]:
    means = {policy: asdict(mean([figures(each) for each in outcomes])) for policy, outcomes in made.items()}
    return {policy: {key: round(value, 6) for key, value in average.items()} for policy, average in means.items()}


if __name__ == "__main__":
    main()
