"""Digests of runs' states from their journals: stores them and compares those that come again. Called by ingest only."""

from __future__ import annotations

from typing import Any

from experiments.metrics.journal_rows import Rows
from experiments.models import StateDigest, TrainingRun

MOST = 10_000  # of a run: user code can write any number of lines
TWICE = "epoch {} was computed twice, after an interruption, {}"
OTHER = "and its state was another one the second time"


def store_digests(run: TrainingRun, rows: Rows) -> dict[str, Any]:
    """Store the first of each epoch. What is to be written of the run where one that came again is not the same: it is not exact, and what
    its journal says of that later takes nothing back."""
    others = _others(run, rows)
    reasons = [reason for reason in run.exact_reasons if reason.endswith(OTHER)] or [TWICE.format(epoch, OTHER) for epoch in others[:1]]
    if not reasons:
        return {}
    said = rows.progress.get("exact_reasons", run.exact_reasons)
    return {"exact": False, "exact_reasons": [*(reason for reason in said if reason not in reasons), *reasons]}


def _others(run: TrainingRun, rows: Rows) -> list[int]:
    """Stores them; the epochs whose state was another one before."""
    if not rows.digests:
        return []
    known = {each.epoch: (each.step, each.digest) for each in StateDigest.objects.filter(run=run, epoch__in=rows.digests)}
    new = [
        StateDigest(run=run, epoch=epoch, step=step, digest=digest) for epoch, (step, digest) in rows.digests.items() if epoch not in known
    ]
    room = max(0, MOST - StateDigest.objects.filter(run=run).count()) if new else 0
    StateDigest.objects.bulk_create(new[:room], ignore_conflicts=True)
    rows.left_out["digests"] += len(new) - len(new[:room])
    return sorted({*rows.other_digests, *(epoch for epoch, said in rows.digests.items() if known.get(epoch, said) != said)})
