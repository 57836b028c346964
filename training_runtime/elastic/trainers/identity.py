"""Which training of a script this is: the same one in each process of the run, also in a process that leaves out what was done before.

That goes by the lines of the script that have led to it, and by the loops that these stand in: `for fold in range(5): ... trainer.fit()` is
five trainings at one line, of which the third is told from the first by `fold`. A loop's variable counts as far as it is plain: numbers,
texts, arrays, and lists, dictionaries, dataclasses and the like of them. No other variable does: many scripts have the time in one. A
script that goes on by itself may do so at another line (`if last: trainer.fit(ckpt_path=last) else: trainer.fit()`), with the same loops.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import functools
import hashlib
import inspect
import itertools
import json
import linecache
import sysconfig
from argparse import Namespace
from collections.abc import Iterator, Mapping, Set
from pathlib import Path, PurePath
from types import CodeType, FrameType, FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import torch

OURS = str(Path(__file__).parents[2])
LIBRARIES = tuple({sysconfig.get_path(each) for each in ("stdlib", "platstdlib", "purelib", "platlib")})
INSTALLED = frozenset({"site-packages", "dist-packages"})  # wherever these are
MOST_BYTES = 16 << 20  # of an array; of a larger one its shape
MOST_ITEMS, DEEPEST = 100_000, 6  # of a variable; what is more counts by its class
TRIAL = "trial"  # what Optuna and KerasTuner hand to a script for each set of values
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_OWNERS = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


@dataclasses.dataclass(frozen=True)
class Identity:
    """lines: a digest of the lines and the loops; loops: one of the functions and the loops alone."""

    lines: str
    loops: str


def of_caller(frame: FrameType | None) -> Identity:
    """Of the training that begins in this frame."""
    said, lines = list[Any](), list[int]()
    is_called_in_loop = has_script = False
    for each in reversed(list(_frames(frame))):
        variables, loops = each.f_locals, _loops(each)
        names = {name for loop in loops for name in loop.names if not loop.counts or isinstance(variables.get(name), int)}
        if _is_script(each.f_code.co_filename):
            said.append([PurePath(each.f_code.co_filename).name, each.f_code.co_qualname])
            lines.append(each.f_lineno)
            names.update(_arguments(each.f_code) if is_called_in_loop and has_script else ())
            has_script, is_called_in_loop = True, False
        else:
            is_called_in_loop = is_called_in_loop or bool(loops)
        said.extend([name, _plain(variables[name])] for name in sorted(names) if name in variables)
        said.append(_trial(variables.get(TRIAL)))
        if each.f_code.co_flags & inspect.CO_OPTIMIZED and type(variables) is dict:
            variables.clear()  # a copy, which Python keeps as long as the function runs, and with it what the script lets go of
    return Identity(_digest([lines, said]), _digest(said))


def _digest(said: Any) -> str:
    return hashlib.blake2b(json.dumps(said).encode(), digest_size=8).hexdigest()


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    """The callers, without those that are ours."""
    while frame is not None:
        if not frame.f_code.co_filename.startswith(OURS):
            yield frame
        frame = frame.f_back


def _is_script(filename: str) -> bool:
    return not filename.startswith((*LIBRARIES, "<frozen")) and INSTALLED.isdisjoint(PurePath(filename).parts)


def _arguments(code: CodeType) -> tuple[str, ...]:
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


@dataclasses.dataclass(frozen=True)
class _Loop:
    """Of a function, by its place in the file; names: of what is another thing each time round; counts: only a number of these is, as
    `while` may ask for the time."""

    owner: int
    first: int
    last: int
    names: frozenset[str]
    counts: bool


def _loops(frame: FrameType) -> list[_Loop]:
    """What a frame is in, of its own function."""
    owners, loops = _loops_of_file(frame.f_code.co_filename)
    line = frame.f_lineno or 0
    around = [(last - first, number) for number, (first, last) in enumerate(owners) if first <= line <= last]
    own = min(around)[1] if around else None
    return [each for each in loops if each.owner == own and each.first <= line <= each.last]


@functools.lru_cache(maxsize=256)
def _loops_of_file(filename: str) -> tuple[list[tuple[int, int]], list[_Loop]]:
    """(first and last line of each function and of the file, loops)."""
    text = "".join(linecache.getlines(filename))
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return [], []
    owners, loops = list[tuple[int, int]](), list[_Loop]()
    waiting: list[tuple[ast.AST, int]] = [(tree, 0)]
    while waiting:
        node, owner = waiting.pop()
        if isinstance(node, _OWNERS):
            owner = len(owners)
            owners.append((1, text.count("\n") + 1) if isinstance(node, ast.Module) else (node.lineno, node.end_lineno or node.lineno))
        elif (names := _names(node)) is not None:
            first = getattr(node, "lineno", 0)
            loops.append(_Loop(owner, first, getattr(node, "end_lineno", first), frozenset(names), isinstance(node, ast.While)))
        waiting.extend((each, owner) for each in ast.iter_child_nodes(node))
    return owners, loops


def _names(node: ast.AST) -> set[str] | None:
    """What is another thing each time round. None: this is no loop."""
    if isinstance(node, ast.For | ast.AsyncFor):
        return _variables(node.target)
    if isinstance(node, _COMPREHENSIONS):
        return {name for each in node.generators for name in _variables(each.target)}
    return _counted(node) if isinstance(node, ast.While) else None


def _counted(loop: ast.While) -> set[str]:
    """What is counted in there, or is asked for its end and set in there."""
    inside = [each for part in loop.body for each in ast.walk(part)]
    counted = [each.target for each in inside if isinstance(each, ast.AugAssign) and isinstance(each.value, ast.Constant)]
    stored = {each.id for each in inside if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    return {name for each in counted for name in _variables(each)} | (_variables(loop.test) & stored)


def _variables(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _trial(trial: Any) -> Any:
    said = dict[str, Any]()
    for name in ("number", "params", "trial_id"):
        value = _attribute(trial, name)
        if isinstance(value, int | str | dict):
            said[name] = _plain(value)
    values = _attribute(_attribute(trial, "hyperparameters"), "values")
    return said | ({"values": _plain(values)} if isinstance(values, dict) else {})


def _attribute(one: Any, name: str) -> Any:
    try:
        return getattr(one, name, None)
    except Exception:  # of whatever a script has called so
        return None


def _plain(value: Any) -> Any:
    """For json.dumps: what is the same in another process. Of anything else its class."""
    return _Reader().read(value)


class _Reader:
    """Of one variable."""

    def __init__(self) -> None:
        self._left = MOST_ITEMS

    def read(self, value: Any, deep: int = 0) -> Any:
        self._left -= 1
        try:
            if deep < DEEPEST and self._left > 0:
                return self._of_several(value, deep) if isinstance(value, list | tuple | Set | Mapping) else self._of_one(value, deep)
        except Exception:  # of a property of the script's, say
            return type(value).__qualname__
        return type(value).__qualname__

    def _of_several(self, value: Any, deep: int) -> Any:
        if isinstance(value, Mapping):
            return sorted(([str(key), self.read(each, deep + 1)] for key, each in value.items()), key=json.dumps)
        read = [self.read(each, deep + 1) for each in itertools.takewhile(lambda _: self._left > 0, value)]
        return sorted(read, key=json.dumps) if isinstance(value, Set) else read

    def _of_one(self, value: Any, deep: int) -> Any:
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, PurePath | bytes):
            return str(value)
        if isinstance(value, enum.Enum | type | FunctionType):
            return [value.__module__, getattr(value, "__qualname__", str(value))]
        if isinstance(value, torch.Tensor):
            value = value.detach().numpy() if value.device.type == "cpu" and value.dtype != torch.bfloat16 else None
        if isinstance(value, np.ndarray | np.generic) and value.nbytes <= MOST_BYTES and value.dtype.kind in "biufcUSM":
            return [str(value.dtype), list(value.shape), hashlib.blake2b(value.tobytes(), digest_size=8).hexdigest()]
        if dataclasses.is_dataclass(value) or isinstance(value, Namespace | SimpleNamespace):
            return self.read(dict(vars(value)), deep + 1)
        return [type(value).__qualname__, [each for each in getattr(value, "shape", ()) if isinstance(each, int)]]
