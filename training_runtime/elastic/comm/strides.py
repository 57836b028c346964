"""How tensors lie in memory. Kernels add up in the order of memory, so copies of a tensor must lie as it does to give the same bits."""

from __future__ import annotations

import torch


def is_dense(t: torch.Tensor) -> bool:
    """Whether the elements of `t` fill their memory without gaps or overlaps, in whatever order of the dimensions (channels_last)."""
    step = 1
    for stride, size in sorted((stride, size) for size, stride in zip(t.shape, t.stride(), strict=True) if size != 1):
        if stride != step:
            return False
        step *= size
    return True


def strides_of(t: torch.Tensor) -> tuple[int, ...]:
    """Those of a copy of `t`, as autograd gives them to its gradient: its own where it is dense, else those of its shape."""
    if is_dense(t):
        return t.stride()
    steps = [1]
    for size in reversed(t.shape[1:]):
        steps.append(steps[-1] * max(size, 1))
    return tuple(reversed(steps))[: t.dim()] if t.dim() else ()


def laid_out_as(t: torch.Tensor, flat: torch.Tensor) -> torch.Tensor:
    """A view of `flat`, which has as many elements, that lies there as a copy of `t` does."""
    return flat.as_strided(t.shape, strides_of(t))
