"""What the script holds besides model and optimizer that learns during the training: the attributes of callbacks and of who is called at
each step of the optimizer, wherever they lead to, and modules, optimizers and schedulers that are global names of the script.

Every worker has run the same script, so every worker has its own of each, under one name ("callback 0.ema"). Only what is in them is
captured, and it is put into what the reader has: whoever else refers to that goes on to. What exists on some workers only, as it was made
during the training, is captured whole.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from training_runtime.elastic.pickling import is_users

_DEPTH = 4
_LEARNS = (nn.Module, torch.optim.Optimizer, LRScheduler)
_MODULE_OWN = frozenset(vars(nn.Module()))  # what every module has
Found = dict[str, Any]


def find(
    callbacks: Sequence[object], hooks: Sequence[Callable[..., Any]], script: Mapping[str, Any], *, known: Mapping[int, object]
) -> Found:
    """Name -> object, of everything that is captured by name. `known` are those that have a name already, by id."""
    found: Found = {}
    seen = set(known)

    def visit(name: str, value: Any, depth: int) -> None:
        if id(value) in seen or depth > _DEPTH:
            return
        if is_leaf(value):
            seen.add(id(value))
            found[name] = value
        elif isinstance(value, (list, tuple)) or type(value) is dict:
            for key, item in value.items() if isinstance(value, dict) else enumerate(value):
                if not isinstance(item, (int, float, str)):  # long lists of figures hold nothing
                    visit(f"{name}[{key!r}]", item, depth + 1)
        elif is_holder(value):
            seen.add(id(value))
            found[name] = value
            for key, item in sorted(vars(value).items()):
                visit(f"{name}.{key}", item, depth + 1)

    for i, callback in enumerate(callbacks):
        seen.discard(id(callback))
        if hasattr(callback, "__dict__"):
            seen.add(id(callback))
            found[f"callback {i}"] = callback
            for key, item in sorted(vars(callback).items()):
                visit(f"callback {i}.{key}", item, 1)
    for i, hook in enumerate(hooks):
        for key, item in _reached(hook):
            visit(f"hook {i}.{key}", item, 1)
    for key, item in script.items():
        if isinstance(item, _LEARNS):
            visit(f"script.{key}", item, 1)
    return found


def is_leaf(value: Any) -> bool:
    """Says itself what its state is."""
    return not isinstance(value, type) and (
        isinstance(value, nn.Module) or (hasattr(value, "state_dict") and hasattr(value, "load_state_dict"))
    )


def is_holder(value: Any) -> bool:
    """An object of a class of the script's own; no data set, which is not the training's state."""
    if isinstance(value, (type, types.ModuleType, types.FunctionType, BaseException, torch.Tensor, torch.utils.data.Dataset)):
        return False
    return type(value).__module__ != "builtins" and is_users(type(value)) and hasattr(value, "__dict__")


def _reached(hook: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """What a function that is called at each step has to work with."""
    if (owner := getattr(hook, "__self__", None)) is not None:
        yield "self", owner
    function = getattr(hook, "__func__", hook)
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None) or ()
    for name, cell in zip(code.co_freevars if code else (), cells, strict=False):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue


def plain_attributes(module: nn.Module) -> dict[str, Any]:
    """What a module keeps outside of parameters, buffers and modules: numbers, text, and collections of these."""
    return {name: value for name, value in vars(module).items() if name not in _MODULE_OWN and is_plain(value)}


def is_plain(value: Any, depth: int = 0) -> bool:
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, torch.dtype)):
        return True
    if depth > _DEPTH:
        return False
    if isinstance(value, dict):
        return all(is_plain(key) and is_plain(item, depth + 1) for key, item in value.items())
    return isinstance(value, (list, tuple, set, frozenset)) and all(is_plain(item, depth + 1) for item in value)


def content(value: Any) -> dict[str, Any]:
    """What is in a leaf, tensors as they are."""
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
    if not isinstance(value, nn.Module):
        return "state" in held
    tensors = [*value.parameters(), *(b for module in value.modules() for b in module._buffers.values() if b is not None)]
    theirs = [*held.get("parameters", ()), *held.get("buffers", ())]
    return [t.shape for t in tensors] == [t.shape for t in theirs] and len(held.get("modes", ())) == len(list(value.modules()))


def put(value: Any, held: Mapping[str, Any]) -> None:
    """Make a leaf what it was."""
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
