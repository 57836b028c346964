"""Works on code that people uploaded: parsing, colouring and comparing can take for ever, or all memory, over text that was written for
that. So a boxed child does it (`experiments.boxed.code`), and what is too much for it is not shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from experiments.boxed import pool, strict
from experiments.boxed.pool import Busy
from experiments.definitions import trainers
from experiments.definitions.script_argument import Argument
from training_runtime.errors import ProtocolError
from training_runtime.records import build

__all__ = ["Busy", "ScriptFacts", "ask"]

LIMITS = pool.Limits(cpu_s=3, memory_bytes=768 << 20)
WALL_S = 20.0
MOST_LINES, MOST_BYTES = 100_000, 12 << 20  # of an answer
KINDS = ("add", "del", "same", "place")
# The marks that colouring puts around text, and nothing else: it goes into a page as it is.
_COLOURED = re.compile(
    r'<div class="code"><pre>(?:[^<>&]++|&(?:amp|lt|gt|quot|\#39);|<span(?: class="[A-Za-z0-9 _-]{1,80}")?>|</span>'
    r'|<a id="line-[0-9]{1,7}" name="line-[0-9]{1,7}">|</a>)*+</pre></div>\n?'
)


@dataclass(frozen=True)
class ScriptFacts:
    """What a script says of itself and of its arguments (see `scriptargs.ScriptHelp`); `trainer`: by whose it trains (see `trainers`).
    `syntax_error`: with its line, where there is one."""

    description: str
    arguments: tuple[Argument, ...]
    runnable: bool
    is_whole: bool
    trainer: str
    syntax_error: str


@dataclass(frozen=True)
class _Scripts:
    by_path: dict[str, ScriptFacts]


def ask(do: str, **said: Any) -> Any:
    """The answer to one of `_BELIEVED`; None where it was too much. Raises Busy."""
    try:
        answer = pool.ask(do, said, limits=LIMITS, wall_s=WALL_S, most_bytes=MOST_BYTES)
        return _BELIEVED[do](answer)
    except Busy:
        raise
    except (pool.Unreadable, ProtocolError, OSError):
        return None


def _scripts(raw: object) -> dict[str, ScriptFacts]:
    found = build(_Scripts, {"by_path": raw}).by_path
    for told in found.values():
        strict.one_of(told.trainer, ("", trainers.EXACT, *trainers.NAMES))
        if not all(argument.flags for argument in told.arguments):
            raise ProtocolError("an argument has no name")
    return found


def _coloured(raw: object) -> str:
    found = strict.text(raw)
    if not _COLOURED.fullmatch(found):
        raise ProtocolError("it is not what colouring makes")
    return found


def _differences(raw: object) -> list[tuple[str, str]]:
    lines = [strict.texts(each, exactly=2) for each in strict.items(raw, MOST_LINES)]
    return [(strict.one_of(kind, KINDS), line) for kind, line in lines]


_BELIEVED: dict[str, Callable[[object], Any]] = {"scripts": _scripts, "coloured": _coloured, "differences": _differences}
