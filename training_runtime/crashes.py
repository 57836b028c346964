"""How a process ended, in words and as a line of the journal, and from when on its end is none of a row. Pure, standard library only."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from typing import Literal

CRASHES = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)  # what a process does to itself
PRINTED_BYTES = 1 << 16  # at the end of a log, in which a process says why it crashes
_CAUSE_LENGTH = 300
_CAUSE = re.compile(r"^ *what\(\): +(\S.*)$", re.MULTILINE)
_STACK = re.compile(r"^Fatal Python error: .*?(?=^Extension modules:|\Z)", re.MULTILINE | re.DOTALL)
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


def cause_printed(text: str) -> tuple[str, str]:
    """Of what a process has printed before it crashed: the exception of C++ that nobody caught, and where it was in Python. Empty where it
    has not said so."""
    causes, stacks = _CAUSE.findall(text), _STACK.findall(text)
    return (causes[-1].strip()[:_CAUSE_LENGTH] if causes else "", stacks[-1].rstrip() if stacks else "")
