"""What a script registers of its own that learns during the training, so that workers that join and checkpoints have it.

Modules, optimizers, schedulers and whatever has `state_dict` and `load_state_dict`, and objects of the script's own classes, are found in
here by name (see `held`). Plain collections, tensors and arrays say what is in them here, and are changed in place: the script holds them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, MutableMapping, MutableSequence, MutableSet
from typing import Any

import torch

from training_runtime.elastic.state import learned
from training_runtime.errors import UserError

CANNOT = (
    "state: {!r} is {}, which cannot be carried to workers that join: give a dict, a list, a tensor, an object of a class of your own, or "
    "anything with state_dict() and load_state_dict()"
)


class Registered:
    """The `multinode.payloads` objects by name. UserError where one cannot be carried."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        for name, value in given.items():
            if not (_is_plain(value) or learned.is_leaf(value) or learned.is_holder(value)):
                raise UserError(CANNOT.format(name, "of no mutable kind" if isinstance(value, (int, float, str)) else _kind(value)))
        self.given = dict(given)

    def state_dict(self) -> dict[str, Any]:
        return {name: value for name, value in self.given.items() if _is_plain(value)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, value in state.items():
            if name in self.given and _is_plain(self.given[name]):
                _put(self.given[name], value)


def early_end() -> Registered:
    """Whether the script has asked for the end of the training (`asked`), and after which position that is (`tick`; 0: not yet)."""
    return Registered({"by script": {"asked": 0, "tick": 0}})


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"


def _is_array(value: object) -> bool:
    return type(value).__module__ == "numpy" and type(value).__name__ == "ndarray"


def _is_plain(value: object) -> bool:
    return isinstance(value, (torch.Tensor, dict, list, set, deque)) or _is_array(value)


def _put(mine: Any, value: Any) -> None:
    if mine is value:
        return
    if isinstance(mine, torch.Tensor):
        with torch.no_grad():
            mine.copy_(value)
    elif _is_array(mine):
        mine[...] = value
    elif isinstance(mine, MutableMapping):
        mine.clear()
        mine.update(value)
    elif isinstance(mine, deque):
        mine.clear()
        mine.extend(value)
    elif isinstance(mine, MutableSequence):
        mine[:] = value
    elif isinstance(mine, MutableSet):
        mine.clear()
        mine |= value
