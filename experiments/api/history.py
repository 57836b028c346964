"""What happened to a run, and what its slots did."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.http import HttpRequest
from ninja import Router, Schema

from experiments import access, selectors
from experiments.api.auth import person
from experiments.api.paging import Page, whole
from experiments.models import GenerationRecord, Slot
from experiments.selectors import run_pages
from experiments.selectors.utilization import slots_used
from experiments.selectors.utilization import use as use_of
from experiments.views.curves import finite

router = Router(tags=["runs"])
MOST_SLOTS = 64


class Event(Schema):
    """What happened. `kind`: "state" of a change of state or of what somebody changed, else what its script's journal says."""

    at: dt.datetime
    kind: str
    message: str
    person: str | None = None
    detail: dict[str, Any] = {}


class Generation(Schema):
    """A membership: who computed from `step` on, why, and what the change cost; `slots` by rank."""

    generation: int
    at: dt.datetime
    step: int
    epoch: int
    workers: int
    workers_before: int
    slots: list[int]
    reason: str
    pause_ms: float | None
    redone: int


class HeldSlot(Schema):
    id: int
    label: str
    node: str
    device: str


class SlotLine(Schema):
    """Of one slot at each of the times: parallel to them; null: not known, or not held."""

    id: int
    label: str
    node: str
    busy: list[float | None]
    memory_bytes: list[int | None]


class Utilization(Schema):
    """Parallel lists: until when (Unix seconds); the share of the held time that was work, averaged over the slots; the greatest memory of
    all of them together. null: not known. `slots`: each that the run has held, 64 at most."""

    times: list[float]
    busy: list[float | None]
    memory_bytes: list[int | None]
    slots: list[SlotLine]


@router.get("/runs/{int:run}/events", response=Page[Event])
def events(request: HttpRequest, run: int) -> Page[Event]:
    """Its states, what people changed, and the rare lines of its journal, oldest first: the newest thousand."""
    found = access.run(person(request), run)
    states = [
        Event(
            at=row.at, kind="state", message=row.reason, person=row.actor.username if row.actor else None, detail=_change(row.old, row.new)
        )
        for row in run_pages.transitions(found, limit=500)
    ]
    lines = [Event(at=row.at, kind=row.kind, message=row.message, detail=row.detail) for row in found.events.order_by("-seq")[:500]]
    return whole(sorted([*states, *lines], key=lambda event: event.at))


def _change(old: str, new: str) -> dict[str, str]:
    return {"old": old, "new": new}


@router.get("/runs/{int:run}/generations", response=Page[Generation])
def generations(request: HttpRequest, run: int) -> Page[Generation]:
    """Its memberships, newest first, at most 500."""
    return whole([_generation(row) for row in selectors.generations(access.run(person(request), run))])


def _generation(row: GenerationRecord) -> Generation:
    same = ("generation", "at", "step", "epoch", "workers", "workers_before", "slots", "reason", "redone")
    return Generation(pause_ms=finite(row.pause_ms), **{name: getattr(row, name) for name in same})


@router.get("/runs/{int:run}/slots", response=Page[HeldSlot])
def slots(request: HttpRequest, run: int) -> Page[HeldSlot]:
    """What it holds now."""
    return whole([_slot(slot) for slot in selectors.run_slots(access.run(person(request), run))])


def _slot(row: Slot) -> HeldSlot:
    return HeldSlot(id=row.pk, label=row.label(), node=row.node.name, device=row.device)


@router.get("/runs/{int:run}/utilization", response=Utilization)
def utilization(request: HttpRequest, run: int) -> Utilization:
    """How its slots worked, and their memory, oldest first: about 600 points, several ticks together where there are more."""
    found = access.run(person(request), run)
    held = slots_used(found)[:MOST_SLOTS]
    points = use_of(found, slots=[slot.pk for slot in held])
    lines = [
        SlotLine(
            id=slot.pk,
            label=slot.label(),
            node=slot.node.name,
            busy=[finite(each.lines[place].share) for each in points],
            memory_bytes=[each.lines[place].memory for each in points],
        )
        for place, slot in enumerate(held)
    ]
    return Utilization(
        times=[each.t for each in points],
        busy=[finite(each.share) for each in points],
        memory_bytes=[each.memory for each in points],
        slots=lines,
    )
