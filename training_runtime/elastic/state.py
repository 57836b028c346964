"""The whole state of a training as a tree of plain values and tensors: parameters, buffers, optimizer, callbacks.

It is captured from and restored into the live objects in place (views and hooks that the user holds stay good), and packed into a memfd
from which newcomers take it: the pages never touch a disk. Nothing here knows about steps or members.
"""

from __future__ import annotations

import mmap
import os
import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

_ALIGN = 64


@dataclass(frozen=True)
class _Placed:
    """A tensor of a packed tree: where it lies."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int


class Buffers:
    """All buffers of a model (batch-norm statistics and the like), found anew each time: a module may replace them."""

    def __init__(self, model: nn.Module) -> None:
        self._places = [(module, name) for module in model.modules() for name, b in module._buffers.items() if b is not None]

    def live(self) -> list[torch.Tensor]:
        return [b for module, name in self._places if (b := module._buffers[name]) is not None]


def all_parameters(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Every parameter of the optimizer, then those of the model that it does not hold; each once."""
    seen: dict[int, torch.Tensor] = {id(p): p for p in trained_parameters(optimizer)}
    for p in model.parameters():
        seen.setdefault(id(p), p)
    return list(seen.values())


def trained_parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return list({id(p): p for group in optimizer.param_groups for p in group["params"]}.values())


def capture(model: nn.Module, optimizer: torch.optim.Optimizer, callbacks: Sequence[object]) -> dict[str, Any]:
    """The state as a tree that refers to the live tensors; nothing is copied."""
    return {
        "parameters": [p.detach() for p in all_parameters(model, optimizer)],
        "grads": [p.requires_grad for p in all_parameters(model, optimizer)],
        "modes": [module.training for module in model.modules()],
        "buffers": Buffers(model).live(),
        "optimizer": [optimizer.state.get(p, {}) for p in trained_parameters(optimizer)],
        "groups": [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups],
        "callbacks": [_callback_state(c) for c in callbacks],
    }


def restore(tree: dict[str, Any], model: nn.Module, optimizer: torch.optim.Optimizer, callbacks: Sequence[object]) -> None:
    """Make the live objects equal to `tree`. Its tensors are copied, never kept."""
    with torch.no_grad():
        for p, value in zip(all_parameters(model, optimizer), tree["parameters"], strict=True):
            p.copy_(value)
        for b, value in zip(Buffers(model).live(), tree["buffers"], strict=True):
            b.copy_(value)
    for p, flag in zip(all_parameters(model, optimizer), tree["grads"], strict=True):
        p.requires_grad_(flag)
    for module, flag in zip(model.modules(), tree["modes"], strict=True):
        module.training = flag
    for p, value in zip(trained_parameters(optimizer), tree["optimizer"], strict=True):
        optimizer.state[p] = replace(value, partial(_copy_for, p.device))
    for group, values in zip(optimizer.param_groups, tree["groups"], strict=True):
        group.update(replace(values, lambda t: t.clone()))
    for c, values in zip(callbacks, tree["callbacks"], strict=True):
        _restore_callback(c, values)


def _copy_for(device: torch.device, value: torch.Tensor) -> torch.Tensor:
    """A copy on `device`; scalars (Adam's step) stay on the CPU, where torch keeps them."""
    return value.clone() if device.type == "cpu" or value.dim() == 0 else value.to(device)


def replace(value: Any, tensor: Callable[[Any], Any], kind: type[Any] = torch.Tensor) -> Any:
    """`value` with every leaf of type `kind` replaced, through dicts, lists and tuples."""
    if isinstance(value, kind):
        return tensor(value)
    if isinstance(value, dict):
        return {k: replace(v, tensor, kind) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(replace(v, tensor, kind) for v in value)
    return value


def _callback_state(callback: object) -> dict[str, tuple[str, Any]]:
    """What a callback has learnt: state_dict of attributes that have one (schedulers), other attributes where they can be pickled."""
    found: dict[str, tuple[str, Any]] = {}
    for name, value in vars(callback).items() if hasattr(callback, "__dict__") else ():
        if name in ("params", "model") or isinstance(value, (nn.Module, torch.optim.Optimizer)):
            continue
        if hasattr(value, "state_dict") and hasattr(value, "load_state_dict"):
            found[name] = ("state", value.state_dict())
            continue
        try:
            found[name] = ("value", pickle.dumps(value))
        except Exception:  # noqa: S112 - a file, a lock, a lambda: stays each process's own
            continue
    return found


def _restore_callback(callback: object, values: dict[str, tuple[str, Any]]) -> None:
    for name, (how, value) in values.items():
        if how == "state":
            getattr(callback, name).load_state_dict(replace(value, lambda t: t.clone()))
        else:
            setattr(callback, name, pickle.loads(value))  # noqa: S301 - written by this run's own worker


def place(tree: Any) -> tuple[list[tuple[torch.Tensor, int]], bytes, int]:
    """Lay a tree out: (tensor, offset) pairs, the pickled index, and the offset of the index. The same for equal states."""
    tensors: list[tuple[torch.Tensor, int]] = []
    at = 16

    def put(t: torch.Tensor) -> _Placed:
        nonlocal at
        at = -(-at // _ALIGN) * _ALIGN
        tensors.append((t, at))
        at += t.numel() * t.element_size()
        return _Placed(t.dtype, tuple(t.shape), tensors[-1][1])

    index = pickle.dumps(replace(tree, put))
    return tensors, index, at


def pack(fd: int, tree: Any, part: int, parts: int) -> None:
    """Write the tree into memfd `fd`; of `parts` writers with equal trees, number `part` writes its share. Part 0 writes the index."""
    tensors, index, end = place(tree)
    size = end + len(index)
    if os.fstat(fd).st_size < size:
        os.ftruncate(fd, size)
    with mmap.mmap(fd, size) as memory:
        if part == 0:
            memory[0:16] = end.to_bytes(8, "little") + len(index).to_bytes(8, "little")
            memory[end:size] = index
        for t, offset in _portion(tensors, part, parts):
            if t.numel():
                flat = torch.frombuffer(memory, dtype=t.dtype, count=t.numel(), offset=offset)
                flat.view(t.shape).copy_(t)
                del flat


def _portion(tensors: list[tuple[torch.Tensor, int]], part: int, parts: int) -> Iterable[tuple[torch.Tensor, int]]:
    """A share of about equal bytes, by where a tensor lies."""
    end = tensors[-1][1] + 1 if tensors else 1
    return [(t, offset) for t, offset in tensors if offset * parts // end == part]


def unpack(fd: int) -> Any:
    """The packed tree; its tensors are views of the shared pages, so copy them before anybody packs again."""
    memory = mmap.mmap(fd, 0)
    end, length = (int.from_bytes(memory[i : i + 8], "little") for i in (0, 8))
    tree = pickle.loads(memory[end : end + length])  # noqa: S301 - written by this run's own worker

    def view(placed: _Placed) -> torch.Tensor:
        count = 1
        for n in placed.shape:
            count *= n
        if not count:
            return torch.empty(placed.shape, dtype=placed.dtype)
        return torch.frombuffer(memory, dtype=placed.dtype, count=count, offset=placed.offset).view(placed.shape)

    return replace(tree, view, _Placed)
