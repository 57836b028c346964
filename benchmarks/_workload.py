"""What is replayed: jobs with their arrival, size, length and speed, read from traces or generated. Standard library only.

The slots a job asked for become its maximum and its V, so that its training is the same at any size. The traces name no priorities: each
job is given one of three, drawn with a fixed seed. Nor do the workloads of 160 jobs name people: their jobs are dealt out in turn.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from benchmarks._profiles import Application, Placement, read_application
from training_runtime.scheduling.sizes import speed

PRIORITIES = (4000, 5000, 6000)
APPLICATIONS = ("bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3")


@dataclass(frozen=True)
class Job:
    """`work` in steps; `rate(placement)` is steps a second on so many slots of each machine. `slots`: what it asked for."""

    id: int
    name: str
    person: str
    submitted_s: float
    slots: int
    work: float
    rate: Callable[[Placement], float]
    priority: int = 5000


@dataclass(frozen=True)
class Workload:
    name: str
    jobs: tuple[Job, ...]
    nodes: int
    slots_per_node: int


def philly(folder: Path, number: int, *, people: int | None) -> Workload:
    """One of the eight workloads of 160 jobs that Sia was evaluated on; 16 machines of 4. `people` None: every job is its own person's."""
    return _of_160(folder / f"philly-8h-{number}.csv", _applications(folder / "profiles"), number, people=people)


def pollux(profiles: Path, folder: Path, number: int, *, people: int | None) -> Workload:
    """One of the eight that Pollux was evaluated on, from its authors' own files: the same arrivals, but 40 % other jobs (see docs).

    Its authors let an object detector compute at most 8 samples in one pass.
    """
    return _of_160(folder / f"workload-{number}.csv", _applications(profiles, most_samples={"yolov3": 8}), number, people=people)


def _applications(profiles: Path, *, most_samples: Mapping[str, int] | None = None) -> dict[str, Application]:
    there = [name for name in APPLICATIONS if (profiles / name).is_dir()]
    return {name: read_application(profiles / name, most_samples=(most_samples or {}).get(name)) for name in there}


def _of_160(path: Path, applications: Mapping[str, Application], number: int, *, people: int | None) -> Workload:
    rng = Random(number)
    jobs = []
    with path.open(newline="", encoding="utf-8") as file:
        for index, row in enumerate(csv.DictReader(file)):
            application, batch, slots = applications[row["application"]], int(row["batch_size"]), int(row["num_replicas"])
            jobs.append(
                Job(
                    id=index,
                    name=row["name"],
                    person=f"person-{index % people if people else index}",
                    submitted_s=float(row["time"]),
                    slots=slots,
                    work=application.iterations[batch],
                    rate=partial(_profiled, application, batch, slots),
                    priority=rng.choice(PRIORITIES),
                )
            )
    return Workload(path.stem, tuple(jobs), nodes=16, slots_per_node=4)


def _profiled(application: Application, batch: int, engines: int, placement: Placement) -> float:
    return 1.0 / application.step_s(placement, batch=batch, engines=engines)


def philly_30940(folder: Path, *, nodes: int, slots_per_node: int, first: int | None = None) -> Workload:
    """The large trace: only durations are known, so a job's speed is that of its busiest worker. Jobs without a GPU are left out."""
    rng = Random(0)
    jobs = []
    with gzip.open(folder / "philly-30940-jobs.csv.gz", "rt", newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            slots = int(row["num_gpu"])
            if slots:
                jobs.append(_plain(int(row["job_id"]), row["user"], float(row["submit_time"]), slots, float(row["duration"]), rng))
    jobs.sort(key=lambda job: (job.submitted_s, job.id))
    return Workload("philly-30940", tuple(jobs[:first]), nodes=nodes, slots_per_node=slots_per_node)


def generated(seed: int, *, jobs: int, nodes: int, slots_per_node: int, people: int, load: float = 1.0) -> Workload:
    """A workload of the same shape: mostly short jobs and a few long ones, arriving in bursts, asking for 1 to 16 slots.

    `load`: offered work against what the slots can do during the time in which jobs arrive.
    """
    rng = Random(seed)
    sizes = [rng.choice((1, 2, 4, 4, 6, 8, 8, 12, 16)) for _ in range(jobs)]
    lengths = [min(rng.lognormvariate(6.0, 1.3), 40_000.0) for _ in range(jobs)]
    span_s = sum(size * length for size, length in zip(sizes, lengths, strict=True)) / (nodes * slots_per_node * load)
    bursts = sorted(rng.uniform(0, span_s) for _ in range(max(1, jobs // 4)))
    arrivals = sorted(rng.choice(bursts) + rng.expovariate(1 / 30) for _ in range(jobs))
    made = [
        _plain(index, f"person-{rng.randrange(people)}", arrival, size, length, rng)
        for index, (arrival, size, length) in enumerate(zip(arrivals, sizes, lengths, strict=True))
    ]
    return Workload(f"generated-{seed}", tuple(made), nodes=nodes, slots_per_node=slots_per_node)


def _plain(number: int, person: str, submitted_s: float, slots: int, duration_s: float, rng: Random) -> Job:
    """A job known by its duration on the slots it asked for: one step is one second there."""
    rate = partial(_by_load, slots)
    return Job(number, f"job-{number}", person, submitted_s, slots, max(1.0, duration_s), rate, rng.choice(PRIORITIES))


def _by_load(engines: int, placement: Placement) -> float:
    return speed(sum(placement), engines=engines) / engines
