"""The cluster: who holds which slot, everybody's jobs, the scheduling policy, slot time used; and the machines."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Annotated, Any, Literal

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema

from experiments import access, selectors, services
from experiments.api.auth import person
from experiments.api.foresight import ELSEWHERE, Foresight, foreseen
from experiments.api.paging import Page, PageParameters, newest
from experiments.api.schemas import Body
from experiments.cluster.plan_preview import ClusterWish
from experiments.models import ClusterRules, RunState, TrainingRun
from experiments.models import Grant as GrantRow
from experiments.models.runs import LIVE
from experiments.ops import clock
from experiments.selectors import run_pages
from experiments.selectors.reserved import Reserved, reserved
from experiments.selectors.sharing import sharers
from experiments.views.cluster import WINDOWS, span

router = Router(tags=["cluster"])
QUOTAS = Annotated[dict[str, Annotated[int, Field(ge=0, le=1_000_000)] | None], Field(max_length=5000)]


class Slot(Schema):
    """`state`: free, held, leaving (asked to), stuck, draining, out (of service, since it looks ill) or silent; `run_name` where the caller
    may know it. `reserved_for`: who gets it next, with which run, where nobody holds it any more or its run was asked to leave."""

    id: int
    label: str
    node: str
    device: str
    state: str
    run: int | None
    run_name: str | None
    person: str | None
    reserved_for: str | None
    reserved_run: int | None


class Cluster(Schema):
    slots: list[Slot]
    held: int
    free: int
    running: int
    waiting: int
    suspended: int
    policy: str


class Bar(Schema):
    """A run on a slot, from `begin` to `end` (null: still)."""

    run: int
    name: str
    person: str
    begin: dt.datetime
    end: dt.datetime | None
    leaving: bool
    reason: str


class Lane(Schema):
    slot: int
    label: str
    node: str
    state: str
    bars: list[Bar]


class Lanes(Schema):
    begin: dt.datetime
    end: dt.datetime
    lanes: list[Lane]


class Grant(Schema):
    """Run R holds slot S from `granted_at` to `released_at`; asked to leave at `release_requested_at`."""

    id: int
    run: int
    slot: int
    node: str
    person: str
    granted_at: dt.datetime
    release_requested_at: dt.datetime | None
    released_at: dt.datetime | None
    reason: str


class Job(Schema):
    """Somebody's run, as everybody may know it."""

    run: int
    name: str
    person: str
    state: str
    type: str
    cpu_slots: int
    gpu_slots: int
    priority: int
    submitted_at: dt.datetime
    started_at: dt.datetime | None
    ended_at: dt.datetime | None


class Rules(Schema):
    """`weights` by username (1 is usual); quotas in slots by username and by project; disks in GB by project, and of each person;
    `release_grace_s`: seconds for leaving a slot; `without_network`: projects whose runs may not use it."""

    policy: str
    weights: dict[str, float]
    person_quota: dict[str, int]
    project_quota: dict[str, int]
    several_machines: bool
    priority_ceiling: int
    new_project_quota: int | None
    project_disk: dict[str, int]
    new_project_disk: int | None
    each_person_disk: int | None
    without_network: list[str]
    new_projects_network: bool
    release_grace_s: int
    people_trust_each_other: bool


class RulesChange(Body):
    """What is left out stays as it is; a quota of null is none."""

    policy: Literal["fair_share", "priority"] | None = None
    weights: dict[str, float] = {}
    person_quota: QUOTAS = {}
    project_quota: QUOTAS = {}
    project_disk: QUOTAS = {}
    several_machines: bool | None = None
    priority_ceiling: int | None = Field(None, ge=1, le=10_000)
    new_project_quota: int | None = Field(None, ge=0, le=1_000_000)
    new_project_disk: int | None = Field(None, ge=1, le=1_000_000)
    each_person_disk: int | None = Field(None, ge=1, le=1_000_000)
    without_network: list[str] | None = None
    new_projects_network: bool | None = None
    release_grace_s: int | None = Field(None, ge=1, le=3600)
    people_trust_each_other: bool | None = None
    reason: str = ""


class JobsQuery(Schema):
    """`state`: one, or "live" or "ended"; `q`: part of a name or of a person's."""

    state: str = Field("", max_length=16)
    q: str = Field("", max_length=120)
    limit: int = Field(100, ge=1, le=500)
    offset: int = Field(0, ge=0, le=10_000_000)


class Jobs(Schema):
    items: list[Job]
    total: int


@router.get("/cluster", response=Cluster)
def cluster(request: HttpRequest) -> Cluster:
    """Who holds which slot now."""
    user, now = person(request), clock.now()
    lanes = selectors.lanes(begin=now, end=now)
    named = run_pages.named_ids(user, [lane.bars[-1].run for lane in lanes if lane.is_held()])
    live = TrainingRun.objects.filter(state__in=LIVE)
    kept = reserved(lanes, now=now)
    return Cluster(
        slots=[_slot(lane, named, kept.get(lane.slot.pk)) for lane in lanes],
        held=sum(lane.is_held() for lane in lanes),
        free=sum(lane.state == "free" for lane in lanes),
        running=live.filter(state=RunState.RUNNING).count(),
        waiting=live.filter(state=RunState.QUEUED).count(),
        suspended=live.filter(state=RunState.SUSPENDED).count(),
        policy=access.rules(user).policy,
    )


def _slot(lane: selectors.Lane, named: set[int], kept: Reserved | None) -> Slot:
    held = lane.bars[-1] if lane.is_held() else None
    return Slot(
        id=lane.slot.pk,
        label=lane.slot.label(),
        node=lane.slot.node.name,
        device=lane.slot.device,
        state=lane.state,
        run=held.run if held else None,
        run_name=(held.name if held.run in named else ELSEWHERE) if held else None,
        person=held.person if held else None,
        reserved_for=kept.person if kept else None,
        reserved_run=kept.run if kept else None,
    )


@router.get("/cluster/lanes", response=Lanes)
def lanes(request: HttpRequest, window: Literal["1m", "10m", "1h", "all"] = "10m") -> Lanes:
    """Who held which slot in the last minute, ten minutes, hour, or ever (at most 30 days)."""
    user, now = person(request), clock.now()
    begin, end = span(window, 0, now, run_pages.first_grant() or now - dt.timedelta(seconds=WINDOWS["10m"]))
    found = selectors.lanes(begin=begin, end=end)
    named = run_pages.named_ids(user, {bar.run for lane in found for bar in lane.bars})
    return Lanes(
        begin=begin,
        end=end,
        lanes=[
            Lane(
                slot=lane.slot.pk,
                label=lane.slot.label(),
                node=lane.slot.node.name,
                state=lane.state,
                bars=[_bar(bar, named) for bar in lane.bars],
            )
            for lane in found
        ],
    )


def _bar(bar: selectors.Bar, named: set[int]) -> Bar:
    known = bar.run in named
    return Bar(**dataclasses.asdict(bar) | {"name": bar.name if known else ELSEWHERE, "reason": bar.reason if known else ""})


@router.get("/cluster/grants", response=Page[Grant])
def grants(request: HttpRequest, page: PageParameters, open: bool = False) -> Page[Grant]:
    """Who held what, newest first. `open`: only what is held now."""
    found = GrantRow.objects.select_related("slot__node", "run__submitted_by")
    listed = newest(found.filter(released_at__isnull=True) if open else found, page, lambda row: row)
    named = run_pages.named_ids(person(request), {row.run_id for row in listed.items})
    return Page(items=[_grant(row, named) for row in listed.items], next=listed.next)


def _grant(row: GrantRow, named: set[int]) -> Grant:
    same = ("granted_at", "release_requested_at", "released_at")
    return Grant(
        id=row.pk,
        run=row.run_id,
        slot=row.slot_id,
        node=row.slot.node.name,
        person=row.run.submitted_by.username,
        reason=row.reason if row.run_id in named else "",
        **{name: getattr(row, name) for name in same},
    )


@router.get("/cluster/jobs", response=Jobs)
def jobs(request: HttpRequest, wanted: Annotated[JobsQuery, Query()]) -> Jobs:
    """Everybody's runs, newest first."""
    user = person(request)
    asked = selectors.JobFilter(name=wanted.q, state=wanted.state.replace("\0", ""), limit=wanted.limit, offset=wanted.offset)
    rows, total = selectors.jobs(asked, now=clock.now(), named=run_pages.named_runs(user))
    named = run_pages.named_ids(user, [row.run.pk for row in rows])
    return Jobs(items=[_job(row, named) for row in rows], total=total)


def _job(row: selectors.JobRow, named: set[int]) -> Job:
    same = ("state", "priority", "submitted_at", "started_at", "ended_at")
    return Job(
        run=row.run.pk,
        name=row.run.name if row.run.pk in named else ELSEWHERE,
        person=row.submitter,
        type=row.run.version.distributed,
        cpu_slots=row.cpu_slots,
        gpu_slots=row.gpu_slots,
        **{name: getattr(row.run, name) for name in same},
    )


def _rules(rules: ClusterRules) -> Rules:
    names = [name for name in Rules.model_fields if name != "weights"]
    return Rules(weights=sharers(), **{name: getattr(rules, name) for name in names})


@router.get("/cluster/rules", response=Rules)
def rules(request: HttpRequest) -> Rules:
    return _rules(access.rules(person(request)))


@router.patch("/cluster/rules", response=Rules)
def change_rules(request: HttpRequest, body: RulesChange) -> Rules:
    """By administrators of the cluster; everybody can read the reason."""
    user = person(request)
    wish = _wish(access.rules(user, need="admin"), body)
    wish["weights"] = body.weights
    return _rules(services.set_sharing(by=user, reason=body.reason, **wish))


def _wish(now: ClusterRules, body: RulesChange) -> dict[str, Any]:
    """The rules as they would be, by the names of services."""
    merged = {
        name: {key: value for key, value in {**getattr(now, name), **getattr(body, name)}.items() if value is not None}
        for name in ("person_quota", "project_quota", "project_disk")
    }
    single = [name for name in Rules.model_fields if name not in (*merged, "weights")]
    sent = {name: getattr(body, name) if name in body.model_fields_set else getattr(now, name) for name in single}
    return {**merged, **{name: getattr(now, name) if value is None and name in KEPT else value for name, value in sent.items()}}


KEPT = (
    "policy",
    "several_machines",
    "priority_ceiling",
    "without_network",
    "new_projects_network",
    "release_grace_s",
    "people_trust_each_other",
)


@router.post("/cluster/rules/preview", response=Foresight)
def preview_rules(request: HttpRequest, body: RulesChange) -> Foresight:
    """What these rules would do to everybody. Changes nothing."""
    user = person(request)
    wish = _wish(access.rules(user, need="admin"), body)
    weights = sharers() | {name: weight for name, weight in body.weights.items() if 0.01 <= weight <= 1000}
    return foreseen(user, cluster=ClusterWish(person_weights=weights, **wish))
