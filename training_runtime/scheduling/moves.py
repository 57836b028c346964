"""What it costs a run to go to another machine, and when it therefore does not. Pure arithmetic, standard library only.

A move costs the run the whole prologue of its script (imports, data, model), and its state from disk. A run that has just moved stays where
it is for STAYS times that, also while it holds nothing there: so moves take at most one part in STAYS of anybody's time, however others
come and go.
"""

from __future__ import annotations

from training_runtime.scheduling.facts import RunFacts

USUAL_S = 5.0  # where nothing has been measured
HANDOVER_S = 2.0  # what a move takes beside the prologue: the state is written and read, one process ends and another begins
STAYS = 10.0
WORTH = 6.0  # how many times its cost a move has to save, where the time left is known


def cost_s(run: RunFacts) -> float:
    """How long the run does nothing when it moves."""
    return USUAL_S if run.prologue_s is None else max(0.0, run.prologue_s) + HANDOVER_S


def has_just_moved(run: RunFacts, *, now: float) -> bool:
    """Whether it is too early to move it again. Before it has come to train() it has little to lose."""
    return run.engines is not None and run.moved_at is not None and now - run.moved_at < STAYS * cost_s(run)


def is_worth(run: RunFacts, *, faster: float) -> bool:
    """Whether a move saves enough to a machine where the run is that many times as fast."""
    return run.remaining_s is None or run.remaining_s * (1 - 1 / faster) >= WORTH * cost_s(run)
