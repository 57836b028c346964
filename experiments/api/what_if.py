"""What if, and last week under another policy: what the planner would do, without doing it."""

from __future__ import annotations

import dataclasses
import datetime as dt
from functools import partial
from typing import Annotated, Literal

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema

from experiments.api.auth import person
from experiments.api.foresight import ELSEWHERE
from experiments.errors import DomainError
from experiments.forms.what_if import MOST_HOURS, MOST_MACHINES
from experiments.models.definitions import MAX_SLOTS_LIMIT
from experiments.ops import clock
from experiments.selectors import run_pages
from experiments.selectors.replay import Means, RunReplayed, replay
from experiments.selectors.sharing import nodes_in_service, sharers
from experiments.selectors.what_if import FutureLane, RunThen, what_if
from training_runtime.scheduling.what_if import NewRun, Wish

router = Router(tags=["cluster"])
LEAST_WEIGHT, MOST_WEIGHT = 0.01, 1000.0
MOST_WEIGHTS = 500


class Otherwise(Schema):
    """What would be otherwise: `more` machines like the one called `like`; machines drained (`without`); the policy; weights as
    `bob:2`; a run of `job_hours` hours on all of its `job_slots` slots, submitted in `job_in` hours by `job_person` (the caller)."""

    more: int = Field(0, ge=0, le=MOST_MACHINES)
    like: str = ""
    without: list[str] = Field([], max_length=1000)
    policy: Literal["fair_share", "priority"] | None = None
    weight: list[str] = Field([], max_length=MOST_WEIGHTS)
    job_hours: float | None = Field(None, gt=0, le=MOST_HOURS)
    job_slots: int = Field(4, ge=1, le=MAX_SLOTS_LIMIT)
    job_person: str = ""
    job_device: Literal["gpu", "cpu"] | None = None
    job_priority: int = Field(5000, ge=1, le=10_000)
    job_in: float = Field(0, ge=0, le=MOST_HOURS)


class FutureEnd(Schema):
    """A run (0: the one that is only thought of). `known`: whether its length and speed are; times are null where they are not, or where
    they lie outside the next 30 days. `slots`: held first."""

    run: int
    name: str
    person: str
    known: bool
    slots_today: int
    slots_then: int
    begins_today: dt.datetime | None
    begins_then: dt.datetime | None
    ends_today: dt.datetime | None
    ends_then: dt.datetime | None
    difference_s: float | None


class FutureHold(Schema):
    """A run on a slot from `begin` to `end` (null: to the end of the picture)."""

    run: int
    name: str
    person: str
    begin: dt.datetime
    end: dt.datetime | None


class FutureSlot(Schema):
    """A slot (negative: of a machine that is only thought of) and who will hold it."""

    slot: int
    label: str
    node: str
    state: str
    bars: list[FutureHold]


class Futures(Schema):
    """As things are (`today`) and as they would be (`then`), from `begin` to `end`; what is taken for granted (`assumed`)."""

    begin: dt.datetime
    end: dt.datetime
    runs: list[FutureEnd]
    today: list[FutureSlot]
    then: list[FutureSlot]
    cut: bool
    assumed: list[str]


class ReplayMeans(Schema):
    """Means over a person's runs, in seconds; slot-seconds; how many have not ended."""

    wait_s: float | None
    end_s: float | None
    slot_s: float
    unended: int


class ReplayPerson(Schema):
    """As it was, replayed under today's rules, replayed under the others."""

    person: str
    runs: int
    was: ReplayMeans
    same: ReplayMeans
    other: ReplayMeans


class ReplayRun(Schema):
    """Seconds from its submission to its end, in the three."""

    run: int
    name: str
    person: str
    was_s: float | None
    same_s: float | None
    other_s: float | None
    difference_s: float | None


class Replayed(Schema):
    """The days from `begin` to `end` once more. `left_out`: older runs that are not in it."""

    begin: dt.datetime
    end: dt.datetime
    people: list[ReplayPerson]
    runs: list[ReplayRun]
    left_out: int
    cut: bool
    assumed: list[str]


@router.get("/cluster/what-if", response=Futures)
def ask_what_if(request: HttpRequest, wanted: Annotated[Otherwise, Query()]) -> Futures:
    """When every run ends, and would end if something were otherwise. Changes nothing."""
    user, now = person(request), clock.now()
    found = what_if(_wish(wanted, me=user.username, now=now), now=now, named=partial(run_pages.named_ids, user))
    return Futures(
        begin=found.now,
        end=found.end,
        runs=[_end(row) for row in found.rows],
        today=[_lane(lane) for lane in found.today],
        then=[_lane(lane) for lane in found.then],
        cut=found.cut,
        assumed=list(found.assumed),
    )


def _wish(wanted: Otherwise, *, me: str, now: dt.datetime) -> Wish:
    machines, people = [node.name for node in nodes_in_service(now=now)], sharers()
    like = wanted.like or (machines[0] if machines else "")
    for field, names in (("like", [like] if wanted.more else []), ("without", wanted.without)):
        if unknown := [name for name in names if name not in machines]:
            raise DomainError({field: f"There is no machine in service that is called {unknown[0]!r}."})
    weights = _weights(wanted.weight, people)
    run = None
    if wanted.job_hours is not None:
        whose = wanted.job_person or me
        if whose not in people:
            raise DomainError({"job_person": f"There is nobody called {whose!r}."})
        weights.setdefault(whose, people[whose])
        at = now.timestamp() + 3600 * wanted.job_in
        run = NewRun(whose, at, 3600 * wanted.job_hours, wanted.job_slots, wanted.job_device, wanted.job_priority)
    return Wish(more=wanted.more, like=like, without=frozenset(wanted.without), policy=wanted.policy, person_weights=weights, run=run)


def _weights(said: list[str], people: dict[str, float]) -> dict[str, float]:
    """`bob:2` as Bob's weight."""
    found = {}
    for each in said:
        name, _, number = each.rpartition(":")
        try:
            weight = float(number)
        except ValueError:
            weight = 0.0
        if not LEAST_WEIGHT <= weight <= MOST_WEIGHT:
            raise DomainError({"weight": f"Say a name and a number from {LEAST_WEIGHT} to {MOST_WEIGHT:.0f}, as in bob:2."})
        if name not in people:
            raise DomainError({"weight": f"There is nobody called {name!r}."})
        found[name] = weight
    return found


def _end(row: RunThen) -> FutureEnd:
    return FutureEnd(
        run=row.run,
        name=row.name or ELSEWHERE,
        person=row.person,
        known=not row.open,
        slots_today=row.slots[0],
        slots_then=row.slots[1],
        begins_today=row.begins[0],
        begins_then=row.begins[1],
        ends_today=row.ends[0],
        ends_then=row.ends[1],
        difference_s=row.difference_s,
    )


def _lane(lane: FutureLane) -> FutureSlot:
    bars = [FutureHold(**dataclasses.asdict(bar)) for bar in lane.bars]
    return FutureSlot(slot=lane.slot, label=lane.label, node=lane.node, state=lane.state, bars=bars)


@router.get("/cluster/replay", response=Replayed)
def replay_policy(
    request: HttpRequest,
    policy: Literal["fair_share", "priority"] | None = None,
    weight: Annotated[list[str], Query(max_length=MOST_WEIGHTS)] = [],  # noqa: B006  # ninja reads it, nobody writes it
    days: Annotated[int, Query(ge=1, le=30)] = 7,
) -> Replayed:
    """The last days under another policy or other weights (`bob:2`): what each person's runs would have waited, and when each would have
    ended. Changes nothing."""
    user = person(request)
    found = replay(
        policy=policy,
        person_weights=_weights(weight, sharers()),
        days=days,
        now=clock.now(),
        named=partial(run_pages.named_ids, user),
    )
    return Replayed(
        begin=found.begin,
        end=found.end,
        people=[
            ReplayPerson(person=each.person, runs=each.runs, was=_means(each.was), same=_means(each.same), other=_means(each.other))
            for each in found.people
        ],
        runs=[_replayed(row) for row in found.runs],
        left_out=found.left_out,
        cut=found.cut,
        assumed=list(found.assumed),
    )


def _means(means: Means) -> ReplayMeans:
    return ReplayMeans(**dataclasses.asdict(means))


def _replayed(row: RunReplayed) -> ReplayRun:
    return ReplayRun(
        run=row.run,
        name=row.name or ELSEWHERE,
        person=row.person,
        was_s=row.was.end_s,
        same_s=row.same.end_s,
        other_s=row.other.end_s,
        difference_s=row.difference_s,
    )
