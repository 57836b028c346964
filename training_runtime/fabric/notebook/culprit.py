"""Which of the things that train() was given cannot travel, or is too large: the way to it through functions, their variables, attributes
and items. Knows nothing of pickling: it is told what is wrong with a thing, and how large it is."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

DEEPEST = 12
MOST_ITEMS = 1000
CANNOT = (
    "train: {} cannot be sent to the process that trains: it is {} ({}). Open or make it inside the function that uses it, for example in "
    "datasets_function, which is called there; or keep it out of what the model, the functions and the callbacks refer to"
)
LARGE = (
    "train: more than {} would have to travel to the studio; the largest part is {} with {}. Put data where runs find them (a data asset "
    "or the shared data root) and have datasets_function read them there: os.environ['DATA_DIR']"
)
Way = tuple[str, ...]


def unpicklable(made: Mapping[str, Any], trouble: Callable[[object], BaseException | None]) -> str:
    """A sentence about the innermost thing that has `trouble`; empty where none has."""
    for name, value in made.items():
        if (found := _innermost(value, (name,), trouble, set())) is not None:
            way, inner, error = found
            return CANNOT.format(describe(way), _kind(inner), f"{type(error).__name__}: {error}")
    return ""


def _innermost(
    value: object, way: Way, trouble: Callable[[object], BaseException | None], seen: set[int]
) -> tuple[Way, object, BaseException] | None:
    if id(value) in seen or (error := trouble(value)) is None:
        return None
    seen.add(id(value))
    if len(way) < DEEPEST:
        for name, inner in parts(value):
            if (found := _innermost(inner, (*way, name), trouble, seen)) is not None:
                return found
    return way, value, error


def too_large(made: Mapping[str, Any], measure: Callable[[object], int], most_bytes: int) -> str:
    """A sentence about the largest."""
    sizes = {name: measure(value) for name, value in made.items()}
    name = max(sizes, key=lambda each: sizes[each])
    way: Way = (name,)
    value, size = made[name], sizes[name]
    while len(way) < DEEPEST:
        inner = [(measure(each), called, each) for called, each in parts(value)]
        largest = max(inner, key=lambda each: each[0], default=None)
        if largest is None or largest[0] < size / 2:
            break
        size, called, value = largest
        way = (*way, called)
    return LARGE.format(short(most_bytes), describe(way), short(size))


def parts(value: object) -> Iterator[tuple[str, object]]:
    """What a thing is made of or refers to, with the words for it."""
    if isinstance(value, MethodType):
        yield "__self__", value.__self__
    elif isinstance(value, FunctionType):
        yield from _variables(value)
    elif isinstance(value, functools.partial):
        yield from (("func", value.func), *((f"argument {i}", each) for i, each in enumerate(value.args)), *value.keywords.items())
    elif isinstance(value, dict):
        yield from ((f"[{key!r}]"[:60], each) for key, each in list(value.items())[:MOST_ITEMS])
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from ((f"[{i}]", each) for i, each in enumerate(list(value)[:MOST_ITEMS]))
    elif isinstance(value, type):
        own = [(name, each) for name, each in list(vars(value).items()) if callable(each) or not name.startswith("__")]
        yield from ((f".{name}", each) for name, each in own)
    elif not isinstance(value, ModuleType) and hasattr(value, "__dict__"):
        yield from ((f".{name}", each) for name, each in list(vars(value).items()))
        yield "its class", type(value)


def _variables(function: FunctionType) -> Iterator[tuple[str, object]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not set yet
            continue
    for name in sorted(_names(function.__code__)):
        if name in function.__globals__:
            yield name, function.__globals__[name]
    yield from ((f"default {i}", each) for i, each in enumerate(function.__defaults__ or ()))


def _names(code: CodeType) -> set[str]:
    inner = (_names(each) for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*inner)


def describe(way: Way) -> str:
    """ "datasets_function > rows > .connection" """
    return " > ".join(way)


def short(size: int) -> str:
    """Bytes as "512 B", "1.5 KiB", "20.0 MiB" or "3.2 GiB"."""
    value = float(size)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def _kind(value: object) -> str:
    kind = type(value)
    return f"a {kind.__qualname__}" if kind.__module__ in ("builtins", "__main__") else f"a {kind.__module__}.{kind.__qualname__}"
