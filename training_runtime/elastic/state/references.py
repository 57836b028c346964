"""What an object of the script holds, or a function of it uses: the steps of a walk through all that can be reached from it, with names
in the script's words.
"""

from __future__ import annotations

import dis
import functools
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

MOST_OBJECTS = 50_000  # on one walk
MOST_OF_ONE = 1_000  # entries of one container that are looked at

GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL")  # what refers to a global name

Reference = tuple[str, Any]  # where it is, in the script's words, and what is there


def parts(name: str, value: Any) -> Iterator[Reference]:
    """What `value` holds or, where it is a function, uses."""
    if isinstance(value, dict):
        yield from ((f"{name}[{key!r}]", each) for key, each in some(value.items()))
    elif isinstance(value, (list, tuple, set, frozenset, deque)):
        yield from ((f"{name}[{i}]", each) for i, each in enumerate(some(value)))
    elif isinstance(value, functools.partial):
        yield from ((name, each) for each in (value.func, *value.args, *value.keywords.values()))
    elif isinstance(value, types.MethodType):
        yield from ((name, value.__self__), (name, value.__func__))
    elif isinstance(value, types.FunctionType):
        yield from _used(name, value)
    elif not isinstance(value, type):
        yield from ((f"{name}.{key}", each) for key, each in some(getattr(value, "__dict__", {}).items()))
        for cls in type(value).__mro__:
            if is_users(sys.modules.get(cls.__module__)):
                yield from ((f"{name}.{key}", function_behind(each)) for key, each in vars(cls).items())


def some(values: Any) -> list[Any]:
    return [each for each, _ in zip(values, range(MOST_OF_ONE), strict=False)]


def function_behind(value: object) -> object:
    """The function behind what stands in a class."""
    return value.fget if isinstance(value, property) else getattr(value, "__func__", value)


def _used(name: str, function: Callable[..., Any]) -> Iterator[Reference]:
    """What a function refers to: cells, defaults, globals, and names of the modules of the script."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    for key, cell in cells:
        try:
            yield f"{name}: {key}", cell.cell_contents
        except ValueError:  # not filled yet
            continue
    yield from ((name, each) for each in function.__defaults__ or ())
    if not is_users(sys.modules.get(function.__module__ or "")):
        return
    names = dict(_names(function.__code__))
    for key in names:
        value = function.__globals__.get(key)
        if isinstance(value, types.ModuleType) and is_users(value):
            yield from ((f"{name}: {key}.{inner}", vars(value)[inner]) for inner in names if inner in vars(value))
        elif names[key] and key in function.__globals__:
            yield f"{name}: {key}", value


def _names(code: types.CodeType) -> Iterator[tuple[str, bool]]:
    """Each name in it and in the functions in it, and at last whether it is a global one: it may be an attribute's."""
    yield from ((name, False) for name in code.co_names)
    yield from ((each.argval, True) for each in dis.get_instructions(code) if each.opname in GLOBAL)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _names(inner)


def is_users(module: types.ModuleType | None) -> bool:
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
