"""What a receipt says of a run: what it computed with, which slots did it, and what its state was after each epoch."""

from __future__ import annotations

import hashlib
from typing import Any

from experiments.models import GenerationRecord, StateDigest, TrainingRun
from experiments.selectors import environments
from experiments.selectors.effective import effective, facts_of

MOST_GENERATIONS = 10_000


def card(run: TrainingRun) -> dict[str, Any]:
    """Of a run that `access.run` has fetched and that has ended: what its receipt seals. Values of variables are its own, never secrets."""
    return {
        "run": about(run),
        **inputs(run),
        "shape": {name: getattr(run, name) for name in ("engines", "batch_size", "epochs", "steps_per_epoch", "parameters")},
        "exact": {"promised": run.exact, "checked": run.exact_checked, "reasons": run.exact_reasons},
        "slots": [_generation(each) for each in run.generations.order_by("seq")[:MOST_GENERATIONS]],
        "digests": [{"epoch": each.epoch, "step": each.step, "digest": each.digest} for each in StateDigest.objects.filter(run=run)],
        "metrics": run.final_metrics,
    }


def about(run: TrainingRun) -> dict[str, Any]:
    """Which run it is, whose, when, and how it went."""
    return {
        "id": run.pk,
        "folder": run.folder,
        "name": run.name,
        "project": run.experiment.project.name,
        "experiment": run.experiment.name,
        "submitted_by": run.submitted_by.username,
        "submitted_at": run.submitted_at.isoformat(),
        "started_at": run.started_at.isoformat() if run.started_at else None,
        "ended_at": run.ended_at.isoformat() if run.ended_at else None,
        "state": run.state,
        "steps": run.step,
        "continues": run.continues,
        "reproduces": run.reproduces,
    }


def _generation(row: GenerationRecord) -> dict[str, Any]:
    return {"step": row.step, "at": row.at.isoformat(), "workers": row.workers, "slots": row.slots, "reason": row.reason}


def inputs(run: TrainingRun) -> dict[str, Any]:
    """What it computed with, as far as is known."""
    facts, version, data = facts_of([run]).get(run.pk), run.version, run.experiment.data_asset
    built = environments.of_run(run) if version.requirements else None
    return {
        "code": {"sha256": version.bundle.sha256, "git_commit": version.git_commit, "command": run.command},
        "arguments": {each.name: each.value for each in effective(run, facts)},
        "variables": run.environment,
        "seed": facts.seed if facts is not None else None,
        "data": {
            "name": data.name if data is not None else None,
            "version": data.version if data is not None else None,
            "sha256": data.sha256 if data is not None else None,
            "folder": run.data_folder,
        },
        "environment": {
            "python": facts.python if facts is not None else "",
            "torch": run.head_node.torch_version if run.head_node is not None else "",
            "machine": run.kind,
            "packages": facts.packages if facts is not None else {},
            "lock_sha256": hashlib.sha256(built.lock.encode()).hexdigest() if built is not None and built.lock else None,
        },
    }


def flat(said: dict[str, Any], under: str = "") -> dict[str, str]:
    """As names and texts, to be held against another run's; what is not known is left out."""
    found: dict[str, str] = {}
    for name, value in said.items():
        whole = f"{under} {name}".strip()
        if isinstance(value, dict):
            found |= flat(value, whole)
        elif value not in (None, ""):
            found[whole] = str(value)
    return found
