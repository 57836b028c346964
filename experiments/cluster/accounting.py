"""Usage accounts from the grants: slot-seconds held by each person, project or run, and how many of them were work. Reads only.

A grant counts from its beginning until the slot was proven free, cut to the window asked for: a slot that is being given back is not yet
anybody else's. How long a run's slots were at work is counted by its machine (`training_runtime.host.meter.utilization`), over the whole
run; of a run that began before the window, the part of that counts which its held time has in the window. What deleted runs held still
counts.

A slot-second costs what the price of its kind of slot was in that second: a price that is changed changes nothing of the past.
"""

from __future__ import annotations

import bisect
import datetime as dt
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from django.db.models import Q

from experiments.cluster import spans
from experiments.models import Grant, PastGrant, Slot, SlotPrice, TrainingRun

CENTS = Decimal("0.0001")  # to which a cost is rounded, once for each owner: what is shown adds up


@dataclass(frozen=True)
class Usage:
    """Slots held times seconds, of one run, person or project in a window. `key`: its id as text, or the username.

    `busy_slot_s`: how much of it was work, as far as that is known; `known_slot_s`: how much of the held time that is known of.
    `bins`: slot-seconds between the edges that were asked for. `cost` of the `priced_slot_s` that had a price.
    """

    key: str
    name: str
    cpu_slot_s: float
    gpu_slot_s: float
    runs: int
    busy_slot_s: float
    known_slot_s: float
    bins: tuple[float, ...]
    cost: Decimal
    priced_slot_s: float

    @property
    def slot_s(self) -> float:
        """All device classes together."""
        return self.cpu_slot_s + self.gpu_slot_s

    @property
    def known(self) -> bool:
        """Whether anything is known of how much was work."""
        return self.known_slot_s > 0

    @property
    def priced(self) -> bool:
        """Whether any of it had a price."""
        return self.priced_slot_s > 0


def slot_seconds(run: TrainingRun, *, now: dt.datetime) -> float:
    """Slots times seconds that the run has held, up to `now`; a grant that was made since has none yet."""
    return slot_seconds_of([run], now=now)[run.pk]


def slot_seconds_of(runs: Iterable[TrainingRun], *, now: dt.datetime) -> Mapping[int, float]:
    """Run id -> slot-seconds held; runs that never held a slot are left out."""
    found: dict[int, float] = defaultdict(float)
    for run, since, until in Grant.objects.filter(run__in=list(runs)).values_list("run_id", "granted_at", "released_at"):
        found[run] += max(0.0, ((until or now) - since).total_seconds())
    return found


def busy_seconds(run: TrainingRun, *, held_s: float) -> float | None:
    """How much of the `held_s` slot-seconds that it has held was work; None where its machine cannot tell."""
    return None if run.busy_s is None else min(run.busy_s, held_s)


def by_person(*, begin: dt.datetime, end: dt.datetime, edges: Sequence[dt.datetime] = ()) -> list[Usage]:
    """The usage of each person who held slots in the window, largest first. `edges`: the window's begin, the edges between bins, its
    end."""
    username = "submitted_by__username"
    return _usage(begin, end, edges, key=username, name=username, past=lambda old: (old.person, old.person))


def by_project(
    *, begin: dt.datetime, end: dt.datetime, edges: Sequence[dt.datetime] = (), projects: Collection[int] | None = None
) -> list[Usage]:
    """The usage of each project that held slots in the window, largest first; `projects`: only these ids."""
    key, name = "experiment__project_id", "experiment__project__name"
    return _usage(begin, end, edges, key=key, name=name, past=lambda old: (str(old.project), old.project_name), projects=projects)


def by_run(
    *, begin: dt.datetime, end: dt.datetime, edges: Sequence[dt.datetime] = (), projects: Collection[int] | None = None
) -> list[Usage]:
    """The usage of each run that held slots in the window, largest first; `projects`: only runs of these project ids."""
    past = lambda old: (str(old.run), f"{old.run_name} (deleted)")  # noqa: E731
    return _usage(begin, end, edges, key="pk", name="name", past=past, projects=projects)


@dataclass(frozen=True)
class _Pieces:
    """The window, cut where a bin or a price begins. A piece is named by its number: which bin it is in, and each device's price in it."""

    edges: tuple[dt.datetime, ...]
    bin_of: tuple[int, ...]
    price_of: Mapping[str, tuple[Decimal | None, ...]]
    bins: int

    @staticmethod
    def of(begin: dt.datetime, end: dt.datetime, bins: Sequence[dt.datetime], prices: Sequence[SlotPrice]) -> _Pieces:
        bins = bins or (begin, end)
        within = {price.since for price in prices if begin < price.since < end}
        edges = tuple(sorted({begin, end, *bins, *within}))
        at: dict[str, list[Decimal | None]] = {}
        for device in Slot.Device.values:
            mine = [price for price in prices if price.device == device]
            since = [price.since for price in mine]
            found = [bisect.bisect_right(since, edge) for edge in edges[:-1]]
            at[device] = [mine[number - 1].per_hour if number else None for number in found]
        bin_of = tuple(max(0, bisect.bisect_right(bins, edge) - 1) for edge in edges[:-1])
        return _Pieces(edges, bin_of, {device: tuple(found) for device, found in at.items()}, len(bins) - 1)


_Inside = Mapping[tuple[str, int], float]  # seconds by device and piece


@dataclass(frozen=True)
class _Held:
    """Slot-seconds of one run: by device class and piece in the window, and all in all."""

    inside: _Inside
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
    seconds: dict[tuple[str, int], float] = field(default_factory=lambda: defaultdict(float))
    runs: set[int] = field(default_factory=set)
    busy_s: float = 0.0
    known_s: float = 0.0

    def add(self, run: int, inside: _Inside, *, busy_s: float | None) -> None:
        self.runs.add(run)
        for place, seconds in inside.items():
            self.seconds[place] += seconds
        if busy_s is not None:
            self.known_s += sum(inside.values())
            self.busy_s += busy_s

    def usage(self, key: str, pieces: _Pieces) -> Usage:
        bins, priced_s, cost = [0.0] * pieces.bins, 0.0, Decimal(0)
        held = dict.fromkeys(Slot.Device.values, 0.0)
        for (device, piece), seconds in sorted(self.seconds.items()):
            held[device] += seconds
            bins[pieces.bin_of[piece]] += seconds
            if (price := pieces.price_of[device][piece]) is not None:
                priced_s += seconds
                cost += price * Decimal(seconds) / 3600
        return Usage(
            key=key,
            name=self.name,
            cpu_slot_s=held[Slot.Device.CPU],
            gpu_slot_s=held[Slot.Device.GPU],
            runs=len(self.runs),
            busy_slot_s=self.busy_s,
            known_slot_s=self.known_s,
            bins=tuple(bins),
            cost=cost.quantize(CENTS),
            priced_slot_s=priced_s,
        )


def _usage(
    begin: dt.datetime,
    end: dt.datetime,
    edges: Sequence[dt.datetime],
    *,
    key: str,
    name: str,
    past: Callable[[PastGrant], tuple[str, str]],
    projects: Collection[int] | None = None,
) -> list[Usage]:
    """What the runs of the window held, summed up by `key`, a field of theirs; `past` says the same of those that were deleted. `projects`:
    of the runs of these alone."""
    pieces = _Pieces.of(begin, end, edges, list(SlotPrice.objects.order_by("since", "pk")))
    held = _held(begin, end, pieces)
    sums: dict[str, _Sum] = {}
    for pk, whose, title, busy_s in _in_parts(held, key, name, Q() if projects is None else Q(experiment__project__in=projects)):
        of_run = held[pk]
        work_s = None if busy_s is None else of_run.work(busy_s)
        sums.setdefault(str(whose), _Sum(title)).add(pk, of_run.inside, busy_s=work_s)
    deleted = PastGrant.objects.filter(released_at__gt=begin, granted_at__lt=end)
    for old in (deleted if projects is None else deleted.filter(project__in=projects)).order_by("pk").iterator():
        inside = {(old.device, piece): seconds for piece, seconds in spans.pieces(pieces.edges, old.granted_at, old.released_at)}
        work_s = None if old.busy_share is None else sum(inside.values()) * old.busy_share
        whose, title = past(old)
        sums.setdefault(whose, _Sum(title)).add(old.run, inside, busy_s=work_s)
    found = [one.usage(whose, pieces) for whose, one in sums.items()]
    return sorted(found, key=lambda usage: (-usage.slot_s, usage.key))


def _in_parts(held: Mapping[int, _Held], key: str, name: str, wanted: Q) -> Iterable[tuple[int, object, str, float | None]]:
    """Each run with its key, name and work; asked for in parts, because databases limit how many numbers a question may have."""
    pks = sorted(held)
    for first in range(0, len(pks), 500):
        yield from TrainingRun.objects.filter(wanted, pk__in=pks[first : first + 500]).order_by("pk").values_list("pk", key, name, "busy_s")


def _held(begin: dt.datetime, end: dt.datetime, pieces: _Pieces) -> dict[int, _Held]:
    """By run; plain values, since a year has hundreds of thousands of grants."""
    overlapping = Q(released_at__isnull=True) | Q(released_at__gt=begin)
    in_window = Grant.objects.filter(overlapping, granted_at__lt=end)
    inside: dict[int, dict[tuple[str, int], float]] = defaultdict(lambda: defaultdict(float))
    ever: dict[int, float] = defaultdict(float)
    for run, device, since, until in in_window.values_list("run_id", "slot__device", "granted_at", "released_at"):
        for piece, seconds in spans.pieces(pieces.edges, since, until or end):
            inside[run][device, piece] += seconds
        ever[run] += ((until or end) - since).total_seconds()
    # What these runs held before the window, and was over before it, is missing above.
    earlier = Grant.objects.filter(released_at__lte=begin, run__in=in_window.filter(run__submitted_at__lt=begin).values("run"))
    for run, since, until in earlier.values_list("run_id", "granted_at", "released_at"):
        if run in ever and until is not None:
            ever[run] += (until - since).total_seconds()
    return {run: _Held(by_device, ever[run]) for run, by_device in inside.items()}
