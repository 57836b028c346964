"""Gradients through shared memory, summed in the one fixed tree (see `tree`).

A worker copies the gradient of each of its engines into that engine's row and makes the additions it can make alone. After a barrier it
makes the additions that join parts of different workers for its own shard of every lane, chunk by chunk so that the parts stay in the
cache, the last one into the sum row. After a second barrier the parameters' `.grad` are views of the sum. A row is written again only after
the next first barrier's predecessor, the sum only after the next first barrier: by then nobody reads them. Each element is added by one
worker in one order: exact.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from training_runtime.elastic import tree
from training_runtime.elastic.arena import Arena, Lane
from training_runtime.errors import UserError

CHUNK_BYTES = 128 * 1024


def lanes(parameters: Sequence[torch.Tensor]) -> tuple[Lane, ...]:
    """One lane a dtype, in the order in which the dtypes appear; each begins on a cache line."""
    sizes: dict[torch.dtype, int] = {}
    for p in parameters:
        sizes[p.dtype] = sizes.get(p.dtype, 0) + _padded(p)
    found, at = [], 0
    for dtype, size in sizes.items():
        found.append(Lane(dtype, size, at))
        at += -(-size * dtype.itemsize // 64) * 64
    return tuple(found)


def _padded(p: torch.Tensor) -> int:
    """Elements that `p` takes in its lane: a whole number of cache lines, so no two tensors share one."""
    step = max(1, 64 // p.dtype.itemsize)
    return -(-p.numel() // step) * step


class Exchange:
    """The gradient rows of one worker. `parameters` are the optimizer's, in its order, the same in all workers."""

    def __init__(self, arena: Arena, parameters: Sequence[torch.Tensor]) -> None:
        self._arena, self._parameters = arena, tuple(parameters)
        self._engines = arena.layout.engines
        self._flat = [[arena.lane(row, lane) for lane in arena.layout.lanes] for row in range(self._engines + 1)]
        self._views: dict[int, list[torch.Tensor]] = {}
        self._on_cpu = all(p.device.type == "cpu" for p in self._parameters)

    def _row(self, row: int) -> list[torch.Tensor]:
        """Views of `row`, one shaped like each parameter."""
        if row not in self._views:
            places = {lane.dtype: i for i, lane in enumerate(self._arena.layout.lanes)}
            at = [0] * len(places)
            views = []
            for p in self._parameters:
                i = places[p.dtype]
                views.append(self._flat[row][i][at[i] : at[i] + p.numel()].view(p.shape))
                at[i] += _padded(p)
            self._views[row] = views
        return self._views[row]

    def put(self, engine: int, scale: float | None = None) -> None:
        """Copy the gradients of `engine` into its row and drop them; a parameter it did not use counts as zero. `scale` multiplies
        them first."""
        row, used, targets, sources = self._row(engine), [], [], []
        for view, p in zip(row, self._parameters, strict=True):
            grad = p.grad
            used.append(grad is not None)
            if grad is None:
                if p.requires_grad:  # another engine may have used it
                    view.zero_()
            else:
                targets.append(view)
                sources.append(_dense(grad))
                p.grad = None
        if scale is not None:
            torch._foreach_mul_(sources, scale)
        if targets:
            torch._foreach_copy_(targets, sources)
        self._arena.used[engine] = torch.tensor(used, dtype=torch.uint8)

    def merge_own(self, engine: int, mine: range, engines: int) -> None:
        """Make the additions that this worker can make alone once `engine` is done."""
        for left, right in tree.own_merges(mine, engines)[engine]:
            for a, b in zip(self._flat[left], self._flat[right], strict=True):
                a.add_(b)

    def merge_joint(self, rank: int, workers: int, engines: int) -> None:
        """Add up the shard of `rank`. Between the two barriers of a step."""
        joint = tree.joint_merges(workers, engines)
        for i, lane in enumerate(self._arena.layout.lanes):
            chunk = CHUNK_BYTES // lane.dtype.itemsize
            lines = -(-lane.size // chunk)
            for piece in tree.share(rank, workers, lines):
                self._add_chunk(i, slice(piece * chunk, min((piece + 1) * chunk, lane.size)), joint)

    def _add_chunk(self, lane: int, part: slice, joint: tuple[tree.Merge, ...]) -> None:
        total = self._flat[self._engines][lane][part]
        if not joint:  # a last step that one worker computed alone
            total.copy_(self._flat[0][lane][part])
            return
        for left, right in joint[:-1]:
            self._flat[left][lane][part].add_(self._flat[right][lane][part])
        left, right = joint[-1]
        torch.add(self._flat[left][lane][part], self._flat[right][lane][part], out=total)

    def deliver(self, workers: int, engines: int) -> None:
        """Make the sum every parameter's `.grad`; one that no engine used keeps None, as in a plain loop. After the second barrier."""
        row = self._row(self._engines if workers > 1 else 0)
        used = self._arena.used[:engines].amax(0).tolist()
        for p, view, some in zip(self._parameters, row, used, strict=True):
            p.grad = (view if self._on_cpu else view.to(p.device)) if some else None

    def drop(self) -> None:
        for p in self._parameters:
            p.grad = None


def _dense(grad: torch.Tensor) -> torch.Tensor:
    if grad.layout != torch.strided:
        raise UserError("sparse gradients are not supported: build the layer with sparse=False")
    return grad
