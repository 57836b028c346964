"""The script's global names that its callbacks and the optimizer's hooks work with: an average of the weights, a counter, a dict of
figures.

Not the data that they read: nothing that is larger than the model. Modules, optimizers and schedulers are found without this (see
`learned`). What a loss or a step of the script's own changes depends on who computes, so it is not looked for here.
"""

from __future__ import annotations

import dis
import random
import types
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from training_runtime.elastic.state import learned
from training_runtime.elastic.state.pickling import is_users_module
from training_runtime.elastic.state.references import function_behind

LEAST_BYTES = 1 << 20  # that are looked after even of a small model
_NUMBER_BYTES = 8
_CHANGED_IN_PLACE = (dict, list, set, deque, torch.Tensor, torch.Generator, random.Random)
_OF_NUMPY = ("ndarray", "Generator", "RandomState")
_REFERS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL"})
_FIXED = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, torch.utils.data.Dataset, torch.utils.data.DataLoader)


@dataclass(frozen=True)
class Variable:
    """A global name. It gets another value as an attribute does: who holds the same object elsewhere gets the same one."""

    namespace: dict[str, Any]
    name: str

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.namespace.get(self.name)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.namespace[self.name] = state["value"]


def of(model: torch.nn.Module, optimizer: torch.optim.Optimizer, callbacks: Sequence[object]) -> dict[str, object]:
    """Those of a training that begins, by name: objects of the script's own classes as they are, a Variable for what stands for itself."""
    hooks = [*optimizer._optimizer_step_pre_hooks.values(), *optimizer._optimizer_step_post_hooks.values()]
    most_bytes = LEAST_BYTES + sum(t.numel() * t.element_size() for t in (*model.parameters(), *model.buffers()))
    found: dict[str, object] = {}
    for variable, is_assigned in _used([*callbacks, *hooks, optimizer]):
        value = variable.namespace[variable.name]
        if isinstance(value, (*_FIXED, *learned.LEARNS)) or _is_larger(value, most_bytes):
            continue
        name = f"global {variable.namespace.get('__name__')}.{variable.name}"
        if is_assigned or _is_changed_in_place(value):
            found[name] = variable
        elif hasattr(value, "__dict__") and (learned.is_leaf(value) or learned.is_holder(value)):
            found.setdefault(name, value)
    return found


def _is_changed_in_place(value: Any) -> bool:
    return isinstance(value, _CHANGED_IN_PLACE) or (type(value).__module__.startswith("numpy") and type(value).__name__ in _OF_NUMPY)


def _used(called: Sequence[object]) -> Iterator[tuple[Variable, bool]]:
    """The global names that functions of the script refer to, and whether one is assigned there; with functions that these call, and
    methods of objects that they use."""
    waiting = [function for each in called for function in _functions(each)]
    seen: set[types.CodeType] = set()
    while waiting:
        function = waiting.pop(0)
        if function.__code__ in seen or not is_users_module(function.__globals__.get("__name__", "")):
            continue
        seen.add(function.__code__)
        for name, is_assigned in _names(function.__code__).items():
            if name in function.__globals__:
                yield Variable(function.__globals__, name), is_assigned
                waiting += _functions(function.__globals__[name])


def _functions(value: object) -> list[types.FunctionType]:
    """Those of the script that may run where `value` is called or used."""
    if isinstance(value, types.MethodType):
        return [*_functions(value.__func__), *_functions(value.__self__)]
    if isinstance(value, types.FunctionType):
        return [value, *(each for each in learned.variables(value).values() if isinstance(each, types.FunctionType))]
    if isinstance(value, (type, types.ModuleType)):
        return []
    classes = [cls for cls in type(value).__mro__ if is_users_module(cls.__module__)]
    found = [function_behind(each) for cls in classes for each in vars(cls).values()]
    return [each for each in found if isinstance(each, types.FunctionType)]


def _names(code: types.CodeType) -> dict[str, bool]:
    """The global names that it and the functions in it refer to, and whether they assign them."""
    found: dict[str, bool] = {}
    for each in dis.get_instructions(code):
        if each.opname in _REFERS:
            found[each.argval] = found.get(each.argval, False) or each.opname == "STORE_GLOBAL"
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            for name, is_assigned in _names(inner).items():
                found[name] = found.get(name, False) or is_assigned
    return dict(sorted(found.items()))


def _is_larger(value: Any, most_bytes: int) -> bool:
    """Whether all that is in it is larger than that, roughly."""
    waiting, seen, total = [value], set[int](), 0
    while waiting and total <= most_bytes:
        each = waiting.pop()
        if id(each) in seen or isinstance(each, (*_FIXED, *learned.LEARNS)):
            continue
        seen.add(id(each))
        total += _own_bytes(each)
        if isinstance(each, dict):
            waiting += [*each, *each.values()]
        elif isinstance(each, (list, tuple, set, frozenset, deque)):
            waiting += each
        elif not isinstance(each, torch.Tensor):
            waiting += getattr(each, "__dict__", {}).values()
    return total > most_bytes


def _own_bytes(value: Any) -> int:
    if isinstance(value, torch.Tensor) or type(value).__module__ == "numpy":
        return int(getattr(value, "nbytes", _NUMBER_BYTES))
    return len(value) if isinstance(value, (str, bytes)) else _NUMBER_BYTES
