"""Random generators of the script's own: found by looking at what it handed over, and watched for whether they are drawn from.

The generators of torch, `random` and numpy that everybody shares are seeded for each batch; one that a dataset or a model keeps for itself
is not: what it gives depends on what was computed before, and where. What a callback keeps goes with the state of the run, and is not
looked at.
"""

from __future__ import annotations

import pickle
import random
import sys
import types
from collections import deque
from collections.abc import Iterable, Iterator, Mapping

import torch

from training_runtime.elastic.state import references
from training_runtime.elastic.state.references import Reference


class Watched:
    """The generators that can be reached from `roots` (a name for people -> an object), but for what `known` objects hold."""

    def __init__(self, roots: Mapping[str, object], *, known: Iterable[object] = ()) -> None:
        self._found = [(name, each, _state(each)) for name, each in generators(roots, known)]

    def drawn(self) -> list[str]:
        """Where those are that have been drawn from since they were found."""
        return [name for name, each, state in self._found if _state(each) != state]


def generators(roots: Mapping[str, object], known: Iterable[object] = ()) -> list[Reference]:
    """Each once, by the shortest way to it."""
    shared, seen = {id(each) for each in _shared()}, {id(each) for each in known}
    found: list[Reference] = []
    waiting = deque[Reference](roots.items())
    for _ in range(references.MOST_OBJECTS):
        if not waiting:
            break
        name, value = waiting.popleft()
        if id(value) in seen or isinstance(value, (str, bytes, int, float, torch.Tensor, types.ModuleType)):
            continue
        seen.add(id(value))
        if _state(value) is None:
            waiting.extend(references.parts(name, value))
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
