"""Sums of gradients of half precision are kept in float32 until they are whole: with 8 or 11 bits of mantissa each addition would lose what
the next engines have to say. They are rounded once, to the parameter's dtype, when all engines are in.

Addition and rounding are those of IEEE 754, element by element, so it does not matter who makes them, in which pieces, and on which device.
"""

from __future__ import annotations

import torch

from training_runtime.elastic.comm.strides import is_dense

WIDER = {torch.bfloat16: torch.float32, torch.float16: torch.float32}
PIECE = 1 << 17  # elements that are converted at once: what comes of them is still in the cache when it is added


def sums_dtype(dtype: torch.dtype) -> torch.dtype:
    """In which gradients of `dtype` are added."""
    return WIDER.get(dtype, dtype)


def add(into: torch.Tensor, part: torch.Tensor) -> None:
    """`into` += `part`, also where `part` is of another dtype: torch would convert all of it first, to memory that it has to ask for."""
    if into.dtype == part.dtype or into.stride() != part.stride() or not is_dense(part):
        into.add_(part)
        return
    sums, added = (t.as_strided((t.numel(),), (1,)) for t in (into, part))
    for start in range(0, part.numel(), PIECE):
        sums[start : start + PIECE].add_(added[start : start + PIECE])


def accumulate(into: torch.Tensor, grad: torch.Tensor) -> None:
    """`into` += `grad`, two gradients of one engine: rounded to what `grad` is of, as where autograd adds to `.grad`."""
    into.copy_(into.to(grad.dtype).add_(grad))
