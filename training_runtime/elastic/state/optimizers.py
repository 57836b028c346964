"""What is in an optimizer: taken out and put back in place, as others hold its groups and the entries of its state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch

from training_runtime.elastic.state.transfer import replace

COUNT = "step"
OWN = frozenset(vars(torch.optim.Optimizer([torch.zeros(1)], {})))  # the attributes that every optimizer has


def parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Each once."""
    return list({id(p): p for group in optimizer.param_groups for p in group["params"]}.values())


def states(optimizer: torch.optim.Optimizer) -> list[Mapping[str, Any]]:
    return [optimizer.state.get(p, {}) for p in parameters(optimizer)]


def order(optimizer: torch.optim.Optimizer) -> list[int]:
    """The places of the parameters that have a state, in the order in which they came to one: that of the entries of a `state_dict`."""
    places = {id(p): i for i, p in enumerate(parameters(optimizer))}
    return [places[id(p)] for p in optimizer.state if id(p) in places]


def groups(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    return [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]


def put(
    optimizer: torch.optim.Optimizer, states: Sequence[Mapping[str, Any]], groups: Sequence[Mapping[str, Any]], order: Sequence[int]
) -> None:
    held = parameters(optimizer)
    for p in held:
        optimizer.state.pop(p, None)
    for place in order:
        optimizer.state[held[place]] = states[place]
    for group, each in zip(optimizer.param_groups, groups, strict=True):
        group.update(each)
    follow(optimizer)


def follow(optimizer: torch.optim.Optimizer) -> None:
    """Have the optimizer's state where its parameters are, as torch's own `load_state_dict` does. A count of steps stays on the CPU, unless
    the optimizer counts on the device."""
    for group in optimizer.param_groups:
        counts = bool(group.get("capturable") or group.get("fused"))
        for p in group["params"]:
            if p.device.type != "cpu" and p in optimizer.state:
                stays = {} if counts else {k: v for k, v in optimizer.state[p].items() if k == COUNT}
                optimizer.state[p] = replace(optimizer.state[p], partial(_to_device, p.device)) | stays


def _to_device(device: torch.device, value: torch.Tensor) -> torch.Tensor:
    return value.to(device)


def may_change_gradients(optimizer: torch.optim.Optimizer) -> bool:
    """Whether a step of `optimizer` may write into `.grad`: anything but the plain loops of torch.optim is thought capable of it."""
    ours = type(optimizer).__module__.startswith("torch.optim")
    step = vars(optimizer).get("step")
    patched = step is not None and not getattr(step, "_wrapped_by_lr_sched", False)
    joined = any(group.get("foreach") or group.get("fused") for group in optimizer.param_groups)
    return bool(not ours or patched or joined or optimizer._optimizer_step_pre_hooks)
