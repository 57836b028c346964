"""Pools of pilots as their page has them: what is held and why, and what a policy would do now."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from django.http import Http404

from experiments import access
from experiments.access import AnyUser
from experiments.cluster.pilot_facts import LIVE, PROVIDERS, decided, need
from experiments.cluster.providers import EngineProblem, Offer
from experiments.models import Pilot, PilotPool

MOST_ENDED = 20


@dataclass(frozen=True)
class PoolRow:
    """`held`: its pilots that have not ended, `ended`: the newest of those that have."""

    pool: PilotPool
    held: list[Pilot]
    ended: list[Pilot]


def pool(user: AnyUser, name: str) -> PilotPool:
    """For administrators of the cluster alone, to look and to change. Raises Http404 where there is none."""
    access.rules(user, need="admin")
    found = PilotPool.objects.filter(name=name).first()
    if found is None:
        raise Http404("There is no such pool.")
    return found


def pools() -> list[PoolRow]:
    return [of_pool(pool) for pool in PilotPool.objects.all()]


def of_pool(pool: PilotPool) -> PoolRow:
    held = list(Pilot.objects.filter(pool=pool, phase__in=LIVE).order_by("pk"))
    return PoolRow(pool, held, list(Pilot.objects.filter(pool=pool, phase=Pilot.Phase.ENDED)[:MOST_ENDED]))


def foreseen(pool: PilotPool, *, now: dt.datetime) -> Sequence[str]:
    """What would be decided now with the pool as it is given, saved or not, in sentences. Writes nothing and asks no engine."""
    held = list(Pilot.objects.filter(pool=pool, phase__in=LIVE)) if pool.pk else []
    return decided(pool, held, need(pool, now=now), now=now).words


def offers(provider: str) -> tuple[Sequence[Offer], str]:
    """What the engine lends, and why that cannot be said."""
    if provider not in PROVIDERS:
        raise Http404("There is no such engine.")
    try:
        return PROVIDERS[provider].offers(), ""
    except EngineProblem as problem:
        return (), str(problem)
