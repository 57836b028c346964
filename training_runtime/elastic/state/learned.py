"""What the script holds besides model and optimizer that learns during the training: what is in callbacks, in a loss that is no module, in
who is called at each step of the optimizer and in an optimizer of the script's own, wherever that leads to; and modules, optimizers and
schedulers that are global names of the script.

Every worker has run the same script, so every worker has its own of each, under one name ("callback 0.ema"). Only what is in them is
captured, and it is put into what the reader has: whoever else refers to that goes on to. What exists on some workers only, as it was made
during the training, is captured whole.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from training_runtime.elastic.state import optimizers, pickling
from training_runtime.elastic.state.pickling import is_users, is_users_module

_DEPTH = 4
LEARNS = (nn.Module, torch.optim.Optimizer, LRScheduler)
_CODE = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.ModuleType, type)
_PUT_TOGETHER = (types.FunctionType, types.MethodType, functools.partial)
_MODULE_OWN = frozenset(vars(nn.Module()))  # what every module has
LearnedObjects = dict[str, Any]


def find(roots: Mapping[str, object], script: Mapping[str, Any], *, known: Mapping[int, object]) -> LearnedObjects:
    """Name -> object, of everything that is captured by name: of the `roots` and of what they lead to. `known` are those that have a name
    already, by id."""
    found: LearnedObjects = {}
    seen = set(known)

    def visit(name: str, value: Any, depth: int) -> None:
        if id(value) in seen or depth > _DEPTH:
            return
        if is_leaf(value) or is_holder(value):
            add(name, value, depth)
        elif isinstance(value, (list, tuple)) or type(value) is dict:
            for key, item in value.items() if isinstance(value, dict) else enumerate(value):
                if not isinstance(item, (int, float, str)):  # long lists of figures hold nothing
                    visit(f"{name}[{key!r}]", item, depth + 1)
        else:
            for key, item in _bound(value):
                visit(f"{name}.{key}", item, depth + 1)

    def add(name: str, value: Any, depth: int) -> None:
        seen.add(id(value))
        found[name] = value
        if depth == 0 or not is_leaf(value) or isinstance(value, torch.optim.Optimizer):
            for key, item in attributes(value).items():
                visit(f"{name}.{key}", item, depth + 1)

    for name, root in roots.items():
        if isinstance(root, _PUT_TOGETHER):
            visit(name, root, 0)
        elif hasattr(root, "__dict__"):  # whatever its class is
            add(name, root, 0)
    for key, item in script.items():
        if isinstance(item, LEARNS):
            visit(f"script.{key}", item, 1)
    return found


def is_leaf(value: Any) -> bool:
    """Says itself what its state is."""
    return not isinstance(value, type) and (
        isinstance(value, (nn.Module, torch.Generator)) or (hasattr(value, "state_dict") and hasattr(value, "load_state_dict"))
    )


def is_holder(value: Any) -> bool:
    """An object of a class of the script's own, or a function of it that closes over something; no data set, which is not the training's
    state."""
    if isinstance(value, types.FunctionType):
        return value.__closure__ is not None and is_users_module(value.__globals__.get("__name__", ""))
    if isinstance(value, (type, types.ModuleType, BaseException, torch.Tensor, torch.utils.data.Dataset)):
        return False
    return type(value).__module__ != "builtins" and is_users(type(value)) and hasattr(value, "__dict__")


def attributes(value: Any) -> dict[str, Any]:
    """What is in a holder: its attributes, by name; a function's are the variables that it closes over. Of an optimizer those that are not
    every optimizer's. Functions and classes stay each process's own there: the optimizer's `step` is one where it has a scheduler."""
    if isinstance(value, types.FunctionType):
        found = variables(value)
    elif isinstance(value, torch.optim.Optimizer):
        found = {name: each for name, each in vars(value).items() if name not in optimizers.OWN}
    else:
        return dict(sorted(vars(value).items()))
    return {name: each for name, each in sorted(found.items()) if not isinstance(each, _CODE)}


def put_attributes(value: Any, content: Mapping[str, Any]) -> None:
    """Make a holder what it was."""
    if not isinstance(value, types.FunctionType):
        vars(value).update(content)
        return
    cells = _cells(value)
    for name in content.keys() & cells.keys():
        cells[name].cell_contents = content[name]


def _cells(function: types.FunctionType) -> dict[str, types.CellType]:
    return dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))


def variables(function: types.FunctionType) -> dict[str, Any]:
    """What it closes over."""
    found = {}
    for name, cell in _cells(function).items():
        with contextlib.suppress(ValueError):  # not assigned yet
            found[name] = cell.cell_contents
    return found


def _bound(value: Any) -> Iterator[tuple[str, Any]]:
    """What a callable that has been put together has to work with."""
    if isinstance(value, types.MethodType):
        yield from (("self", value.__self__), ("function", value.__func__))
    elif isinstance(value, functools.partial):
        yield from (("function", value.func), ("args", value.args), ("keywords", value.keywords))
    elif isinstance(value, types.FunctionType):  # a library's, around one of the script's
        yield from variables(value).items()


def plain_attributes(module: nn.Module) -> dict[str, Any]:
    """What a module keeps outside of parameters, buffers and modules: numbers, text, and collections of these."""
    return {name: value for name, value in vars(module).items() if name not in _MODULE_OWN and is_plain(value)}


def is_plain(value: Any, depth: int = 0) -> bool:
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, torch.dtype)):
        return True
    if depth > _DEPTH or getattr(value, "__dict__", None):  # a collection that is more than what is in it
        return False
    if isinstance(value, dict):
        return all(is_plain(key) and is_plain(item, depth + 1) for key, item in value.items())
    return isinstance(value, (list, tuple, set, frozenset)) and all(is_plain(item, depth + 1) for item in value)


def content(value: Any) -> dict[str, Any]:
    """What is in a leaf, tensors as they are."""
    if isinstance(value, torch.optim.Optimizer):
        return {
            "states": optimizers.states(value),
            "groups": optimizers.groups(value),
            "order": optimizers.order(value),
            "attributes": attributes(value),
        }
    if isinstance(value, torch.Generator):
        return {"state": value.get_state()}
    if not isinstance(value, nn.Module):
        return {"state": value.state_dict()}
    modules = list(value.modules())
    return {
        "parameters": list(value.parameters()),
        "buffers": [b for module in modules for b in module._buffers.values() if b is not None],
        **flags(modules, list(value.parameters())),
        **texture(modules),
    }


def flags(modules: Sequence[nn.Module], parameters: Sequence[torch.Tensor]) -> dict[str, Any]:
    return {"grads": [p.requires_grad for p in parameters], "modes": [module.training for module in modules]}


def texture(modules: Sequence[nn.Module]) -> dict[str, Any]:
    """What modules keep outside of tensors."""
    return {
        "attributes": [plain_attributes(module) for module in modules],
        "extra": [module.get_extra_state() if has_extra(module) else None for module in modules],
    }


def has_extra(module: nn.Module) -> bool:
    return type(module).get_extra_state is not nn.Module.get_extra_state


def fits(value: Any, held: Mapping[str, Any]) -> bool:
    """Whether `held` can be put into a leaf."""
    if isinstance(value, torch.optim.Optimizer):
        counts = [len(held.get(name, ())) for name in ("states", "groups")]
        return "order" in held and counts == [len(optimizers.parameters(value)), len(value.param_groups)]
    if isinstance(value, torch.Generator):
        return "state" in held and tuple(held["state"].shape) == tuple(value.get_state().shape)  # of one kind of device
    if not isinstance(value, nn.Module):
        return "state" in held
    tensors = [*value.parameters(), *(b for module in value.modules() for b in module._buffers.values() if b is not None)]
    theirs = [*held.get("parameters", ()), *held.get("buffers", ())]
    return [t.shape for t in tensors] == [t.shape for t in theirs] and len(held.get("modes", ())) == len(list(value.modules()))


def put(value: Any, held: Mapping[str, Any]) -> None:
    """Make a leaf what it was."""
    if isinstance(value, torch.optim.Optimizer):
        optimizers.put(value, held["states"], held["groups"], held["order"])
        put_attributes(value, held.get("attributes", {}))
        return
    if isinstance(value, torch.Generator):
        pickling.set_generator(value, held["state"])
        return
    if not isinstance(value, nn.Module):
        value.load_state_dict(held["state"])
        return
    modules = list(value.modules())
    tensors = [*value.parameters(), *(b for module in modules for b in module._buffers.values() if b is not None)]
    with torch.no_grad():
        for target, source in zip(tensors, [*held["parameters"], *held["buffers"]], strict=True):
            if target is not source:  # the model's own, as a part of this one
                target.copy_(source)
    put_flags(modules, list(value.parameters()), held)
    put_texture(modules, held)


def put_flags(modules: Sequence[nn.Module], parameters: Sequence[torch.Tensor], held: Mapping[str, Any]) -> None:
    for p, flag in zip(parameters, held["grads"], strict=True):
        p.requires_grad_(flag)
    for module, flag in zip(modules, held["modes"], strict=True):
        module.training = flag


def put_texture(modules: Sequence[nn.Module], held: Mapping[str, Any]) -> None:
    for module, attributes, extra in zip(modules, held["attributes"], held["extra"], strict=True):
        vars(module).update(attributes)
        if has_extra(module):
            module.set_extra_state(extra)
