"""What of an observation is news, which the studio hears of at once, and what is not: sizes of journals, and how much slots have worked, go
with the next answer to the studio. Pure."""

from __future__ import annotations

from training_runtime.protocol import Observation, RunObservation


def news(seen: Observation) -> tuple[object, ...]:
    """Two observations with the same are told apart by nobody who decides."""
    return (seen.revision, seen.node, seen.storage_problem, seen.gpus, tuple(_news_of(run) for run in seen.runs))


def packages(seen: Observation) -> tuple[object, object]:
    """Environments; (None, None) where they are left out, since nothing is new about them."""
    return seen.environments, seen.folders


def _news_of(run: RunObservation) -> tuple[object, ...]:
    return (run.run, run.attempt, run.state, run.holding, run.exit_code, run.detail, run.remote, run.abandoned, run.meeting)
