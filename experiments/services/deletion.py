"""Deletes ended runs: at once from every page, and in one transaction with all checks. Their files, points and what else there is very much
of are removed afterwards by `pruning`, which finds them by the tombstones."""

from __future__ import annotations

import datetime as dt

from django.db.models import QuerySet

from experiments.cluster import scheduling
from experiments.files import tombstones
from experiments.live import notify
from experiments.models import JournalCursor, TrainingRun, User

AT_ONCE = 500  # in one statement


def of_runs(runs: QuerySet[TrainingRun], *, by: User, now: dt.datetime) -> int:
    """Delete these, which have all ended; how many. The caller is in a transaction and holds their project's row. Pages that show one of
    them hear of it; of very many they find out by themselves within half a minute."""
    numbers = list(runs.order_by("pk").values_list("pk", flat=True))
    for first in range(0, len(numbers), AT_ONCE):
        some = numbers[first : first + AT_ONCE]
        # Cursors before their runs, as ingest takes them: it may be storing a journal's last lines.
        list(JournalCursor.objects.select_for_update().filter(pk__in=some).order_by("pk").values_list("pk", flat=True))
        tombstones.of_runs(TrainingRun.objects.filter(pk__in=some).only("pk", "folder"), by=by, now=now)
        scheduling.keep_accounts(some)
        TrainingRun.objects.filter(pk__in=some).delete()
    if len(numbers) <= AT_ONCE:
        for number in numbers:
            notify.changed(f"run-{number}", "state")
    return len(numbers)
