"""Random generators of the script's own: found by looking at what it handed over, and watched for whether they are drawn from.

The generators of torch, `random` and numpy that everybody shares are seeded for each batch; one that a dataset or a model keeps for itself
is not: what it gives depends on what was computed before, and where. What a callback keeps goes with the state of the run, and is not
looked at.
"""

from __future__ import annotations

import functools
import pickle
import random
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

MOST_OBJECTS = 50_000
MOST_OF_ONE = 1_000  # entries of one container that are looked at

FoundGenerator = tuple[str, Any]  # where it is, in the script's words, and what is there


class Watched:
    """The generators that can be reached from `roots` (a name for people -> an object)."""

    def __init__(self, roots: Mapping[str, object]) -> None:
        self._found = [(name, each, _state(each)) for name, each in generators(roots)]

    def drawn(self) -> list[str]:
        """Where those are that have been drawn from since they were found."""
        return [name for name, each, state in self._found if _state(each) != state]


def generators(roots: Mapping[str, object]) -> list[FoundGenerator]:
    """Each once, by the shortest way to it."""
    shared, seen = {id(each) for each in _shared()}, set[int]()
    found: list[FoundGenerator] = []
    waiting = deque[FoundGenerator](roots.items())
    for _ in range(MOST_OBJECTS):
        if not waiting:
            break
        name, value = waiting.popleft()
        if id(value) in seen or isinstance(value, (str, bytes, int, float, torch.Tensor, types.ModuleType)):
            continue
        seen.add(id(value))
        if _state(value) is None:
            waiting.extend(_parts(name, value))
        elif id(value) not in shared:
            found.append((name, value))
    return found


def _state(value: object) -> bytes | None:
    """Where a generator stands; None for what is none."""
    if isinstance(value, random.SystemRandom):
        return None  # it has no state
    if isinstance(value, random.Random):
        return pickle.dumps(value.getstate())
    if isinstance(value, torch.Generator):
        return bytes(value.get_state().tolist())
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, (numpy.random.Generator, numpy.random.RandomState)):
        return pickle.dumps(value.bit_generator.state if isinstance(value, numpy.random.Generator) else value.get_state(legacy=False))
    return None


def _shared() -> Iterator[object]:
    """Those that are seeded for each batch."""
    yield random._inst
    yield torch.default_generator
    if "numpy" in sys.modules:
        yield sys.modules["numpy"].random.mtrand._rand


def _parts(name: str, value: Any) -> Iterator[FoundGenerator]:
    """What `value` holds or, where it is a function, uses."""
    if isinstance(value, dict):
        yield from ((f"{name}[{key!r}]", each) for key, each in _some(value.items()))
    elif isinstance(value, (list, tuple, set, frozenset, deque)):
        yield from ((f"{name}[{i}]", each) for i, each in enumerate(_some(value)))
    elif isinstance(value, functools.partial):
        yield from ((name, each) for each in (value.func, *value.args, *value.keywords.values()))
    elif isinstance(value, types.MethodType):
        yield from ((name, value.__self__), (name, value.__func__))
    elif isinstance(value, types.FunctionType):
        yield from _used(name, value)
    elif not isinstance(value, type):
        yield from ((f"{name}.{key}", each) for key, each in _some(getattr(value, "__dict__", {}).items()))
        for cls in type(value).__mro__:
            if _is_users(sys.modules.get(cls.__module__)):
                yield from ((f"{name}.{key}", function_behind(each)) for key, each in vars(cls).items())


def _some(values: Any) -> list[Any]:
    return [each for each, _ in zip(values, range(MOST_OF_ONE), strict=False)]


def function_behind(value: object) -> object:
    """The function behind what stands in a class."""
    return value.fget if isinstance(value, property) else getattr(value, "__func__", value)


def _used(name: str, function: Callable[..., Any]) -> Iterator[FoundGenerator]:
    """What a function refers to: cells, defaults, globals, and names of the modules of the script."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    for key, cell in cells:
        try:
            yield f"{name}: {key}", cell.cell_contents
        except ValueError:  # not filled yet
            continue
    yield from ((name, each) for each in function.__defaults__ or ())
    if not _is_users(sys.modules.get(function.__module__ or "")):
        return
    names = list(_names(function.__code__))
    for key in names:
        value = function.__globals__.get(key)
        if isinstance(value, types.ModuleType) and _is_users(value):
            yield from ((f"{name}: {key}.{inner}", vars(value)[inner]) for inner in names if inner in vars(value))
        else:
            yield f"{name}: {key}", value


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _names(inner)


def _is_users(module: types.ModuleType | None) -> bool:
    """Whether a module is one of the script, not an installed one or ours."""
    file = getattr(module, "__file__", None)
    if module is None or not file:
        return module is not None and module.__name__ == "__main__"
    path = Path(file).resolve()
    return not any(folder in path.parents for folder in _installed())


@functools.cache
def _installed() -> tuple[Path, ...]:
    return tuple(
        Path(folder).resolve() for folder in (Path(__file__).parents[2], sys.prefix, sys.base_prefix, Path(torch.__file__).parent.parent)
    )
