"""Slot-seconds from the grants: who held how much, and how much of that was work. Reads only.

A grant counts from its beginning until the slot was proven free, cut to the window asked for: a slot that is being given back is not yet
anybody else's. How long a run's slots were at work is counted by its machine (`training_runtime.host.busy`), over the whole run; of a run
that began before the window, the part of that counts which its held time has in the window. What deleted runs held still counts.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from django.db.models import Q

from experiments.models import Grant, PastGrant, Slot, TrainingRun


@dataclass(frozen=True)
class Usage:
    """Slots held times seconds, of one run, person or project in a window. `key`: its id as text, or the username.

    `busy_slot_s`: how much of it was work, as far as that is known; `known_slot_s`: how much of the held time that is known of.
    """

    key: str
    name: str
    cpu_slot_s: float
    gpu_slot_s: float
    runs: int
    busy_slot_s: float
    known_slot_s: float

    @property
    def slot_s(self) -> float:
        """All device classes together."""
        return self.cpu_slot_s + self.gpu_slot_s

    @property
    def known(self) -> bool:
        """Whether anything is known of how much was work."""
        return self.known_slot_s > 0


def slot_seconds(run: TrainingRun, *, now: dt.datetime) -> float:
    """Slots times seconds that the run has held, up to `now`."""
    held = run.grants.values_list("granted_at", "released_at")
    return sum(((until or now) - since).total_seconds() for since, until in held)


def busy_seconds(run: TrainingRun, *, held_s: float) -> float | None:
    """How much of the `held_s` slot-seconds that it has held was work; None where its machine cannot tell."""
    return None if run.busy_s is None else min(run.busy_s, held_s)


def by_person(*, begin: dt.datetime, end: dt.datetime) -> list[Usage]:
    """One for each person who held slots in the window, the greatest first."""
    return _usage(begin, end, key="submitted_by__username", name="submitted_by__username", past=lambda old: (old.person, old.person))


def by_project(*, begin: dt.datetime, end: dt.datetime) -> list[Usage]:
    """One for each project that held slots in the window, the greatest first."""
    return _usage(
        begin, end, key="experiment__project_id", name="experiment__project__name", past=lambda old: (str(old.project), old.project_name)
    )


def by_run(*, begin: dt.datetime, end: dt.datetime, projects: Collection[int] | None = None) -> list[Usage]:
    """One for each run that held slots in the window, the greatest first; `projects`: of these alone, by their ids."""
    return _usage(begin, end, key="pk", name="name", past=lambda old: (str(old.run), f"{old.run_name} (deleted)"), projects=projects)


@dataclass(frozen=True)
class _Held:
    """Slot-seconds of one run: by device class in the window, and all in all."""

    inside: Mapping[str, float]
    ever_s: float

    @property
    def inside_s(self) -> float:
        return sum(self.inside.values())

    def work(self, busy_s: float) -> float:
        """The window's part of the run's work, never more than it held."""
        return min(busy_s, self.ever_s) * self.inside_s / self.ever_s if self.ever_s else 0.0


@dataclass
class _Sum:
    """What is added up for one owner."""

    name: str
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    runs: set[int] = field(default_factory=set)
    busy_s: float = 0.0
    known_s: float = 0.0

    def add(self, run: int, inside: Mapping[str, float], *, busy_s: float | None) -> None:
        self.runs.add(run)
        for device, seconds in inside.items():
            self.seconds[device] += seconds
        if busy_s is not None:
            self.known_s += sum(inside.values())
            self.busy_s += busy_s


def _usage(
    begin: dt.datetime,
    end: dt.datetime,
    *,
    key: str,
    name: str,
    past: Callable[[PastGrant], tuple[str, str]],
    projects: Collection[int] | None = None,
) -> list[Usage]:
    """What the runs of the window held, summed up by `key`, a field of theirs; `past` says the same of those that were deleted. `projects`:
    of the runs of these alone."""
    held = _held(begin, end)
    sums: dict[str, _Sum] = {}
    for pk, whose, title, busy_s in _in_parts(held, key, name, Q() if projects is None else Q(experiment__project__in=projects)):
        of_run = held[pk]
        work_s = None if busy_s is None else of_run.work(busy_s)
        sums.setdefault(str(whose), _Sum(title)).add(pk, of_run.inside, busy_s=work_s)
    deleted = PastGrant.objects.filter(released_at__gt=begin, granted_at__lt=end)
    for old in (deleted if projects is None else deleted.filter(project__in=projects)).order_by("pk").iterator():
        inside_s = (min(old.released_at, end) - max(old.granted_at, begin)).total_seconds()
        work_s = None if old.busy_share is None else inside_s * old.busy_share
        whose, title = past(old)
        sums.setdefault(whose, _Sum(title)).add(old.run, {old.device: inside_s}, busy_s=work_s)
    found = [
        Usage(
            key=whose,
            name=one.name,
            cpu_slot_s=one.seconds[Slot.Device.CPU],
            gpu_slot_s=one.seconds[Slot.Device.GPU],
            runs=len(one.runs),
            busy_slot_s=one.busy_s,
            known_slot_s=one.known_s,
        )
        for whose, one in sums.items()
    ]
    return sorted(found, key=lambda usage: (-usage.slot_s, usage.key))


def _in_parts(held: Mapping[int, _Held], key: str, name: str, wanted: Q) -> Iterable[tuple[int, object, str, float | None]]:
    """Each run with its key, name and work; asked for in parts, because databases limit how many numbers a question may have."""
    pks = sorted(held)
    for first in range(0, len(pks), 500):
        yield from TrainingRun.objects.filter(wanted, pk__in=pks[first : first + 500]).order_by("pk").values_list("pk", key, name, "busy_s")


def _held(begin: dt.datetime, end: dt.datetime) -> dict[int, _Held]:
    """By run; plain values, since a year has hundreds of thousands of grants."""
    overlapping = Q(released_at__isnull=True) | Q(released_at__gt=begin)
    in_window = Grant.objects.filter(overlapping, granted_at__lt=end)
    inside: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    ever: dict[int, float] = defaultdict(float)
    for run, device, since, until in in_window.values_list("run_id", "slot__device", "granted_at", "released_at"):
        whole_s = ((until or end) - since).total_seconds()
        inside[run][device] += (min(until or end, end) - max(since, begin)).total_seconds()
        ever[run] += whole_s
    # What these runs held before the window, and was over before it, is missing above.
    earlier = Grant.objects.filter(released_at__lte=begin, run__in=in_window.filter(run__submitted_at__lt=begin).values("run"))
    for run, since, until in earlier.values_list("run_id", "granted_at", "released_at"):
        if run in ever and until is not None:
            ever[run] += (until - since).total_seconds()
    return {run: _Held(by_device, ever[run]) for run, by_device in inside.items()}
