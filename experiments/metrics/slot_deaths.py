"""Deaths of workers by slot, as journals tell of them: evidence of slots that are out of order (`cluster.slot_health`).

User code can write such lines, so only slots count that the run really had, one row a run and slot however many there are; what follows
from them is decided over several people's runs.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable

from django.db.models import Q

from experiments.models import Grant, SlotDeath, TrainingRun
from training_runtime.scheduling.slot_health import WINDOW_S, faded

MOST_DEATHS = 1000.0  # of a run on a slot that are counted


def store_deaths(run: TrainingRun, deaths: Iterable[tuple[int, dt.datetime]], *, now: dt.datetime) -> None:
    """Workers of the run died on these slots then. What lies before the last one that is known, or before the slot was put back into
    service, is left out: a journal may be read again."""
    since = now - dt.timedelta(seconds=WINDOW_S)
    of_slot: defaultdict[int, list[dt.datetime]] = defaultdict(list)
    for slot, at in deaths:
        if at >= since:
            of_slot[slot].append(min(at, now))  # the run's machine may have a clock that is ahead
    if not of_slot:
        return
    had = Grant.objects.filter(Q(released_at=None) | Q(released_at__gte=since), run=run, slot__in=of_slot)
    for slot, trusted_since in had.order_by().values_list("slot", "slot__trusted_since").distinct():
        row = SlotDeath.objects.filter(run=run, slot=slot).first() or SlotDeath(run=run, slot_id=slot, deaths=0.0, last_at=since)
        row.last_at = min(row.last_at, now)  # the studio's clock may have been put back
        after = max(row.last_at, trusted_since or since)
        for at in sorted(at for at in of_slot[slot] if at > after):
            row.deaths = min(MOST_DEATHS, faded(row.deaths, (at - row.last_at).total_seconds()) + 1)
            row.last_at = at
        if row.deaths:
            row.save()
