"""Plain values and tensors that the script's own functions and objects work with: attributes, variables that functions close over, global
names, class attributes. Watched for whether something changes them that may not.

What a library's objects keep is not looked at (a progress bar counts, a logger writes), but for modules of torch: a metric may be one.
"""

from __future__ import annotations

import sys
import types
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim.lr_scheduler import LRScheduler

from training_runtime.elastic.state import digest, references

LARGE_BYTES = 1 << 20  # of a tensor or array from which on it is not read: that it was written to is known of a tensor without
_SCALARS = (bool, int, float, complex, str, bytes)
_COLLECTIONS = (list, tuple, set, frozenset, deque)
_CODE = (partial, types.FunctionType, types.MethodType)
_REGISTERED = ("_parameters", "_buffers", "_modules")  # of a module: by the names that its author knows
_Mark = tuple[str, int, int]  # its type, its length where it has one, a hash of the plain part


class UsedValues:
    """Those that can be reached from `roots` (a name for people -> an object), but for what `known` objects hold. `caches` False: a
    dictionary that has become more is a cache, and so is a name that was None."""

    def __init__(self, roots: Mapping[str, object], *, known: Iterable[object] = (), caches: bool = True) -> None:
        self.roots, self._known, self._caches = dict(roots), list(known), caches
        self._held = self._marks(self.roots)

    def changed(self, roots: Mapping[str, object] | None = None) -> list[str]:
        """Where those are that are not what they were when they were found; by these `roots` where names have got other values."""
        now = self._marks(self.roots if roots is None else roots)
        return [name for name, mark in self._held.items() if name in now and self._differs(mark, now[name])]

    def _differs(self, before: _Mark, now: _Mark) -> bool:
        if before == now:
            return False
        return self._caches or not (before[0] == "NoneType" or (before[0] == now[0] == "dict" and now[1] > before[1]))

    def _marks(self, roots: Mapping[str, object]) -> dict[str, _Mark]:
        """Of each, by the shortest way to it."""
        found: dict[str, _Mark] = {}
        seen = {id(each) for each in self._known}
        waiting = deque[references.Reference](roots.items())
        for _ in range(references.MOST_OBJECTS):
            if not waiting:
                break
            name, value = waiting.popleft()
            mark = _mark(value)
            if mark is not None and id(value) not in seen:
                found.setdefault(name, mark)
            if id(value) not in seen and _leads_on(value):
                seen |= {id(value), *(map(id, type(value).__mro__) if not isinstance(value, type) else ())}  # with its class's own
                waiting.extend(_parts(name, value))
        return found


def _mark(value: Any) -> _Mark | None:
    """None for what is more than plain."""
    kind = type(value).__name__
    if value is None or isinstance(value, _SCALARS):
        return kind, 0, _hash(value)
    if isinstance(value, torch.Tensor):
        return None if is_lazy(value) else (kind, value.numel(), _content(value))
    if type(value).__module__ == "numpy" and hasattr(value, "tobytes"):
        return kind, value.size, 0 if value.nbytes > LARGE_BYTES else hash(value.tobytes())
    if isinstance(value, (dict, *_COLLECTIONS)):
        items = references.some(value.items() if isinstance(value, dict) else value)
        return "dict" if isinstance(value, dict) else kind, len(value), hash(tuple(map(_hash, filter(_is_plain, items))))
    return None


def _hash(plain: Any) -> int:
    """Of a scalar, or of a pair of them. The same for one NaN and another."""
    if isinstance(plain, tuple):
        return hash(tuple(map(_hash, plain)))
    return hash(plain) if isinstance(plain, (str, bytes)) else hash(repr(plain))


def _content(t: torch.Tensor) -> int:
    if t.is_inference() or t.layout != torch.strided or t.is_quantized or t.is_nested:
        return 0
    return t._version if t.device.type == "meta" or t.numel() * t.element_size() > LARGE_BYTES else digest.of(t.detach())


def _is_plain(item: Any) -> bool:
    """An entry of a collection; of a dictionary (key, value)."""
    return isinstance(item, _SCALARS) or (isinstance(item, tuple) and len(item) == 2 and all(isinstance(each, _SCALARS) for each in item))


def _leads_on(value: Any) -> bool:
    """Whether what is in it may be the script's own."""
    if isinstance(value, (*_CODE, *_COLLECTIONS, dict, nn.Module, LRScheduler, types.SimpleNamespace)):
        return True
    return references.is_users(sys.modules.get((value if isinstance(value, type) else type(value)).__module__))


def _parts(name: str, value: Any) -> Iterator[references.Reference]:
    """What is not plain of a collection, which has one name for what is; all that is in something else."""
    if isinstance(value, type):
        found = ((f"{name}.{key}", references.function_behind(each)) for key, each in references.some(vars(value).items()))
        yield from (each for each in found if not each[0].rpartition(".")[2].startswith("__") or callable(each[1]))
        return
    if isinstance(value, nn.Module):
        for key, each in vars(value).items():
            in_it = each.items() if key in _REGISTERED else ((key, each),)
            yield from ((f"{name}.{inner}", part) for inner, part in in_it)
        return
    is_collection = isinstance(value, (dict, *_COLLECTIONS))
    yield from (each for each in references.parts(name, value) if not (is_collection and isinstance(each[1], _SCALARS)))
