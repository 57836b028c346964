"""Reads for a run's own pages: who held what for it and how long, and which runs' curves the cluster page may draw for a person."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from django.conf import settings
from django.db.models import Q
from django.utils import timezone

from experiments import access
from experiments.cluster import isolation
from experiments.metrics import curve_points, ingest, journal_rows
from experiments.models import (
    Grant,
    JournalCursor,
    LoggedFacts,
    Membership,
    MetricSeries,
    Node,
    Project,
    Role,
    RunEvent,
    RunTransition,
    Slot,
    TrainingRun,
    User,
)
from experiments.models.runs import LIVE
from experiments.runs import digests

MOST_COMPANIONS = 500
MEASURES = ("loss", "accuracy")
ACCURACIES = frozenset({"acc", "accuracy"})
REWARDS = frozenset({"reward", "rewards", "rew", "return", "returns"})


@dataclass(frozen=True)
class Held:
    """A grant of the run, with its length until its end or now."""

    grant: Grant
    length: dt.timedelta


def grants(run: TrainingRun, *, now: dt.datetime, limit: int = 500) -> list[Held]:
    """The run's grants, newest first. One that was made since `now` has been held for no time yet."""
    found = run.grants.select_related("slot__node").order_by("-granted_at", "-id")[:limit]
    return [Held(grant, max(dt.timedelta(0), (grant.released_at or now) - grant.granted_at)) for grant in found]


def companions(run: TrainingRun) -> dict[str, int]:
    """Runs of the project that were there in the run's time, as reasons call them ("bob's run Wider net"): the number of each that alone
    is called so. Of a great many, none."""
    found = TrainingRun.objects.filter(experiment__project=run.experiment.project_id, submitted_at__lte=run.ended_at or timezone.now())
    found = found.filter(Q(ended_at=None) | Q(ended_at__gte=run.submitted_at)).exclude(pk=run.pk)
    rows = list(found.values_list("pk", "name", "submitted_by__username")[: MOST_COMPANIONS + 1])
    if len(rows) > MOST_COMPANIONS:
        return {}
    times = Counter((name, person) for _, name, person in rows)
    return {f"{person}'s run {name}": number for number, name, person in rows if name and times[name, person] == 1}


@dataclass(frozen=True)
class Strip:
    """A slot's part in the picture of who held what for the run: (begin, width) of each grant, in thousandths of the picture."""

    slot: Slot
    bars: list[tuple[float, float]]


@dataclass(frozen=True)
class Picture:
    """The run's slots over time, from its first grant to the end of the last, or to now."""

    begin: dt.datetime
    end: dt.datetime
    strips: list[Strip]

    @property
    def several(self) -> bool:
        """Whether they are slots of several machines."""
        return len({strip.slot.node_id for strip in self.strips}) > 1


def picture(held: list[Held]) -> Picture | None:
    """The grants as bars, a strip for each slot; None where there are none."""
    if not held:
        return None
    begin = min(each.grant.granted_at for each in held)
    end = max(each.grant.granted_at + each.length for each in held)
    whole = max(1e-3, (end - begin).total_seconds())
    bars: dict[int, list[tuple[float, float]]] = {}
    slots = {each.grant.slot_id: each.grant.slot for each in held}
    for each in held:
        since, long = ((each.grant.granted_at - begin) / whole).total_seconds(), (each.length / whole).total_seconds()
        bars.setdefault(each.grant.slot_id, []).append((1000 * since, 1000 * long))
    ranked = sorted(slots.values(), key=lambda slot: (slot.node.name, slot.device, slot.index))
    return Picture(begin, end, [Strip(slot, bars[slot.pk]) for slot in ranked])


def transitions(run: TrainingRun, *, limit: int = 300) -> list[RunTransition]:
    """The run's states and what people changed, newest first."""
    return list(run.transitions.select_related("actor").order_by("-at", "-id")[:limit])


def checkpoints(run: TrainingRun) -> tuple[int, RunEvent | None]:
    """How many times it has written its model or its state, and the last time."""
    written = run.events.filter(kind="checkpoint").order_by("-seq")
    return written.count(), written.first()


def latest_metrics(run: TrainingRun) -> list[MetricSeries]:
    """The run's series with their last points."""
    return list(run.series.order_by("group", "name")[:200])


def chart_names(run: TrainingRun, *, limit: int = 60) -> tuple[list[str], list[str]]:
    """The run's metrics in the order in which its page draws them: (those that people look at first, the rest by name)."""
    groups: dict[str, set[str]] = {}
    for name, group in run.series.values_list("name", "group")[:800]:
        groups.setdefault(name, set()).add(group)
    first = first_charts(groups)
    return first, sorted(groups.keys() - set(first))[:limit]


def first_charts(groups: Mapping[str, set[str]]) -> list[str]:
    """At most two of the metrics, given with the groups that they are measured in: `loss` and `accuracy`, else of each kind that with the
    shortest name: a loss of a test, a reward, a loss of the training, an accuracy of a test, of the training. The page does so too
    (static/js/curves.js, `first`)."""
    kinds: dict[int, str] = {}
    for name in sorted(groups, key=lambda name: (len(name), name)):
        if (kind := _kind(name, of_test="test" in groups[name])) is not None:
            kinds.setdefault(kind, name)
    return sorted((kinds[kind] for kind in sorted(kinds)[:2]), key=lambda name: "train" not in groups[name])


def _kind(name: str, *, of_test: bool) -> int | None:
    """How soon people look at a metric; None of one that they do not look at first."""
    words = set(re.split(r"[^a-z]+", name.lower()))
    if name in MEASURES:
        return MEASURES.index(name)
    if "loss" in words:
        return 2 if of_test else 4
    if words & REWARDS:
        return 3
    return (5 if of_test else 6) if words & ACCURACIES else None


def logged_facts(run: TrainingRun) -> LoggedFacts | None:
    """Parameters and tags that its script has logged, without those that MLflow's client sets for its own pages."""
    facts = LoggedFacts.objects.filter(run=run).first()
    if facts is not None:
        facts.tags = {name: value for name, value in facts.tags.items() if not name.rpartition("/")[2].startswith("mlflow.")}
    return facts


def epoch_samples(run: TrainingRun) -> int | None:
    """How many samples an epoch has; None before train() was called."""
    said = run.events.filter(kind="started").order_by("-seq").values_list("detail", flat=True).first()
    samples = (said or {}).get("samples")
    return samples if isinstance(samples, int) else None


@dataclass(frozen=True)
class Began:
    """When a run called train() first, and how many samples an epoch of it had the last time."""

    at: dt.datetime
    samples: int | None


def began(runs: Iterable[TrainingRun]) -> dict[int, Began]:
    """By run: of those that have called train()."""
    found: dict[int, Began] = {}
    events = RunEvent.objects.filter(run__in=runs, kind="started").order_by("seq").values_list("run", "at", "detail")
    for run, at, detail in events:
        samples = detail.get("samples")
        found[run] = Began(found[run].at if run in found else at, samples if isinstance(samples, int) else None)
    return found


def drawable(user: User, *, begin: dt.datetime, limit: int = 12) -> list[TrainingRun]:
    """Runs whose curves the person may see and that ran after `begin`, newest first: what the cluster page draws under the lanes."""
    mine = TrainingRun.objects.filter(experiment__project__in=access.projects_for(user).values("pk"))
    recent = mine.filter(Q(state__in=LIVE) | Q(ended_at__gte=begin), started_at__isnull=False)
    return list(recent.select_related("submitted_by").order_by("-submitted_at", "-id")[:limit])


def readable(user: User, runs: Iterable[TrainingRun]) -> set[int]:
    """Which of the runs the person may open."""
    return readable_ids(user, [run.pk for run in runs])


def readable_ids(user: User, ids: Iterable[int]) -> set[int]:
    mine = access.projects_for(user).values("pk")
    return set(TrainingRun.objects.filter(pk__in=set(ids), experiment__project__in=mine).values_list("pk", flat=True))


def named_ids(user: User, ids: Iterable[int]) -> set[int]:
    """Which of the runs the person may know by name, and why they have what they have: those they may open; administrators all."""
    return set(ids) if user.administers else readable_ids(user, ids)


def named_runs(user: User) -> Q:
    """The same as a condition on runs."""
    return Q() if user.administers else Q(experiment__project__in=access.projects_for(user).values("pk"))


def writable_ids(user: User, ids: Iterable[int]) -> set[int]:
    """Which of the runs are in projects where the person is more than a viewer."""
    mine = Membership.objects.filter(user=user, role__in=[Role.ADMIN, Role.EDITOR]).values("project")
    return set(TrainingRun.objects.filter(pk__in=set(ids), experiment__project__in=mine).values_list("pk", flat=True))


def may_run_in(user: User, *, limit: int = 8) -> list[Project]:
    """Projects in which the person may start runs, newest first."""
    mine = Membership.objects.filter(user=user, role__in=[Role.ADMIN, Role.EDITOR]).values("project")
    return list(Project.objects.filter(pk__in=mine).order_by("-created_at", "-id")[:limit])


def first_grant() -> dt.datetime | None:
    """When a slot was granted for the first time; None before that."""
    return Grant.objects.order_by("granted_at").values_list("granted_at", flat=True).first()


def runs_of(node: Node) -> list[TrainingRun]:
    """The live runs that have to do with the node: their driver is there, or they hold a slot of it."""
    held = Q(grants__slot__node=node, grants__released_at__isnull=True)
    return list(TrainingRun.objects.filter(held | Q(head_node=node), state__in=LIVE).distinct())


def open_grants(node: Node) -> dict[int, Grant]:
    """The grants that are open on the node, by slot id."""
    found = Grant.objects.filter(slot__node=node, released_at__isnull=True).select_related("run__submitted_by")
    return {grant.slot_id: grant for grant in found}


def trusted_machines(run: TrainingRun) -> list[Node]:
    """The machines where the run is or was last, whose boxes do not keep people's code apart, because an administrator said that they trust
    each other."""
    doors = isolation.doors()
    if not doors.trusted or run.outside:
        return []
    there = Q(pk=run.head_node_id) | Q(slots__grants__run=run, slots__grants__released_at__isnull=True)
    return [node for node in Node.objects.filter(there).distinct().order_by("name") if doors.of(node).state == "trusted"]


def left_out(run: TrainingRun) -> list[str]:
    """What of its journal is not shown, and why, in sentences."""
    cursor = JournalCursor.objects.filter(run=run).first()
    counts = {**cursor.left_out, "rejected": cursor.rejected} if cursor is not None else {}
    points, size = settings.EDT_MAX_RUN_POINTS, settings.EDT_MAX_JOURNAL_BYTES >> 20
    words = {
        "curves": f"values of further metrics: a run has at most {curve_points.MAX_SERIES:,} curves.",
        "metrics": f"values: a step has at most {journal_rows.METRICS_PER_LINE:,} metrics.",
        "points": f"values: a run has at most {points:,} points (EDT_MAX_RUN_POINTS).",
        "again": "values at steps that their curve had passed already: it keeps the first value at a step, and its steps only rise.",
        "noted": f"parameters or tags: a run has at most {journal_rows.MOST_NOTED:,} of each.",
        "events": f"events: a run has at most {ingest.MAX_RARE:,}.",
        "generations": f"changes of members: a run has at most {ingest.MAX_RARE:,}.",
        "digests": f"digests of its state: a run has at most {digests.MOST:,}.",
        "rejected": "lines of its journal that could not be understood.",
    }
    said = [f"{counts[name]:,} {text}" for name, text in words.items() if counts.get(name)]
    if counts.get("bytes"):
        said.append(f"All that its journal says after its first {size:,} MiB (EDT_MAX_JOURNAL_BYTES).")
    return said
