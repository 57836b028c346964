"""Verbs of an administrator on pools of pilots: what may be held of an engine that lends machines."""

from __future__ import annotations

import datetime as dt
import math
import re
from typing import Any

from django.db import transaction

from experiments.cluster import snapshot
from experiments.cluster.pilot_facts import LIVE, PROVIDERS
from experiments.errors import DomainError
from experiments.models import Node, Pilot, PilotPool, Slot, User
from experiments.ops import clock
from experiments.services import checks
from experiments.services.cluster import note

MOST_PILOTS, MOST_SLOTS = 1000, 1024
LEAST_WALLTIME, MOST_WALLTIME = 2, 60 * 24 * 60  # minutes
MOST_IDLE = 60 * 24 * 30
FIELDS = {
    "studio": "the studio's address",
    "options": "options",
    "slots": "slots of a pilot",
    "device": "device",
    "least": "pilots at least",
    "most": "pilots at most",
    "idle_minutes": "minutes of idleness",
    "walltime_minutes": "minutes of an allocation",
    "grow": "growth",
}
_ADDRESS = re.compile(r"https?://[A-Za-z0-9.\[\]:_-]+(?:/[A-Za-z0-9._~/-]*)?")
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")


def create_pool(*, by: User, name: str, reason: str = "", now: dt.datetime | None = None, **given: Any) -> PilotPool:
    """A pool of pilots. `given`: see FIELDS, and `provider`, which stays as it is. Fields: name and those."""
    now = now or clock.now()
    if not _NAME.fullmatch(name):
        checks.refuse("name", "Small letters, digits and dashes only, at most 40, beginning and ending with a letter or a digit.")
    with transaction.atomic():
        if PilotPool.objects.filter(name=name).exists():
            checks.refuse("name", f"There is a pool {name} already: choose another name.")
        if Node.objects.filter(name__regex=rf"^{re.escape(name)}-[0-9]+$", removed_at=None).exists():
            checks.refuse("name", f"Machines are called {name}-1 or the like already, as its pilots would be: choose another name.")
        pool = PilotPool(name=name, **given)
        _check(pool)
        pool.save()
        said = f"made the pool of pilots {name} of {pool.get_provider_display()}: {pool.least} to {pool.most} of {pool.slots} slots each"
        note(by, [said], reason=reason, now=now)
    return pool


def change_pool(pool: PilotPool, *, by: User, reason: str = "", now: dt.datetime | None = None, **given: Any) -> PilotPool:
    """What is given is otherwise from now on (see FIELDS); pilots that are held already stay as they were asked for."""
    now = now or clock.now()
    with transaction.atomic():
        pool = PilotPool.objects.select_for_update().get(pk=pool.pk)
        before = {name: getattr(pool, name) for name in given}
        changed_pool(pool, **given)
        said = [
            f"changed of the pool of pilots {pool.name} {FIELDS[name]} from {before[name]} to {value}"
            for name, value in given.items()
            if before[name] != value
        ]
        if said:
            pool.failures, pool.failed_at, pool.problem = 0, None, ""  # what failed before may not now
            pool.save()
            note(by, said, reason=reason, now=now)
    return pool


def changed_pool(pool: PilotPool, **given: Any) -> PilotPool:
    """The row as it would be, which is not saved: also for a preview. Refuses as `change_pool` does."""
    for name, value in given.items():
        if name not in FIELDS:
            raise DomainError({name: [f"Nothing of a pool is called {name}."]})
        setattr(pool, name, value)
    _check(pool)
    return pool


def delete_pool(pool: PilotPool, *, by: User, reason: str = "", now: dt.datetime | None = None) -> None:
    """Refused while it holds pilots: with at most 0 they are emptied and given back first."""
    with transaction.atomic():
        snapshot.lock_rules()  # nobody asks for a pilot meanwhile
        if Pilot.objects.filter(pool=pool, phase__in=LIVE).exists():
            raise DomainError(f"{pool.name} holds pilots: set the most to 0 and wait until they are given back.")
        note(by, [f"deleted the pool of pilots {pool.name}"], reason=reason, now=now)
        PilotPool.objects.filter(pk=pool.pk).delete()


def _check(pool: PilotPool) -> None:
    if pool.provider not in PROVIDERS:
        checks.refuse("provider", f"Choose one of: {', '.join(PilotPool.Provider.labels)}.")
    pool.studio = pool.studio.strip().rstrip("/")
    if not _ADDRESS.fullmatch(pool.studio):
        checks.refuse("studio", "Give the address under which machines of the engine reach the studio, as in https://studio.example.org.")
    try:
        PROVIDERS[pool.provider].check(pool.options)
    except ValueError as error:
        checks.refuse("options", str(error))
    if pool.device not in Slot.Device.values:
        checks.refuse("device", "Choose cpu or gpu.")
    checks.whole(pool.slots, field="slots", least=1, most=MOST_SLOTS)
    checks.whole(pool.most, field="most", least=0, most=MOST_PILOTS)
    checks.whole(pool.least, field="least", least=0, most=pool.most)
    checks.whole(pool.walltime_minutes, field="walltime_minutes", least=LEAST_WALLTIME, most=MOST_WALLTIME)
    if not math.isfinite(pool.idle_minutes) or not 0 <= pool.idle_minutes <= MOST_IDLE:
        checks.refuse("idle_minutes", f"Give a number of minutes from 0 to {MOST_IDLE}.")
