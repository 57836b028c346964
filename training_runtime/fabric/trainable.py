"""What cannot be trained, of a torch model and an optimizer, said before anything is begun."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from training_runtime.errors import UserError

LAZY = (
    "the shape of {} is not known before the model has seen a batch (it is of a lazy layer): call model(inputs) once, with a batch of the "
    "data, before the optimizer is made and the training begins"
)
CLOSURE = (
    "{} computes the loss again within a step, by a closure, which is not supported: the gradients of a step are a sum over engines. Take "
    "another optimizer; what needs a second backward pass for each batch (SAM) can be a fn_step_train or the body of a loop"
)


def check(model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> None:
    """UserError where a parameter or a buffer has no shape yet, or an optimizer cannot make a step without a closure."""
    for name, t in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(t):
            raise UserError(LAZY.format(name))
    for optimizer in optimizers:
        if _needs_closure(optimizer):
            raise UserError(CLOSURE.format(type(optimizer).__name__))


def _needs_closure(optimizer: torch.optim.Optimizer) -> bool:
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty
