"""What the body of a loop in the script does with names, by its code: no line of it is run here."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Iterator
from itertools import takewhile
from types import CodeType, FrameType
from typing import Any

_LOADS = ("LOAD_FAST", "LOAD_NAME", "LOAD_GLOBAL", "LOAD_DEREF", "LOAD_CLOSURE")
_STORES = ("STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF")
_Use = tuple[str, bool]  # a name, and whether it is assigned


def script_frame(frame: FrameType) -> FrameType:
    """The script's own frame above generators, which a loop goes through."""
    while frame.f_back is not None and frame.f_code.co_flags & inspect.CO_GENERATOR:
        frame = frame.f_back
    return frame


def body_of(frame: FrameType) -> range:
    """Where the body of the loop is in the frame's code that asks for its next item now: of a `for`, or of the loop around a `next(...)`.
    Empty where there is none."""
    around = range(0)
    for each in dis.get_instructions(frame.f_code):
        if each.offset == frame.f_lasti and each.opname == "FOR_ITER":
            return range(each.offset + 2, each.argval)
        if "JUMP_BACKWARD" in each.opname and each.argval <= frame.f_lasti < each.offset and not around:
            around = range(each.argval, each.offset + 2)
    return around


def targets(frame: FrameType, body: range) -> list[str]:
    """Names that the `for` itself assigns where it takes apart what it goes through (`for i, step in enumerate(...)`), if the body reads
    them."""
    uses = list(_uses(frame.f_code, body))
    instructions = [each for each in dis.get_instructions(frame.f_code) if each.offset in body and each.opname not in ("CACHE", "NOP")]
    if not instructions or instructions[0].opname != "UNPACK_SEQUENCE":
        return []
    made = [each.argval for each in takewhile(lambda each: each.opname in (*_STORES, "UNPACK_SEQUENCE"), instructions)]
    return [name for name in made if (name, False) in uses]


def carried(frame: FrameType, body: range) -> list[str]:
    """Names that a pass of the body reads as the one before has left them, or the script in front of the loop."""
    return _first(_uses(frame.f_code, body), assigned=False)


def read_behind(frame: FrameType, inner: range, end: int) -> list[str]:
    """Names that the inner loop assigns, and that are read between it and `end` before they get another value."""
    made = {name for name, is_assigned in _uses(frame.f_code, inner) if is_assigned}
    return [name for name in _first(_uses(frame.f_code, range(inner.stop, end)), assigned=False) if name in made]


def values(frame: FrameType, names: list[str]) -> dict[str, Any]:
    """Of those that there are. The interpreter's copy of a function's variables is emptied: it would keep tensors alive."""
    local = frame.f_locals
    found = {name: local.get(name, frame.f_globals.get(name)) for name in names if name in local or name in frame.f_globals}
    if frame.f_code.co_flags & inspect.CO_OPTIMIZED and isinstance(local, dict):
        local.clear()
    return found


def _first(uses: Iterator[_Use], *, assigned: bool) -> list[str]:
    """The names whose first use is of this kind."""
    firsts: dict[str, bool] = {}
    for name, is_assigned in uses:
        firsts.setdefault(name, is_assigned)
    return [name for name, is_assigned in firsts.items() if is_assigned == assigned]


def _uses(code: CodeType, where: range) -> Iterator[_Use]:
    for each in dis.get_instructions(code):
        if each.offset not in where:
            continue
        if each.opname.startswith(_LOADS):
            yield each.argval, False
        elif each.opname in _STORES:
            yield each.argval, True
        elif isinstance(each.argval, CodeType):  # a comprehension, a lambda
            yield from ((name, False) for name in (*each.argval.co_names, *each.argval.co_freevars))
