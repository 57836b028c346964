"""Optimizers whose step may be shared out over workers by parameters: what they make of one parameter depends on that one alone, and nobody
looks over their shoulder. Whatever is not known here is thought to be another kind."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.optim import optimizer as of_all
from torch.optim.optimizer import Optimizer

from training_runtime.elastic.comm.strides import strides_of

# Their plain loops over parameters, by exact class: a subclass may do anything.
KINDS: tuple[type[Optimizer], ...] = (
    torch.optim.SGD,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.Adamax,
    torch.optim.RMSprop,
    torch.optim.Adagrad,
    torch.optim.Adadelta,
    torch.optim.ASGD,
    torch.optim.Rprop,
)
OTHER_LOOPS = ("foreach", "fused", "capturable", "differentiable")
OVERHEAD = 1 << 14  # elements that take as long to step as another parameter costs besides (16 us with Adam on an EPYC)


def reason_against(optimizer: Optimizer) -> str:
    """Why the step of `optimizer` cannot be shared out, as the end of "..., which ...". Empty where it can."""
    step = vars(optimizer).get("step")
    hooks = (optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks)
    if type(optimizer) not in KINDS:
        return "is none of torch.optim's own that step each element by itself"
    if step is not None and not getattr(step, "_wrapped_by_lr_sched", False):
        return "has a step() of the script's own"
    if any(hooks) or of_all._global_optimizer_pre_hooks or of_all._global_optimizer_post_hooks:
        return "has hooks around its step, which look at all parameters"
    set_ways = [way for way in OTHER_LOOPS if any(group.get(way) for group in optimizer.param_groups)]
    return f"has {set_ways[0]}=True" if set_ways else ""


def choices(group: Mapping[str, Any]) -> tuple[tuple[str, bool], ...]:
    """What the kind of state that the parameters of a group come to depends on: whether each of its numbers is one (momentum, amsgrad)."""
    return tuple((name, bool(value)) for name, value in group.items() if isinstance(value, bool | int | float))


def first_state(optimizer: Optimizer, group: Mapping[str, Any], like: torch.Tensor) -> dict[str, torch.Tensor]:
    """Of what kind the state will be that a parameter `like` this one, of this group, gets in its first step: tensors without memory. Found
    out by stepping a small one; `optimizer` is one of `KINDS`."""
    small = torch.zeros(2, 3, dtype=like.dtype, requires_grad=True)
    small.grad = torch.zeros_like(small)
    kind: Any = type(optimizer)
    trial: Optimizer = kind([{**group, "params": [small]}])
    trial.step()
    return {
        name: torch.empty_strided(like.shape, strides_of(like), dtype=t.dtype, device="meta")
        if t.shape == small.shape
        else torch.empty(t.shape, dtype=t.dtype, device="meta")
        for name, t in trial.state[small].items()
        if isinstance(t, torch.Tensor)
    }


def owners(sizes: Sequence[int], workers: int) -> tuple[int, ...]:
    """Which of so many workers steps each parameter, of so many elements: the largest first, each to who has least to do. The same for
    everybody who asks."""
    least = [(0, rank) for rank in range(workers)]
    found = [0] * len(sizes)
    for i in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        load, found[i] = heapq.heappop(least)
        heapq.heappush(least, (load + sizes[i] + OVERHEAD, found[i]))
    return tuple(found)
