"""How a process ended, in words and as a line of the journal, and from when on its end is none of a row. Pure, standard library only."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Literal

GOT_ON_S = 10.0  # a run that trains for so long gets more done than starting it again costs


@dataclass(frozen=True)
class Died:
    """A line of the journal: a worker died on `slot` (the studio's id) while that was the run's, of something that the slot may be to blame
    for. One such line says nothing of a slot; many of several runs may (`scheduling.slot_health`)."""

    slot: int
    kind: Literal["died"] = "died"


def ended_how(exit_code: int | None, who: str = "driver") -> str:
    if exit_code is None or exit_code >= 0:
        return f"the {who} is gone" if exit_code is None else f"the {who} ended with code {exit_code}"
    try:
        return f"the {who} was killed by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"the {who} was killed by signal {-exit_code}"
