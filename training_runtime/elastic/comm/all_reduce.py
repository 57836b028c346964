"""Gradients through shared memory, summed in the one fixed tree (see `tree`).

As soon as the backward pass of an engine has finished a parameter's gradient, it is copied into the engine's row while it is still in the
cache, and dropped. An engine whose first addition is to its left neighbour on the same worker needs no row: it is added to the neighbour's.
Where the script has a step of its own, gradients stay until it has returned: it may clip them, or take several passes.
After a barrier each worker makes the additions that join parts of different workers, for its own shard of every flat buffer, in pieces that
stay in the cache, the last one into the sum row. After a second barrier the parameters' `.grad` are views of the sum. Gradients of half
precision are added in float32; the sum row has them rounded (see `half_precision`).

A worker on a GPU adds up in rows of its own there and copies only what is left when it has made its own additions; one that is alone copies
nothing. The additions between workers are made in the shared memory by the processor all the same: adding two numbers gives the same
everywhere.

Who may write when: a row and its flags of use, between a second barrier and the next first one, by the worker that computes its engine; the
sum, between a first barrier and the second, each piece by one worker; both are read in between. So nobody needs a lock. Each element is
added in one order by one worker: exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from training_runtime.elastic import tree
from training_runtime.elastic.comm import half_precision
from training_runtime.elastic.comm.segment import FIRST_ROW, SUM_ROW, FlatBuffer, GenerationRecord, Segment
from training_runtime.elastic.comm.strides import laid_out_as, strides_of
from training_runtime.elastic.state import optimizers
from training_runtime.errors import UserError

CHUNK_BYTES = 128 * 1024


def flat_buffers(parameters: Sequence[torch.Tensor], *, wide: bool = True) -> tuple[FlatBuffer, ...]:
    """One flat buffer a dtype, in the order in which the dtypes appear; each begins on a cache line. `wide`: parts of half precision are
    kept in float32."""
    sizes: dict[torch.dtype, int] = {}
    for p in parameters:
        sizes[p.dtype] = sizes.get(p.dtype, 0) + padded(p)
    found, at = [], 0
    for dtype, size in sizes.items():
        parts = half_precision.sums_dtype(dtype) if wide else dtype
        found.append(FlatBuffer(dtype, size, at, parts))
        at += -(-size * parts.itemsize // 64) * 64
    return tuple(found)


def padded(p: torch.Tensor) -> int:
    """Elements that `p` takes in its flat buffer: a whole number of cache lines, so no two tensors share one."""
    step = max(1, 64 // p.dtype.itemsize)
    return -(-p.numel() // step) * step


def shard(flat: FlatBuffer, rank: int, workers: int) -> range:
    """The elements of a flat buffer that `rank` of so many workers adds up: whole pieces, so that all of them are about equal."""
    chunk = CHUNK_BYTES // flat.parts.itemsize
    pieces = tree.share(rank, workers, -(-flat.size // chunk))
    return range(min(pieces.start * chunk, flat.size), min(pieces.stop * chunk, flat.size))


@dataclass(frozen=True, slots=True)
class Row:
    """Memory for one gradient of everything: flat, a tensor for each flat buffer; and `views` of them, one shaped like each parameter."""

    flats: list[torch.Tensor]
    views: list[torch.Tensor]


class Members(Protocol):
    """The members of a generation as a worker of it sees them (see `group`)."""

    segment: Segment
    record: GenerationRecord
    worker_id: int
    rank: int
    size: int

    def look(self) -> None: ...


class Exchange:
    """The gradient rows of one worker on `device`. `parameters` are the optimizer's, in its order, the same in all workers; gradients of
    `others` are nobody's and dropped. `on_device`: it adds up in rows of its own there, because the shared memory is far away. `own_step`:
    the script computes the gradients in a function of its own, which may change them until it returns."""

    through_segment = True  # rows and sum stand in the shared memory

    def __init__(
        self,
        segment: Segment,
        parameters: Sequence[torch.Tensor],
        device: torch.device,
        *,
        on_device: bool,
        others: Sequence[torch.Tensor] = (),
        own_step: bool = False,
    ) -> None:
        self._segment, self._parameters, self._others, self._device = segment, tuple(parameters), tuple(others), device
        self._engines = segment.layout.engines
        self._on_device = on_device
        self._workers = 1
        self._rows: dict[int, int] = {}  # of a step's places (see `tree.rows`)
        self._flat = [[segment.flat_buffer(row, flat) for flat in segment.layout.flat_buffers] for row in range(self._engines + 1)]
        self._shared: dict[int, Row] = {}
        self._held: dict[int, Row] = {}  # rows of this worker's own, by the place in the tree that they stand for
        self._spare: dict[tuple[torch.dtype, ...], list[Row]] = {}
        self._target: list[torch.Tensor] = []  # of the engine that is being computed; empty: gradients stay where autograd puts them
        self._adding = False
        self._times = [0] * len(self._parameters)
        self._versions: list[int] = []
        self._used: list[int] = []
        self._parts: list[torch.Tensor | None] = [None] * len(self._parameters)  # gradients of an engine that is added to its neighbour
        self.refused = ""  # why a gradient that arrives now has no place to go
        self.copies = False  # each worker gets the sum for itself, whatever the optimizer is
        self._where = {id(p): i for i, p in enumerate(self._parameters)}
        for p in () if own_step else self._parameters:
            flag = p.requires_grad
            p.requires_grad_(True)  # a frozen parameter may be trained later
            p.register_post_accumulate_grad_hook(self._on_grad_ready)  # type: ignore[no-untyped-call]
            p.requires_grad_(flag)

    def _row(self, place: int) -> Row:
        """Where the part of the tree is summed that begins with engine `place`."""
        if self._on_device:
            return self._own_row(place)
        return self._shared_row(self._rows[place])

    def _shared_row(self, row: int) -> Row:
        if row not in self._shared:
            self._shared[row] = self._shaped(self._flat[row])
        return self._shared[row]

    def _own_row(self, place: int) -> Row:
        """A row on this worker's device. That of the place behind all engines is for the sum."""
        if place not in self._held:
            flats = self._segment.layout.flat_buffers
            dtypes = tuple(flat.dtype_in(SUM_ROW if place == self._engines else FIRST_ROW) for flat in flats)
            spare = self._spare.get(dtypes)
            self._held[place] = spare.pop() if spare else self._new(dtypes)
        return self._held[place]

    def _new(self, dtypes: Sequence[torch.dtype]) -> Row:
        sizes = [flat.size for flat in self._segment.layout.flat_buffers]
        return self._shaped([torch.empty(size, dtype=dtype, device=self._device) for size, dtype in zip(sizes, dtypes, strict=True)])

    def _shaped(self, flats: list[torch.Tensor]) -> Row:
        places = {flat.dtype: i for i, flat in enumerate(self._segment.layout.flat_buffers)}
        at = [0] * len(places)
        views = []
        for p in self._parameters:
            i = places[p.dtype]
            views.append(laid_out_as(p, flats[i][at[i] : at[i] + p.numel()]))
            at[i] += padded(p)
        return Row(flats, views)

    def meet(self, record: GenerationRecord, worker_id: int) -> None:
        """The members will be these. May be told before they are."""

    def join(self, group: Members) -> None:
        """They are, from now on."""
        self._workers = group.size

    def leave(self) -> None:
        """Whatever is under way between workers is void. Before `drop`."""

    def begin(self, engine: int, mine: range, engines: int) -> None:
        """From now on gradients are those of `engine`."""
        self._rows = tree.rows(self._workers, engines)
        self._adding = (engine - 1, engine) in tree.own_merges(mine, engines)[engine]
        self._target = self._row(engine - 1 if self._adding else engine).views
        self._times = [0] * len(self._parameters)
        self._parts = [None] * len(self._parameters)

    def _on_grad_ready(self, p: torch.Tensor) -> None:
        """A parameter's gradient is there (autograd calls this). More than once in an engine only where a loss or a module runs a backward
        pass of its own."""
        grad = p.grad
        if not self._target or grad is None:
            return
        _refuse_sparse(grad)
        if self.refused:
            raise UserError(self.refused)
        if grad.requires_grad:  # of a backward pass with create_graph; others run without grad mode, and to set it costs as much as a copy
            grad = grad.detach()
        i = self._where[id(p)]
        self._times[i] += 1
        if self._adding:  # at the end, when it is whole: the row holds the neighbour already, and (n + a) + b is not n + (a + b)
            before = self._parts[i]
            self._parts[i] = grad if before is None else before.add_(grad)
        elif self._times[i] == 1:
            self._target[i].copy_(grad)
        else:
            half_precision.accumulate(self._target[i], grad)
        p.grad = None

    def end(self, engine: int, mine: range, engines: int, *, scale: float | None = None) -> None:
        """`engine` is computed: a parameter it did not use counts as zero; then the additions that this worker can make alone.

        `scale` multiplies its gradients first, where the loss could not be multiplied.
        """
        self._take_rest(engine, scale)
        for left, right in tree.own_merges(mine, engines)[engine]:
            if not (self._adding and right == engine):
                for a, b in zip(self._row(left).flats, self._row(right).flats, strict=True):
                    a.add_(b)
                self._release(right)

    def _take_rest(self, engine: int, scale: float | None) -> None:
        """The gradients that are not in the row yet, and which there were."""
        for i, (view, p) in enumerate(zip(self._target, self._parameters, strict=True)):
            grad, p.grad = p.grad if self._parts[i] is None else self._parts[i], None
            if grad is not None:  # not added yet
                _refuse_sparse(grad)
                self._times[i] = 1
                part = (grad if scale is None else grad.to(view.dtype) * scale).detach().to(view.device)
                half_precision.add(view, part) if self._adding else view.copy_(part)
            elif p.requires_grad and not self._times[i]:
                # Another engine may have used it; adding a zero is not nothing: -0.0 becomes 0.0.
                view.add_(0) if self._adding else view.zero_()
        self._segment.used[engine] = torch.tensor([times > 0 for times in self._times], dtype=torch.uint8)
        self._drop_others()
        self._target = []

    def stage_parts(self, engines: int) -> None:
        """What this worker could not add up alone is put where the others see it. Before the first barrier."""
        rows = tree.rows(self._workers, engines)
        for place, row in tuple(self._held.items()):
            for shared, own in zip(self._flat[rows[place]], row.flats, strict=True):
                shared.copy_(own)
            self._release(place)

    def _release(self, place: int) -> None:
        if place in self._held:
            row = self._held.pop(place)
            self._spare.setdefault(tuple(flat.dtype for flat in row.flats), []).append(row)

    def add_cross_rank(self, rank: int, workers: int, engines: int) -> None:
        """Add up the shard of `rank`. Between the two barriers of a step."""
        self.read_used(engines)
        self._add_shard(rank, workers, engines)

    def _add_shard(self, rank: int, workers: int, engines: int) -> None:
        rows = tree.rows(workers, engines)
        cross_rank = tuple((rows[left], rows[right]) for left, right in tree.cross_rank_merges(workers, engines))
        for i, flat in enumerate(self._segment.layout.flat_buffers):
            chunk, mine = CHUNK_BYTES // flat.parts.itemsize, shard(flat, rank, workers)
            for start in range(mine.start, mine.stop, chunk):
                self._add_piece(i, slice(start, min(start + chunk, mine.stop)), cross_rank)

    def read_used(self, engines: int) -> None:
        """Note which parameters any engine has used. Before the second barrier: after it a fast worker may already write those of its
        next step."""
        self._used = self._segment.used[:engines].amax(0).tolist()

    @property
    def used(self) -> Sequence[int]:
        """For each parameter, whether any engine has used it in this step. From the second barrier on."""
        return self._used

    def _add_piece(self, flat: int, part: slice, cross_rank: tuple[tree.Merge, ...]) -> None:
        """`cross_rank`: additions of rows."""
        total = self._flat[SUM_ROW][flat][part]
        if not cross_rank:  # a last step that one worker computed alone
            total.copy_(self._flat[FIRST_ROW][flat][part])
            return
        for left, right in cross_rank[:-1]:
            self._flat[left][flat][part].add_(self._flat[right][flat][part])
        left, right = cross_rank[-1]
        torch.add(self._flat[left][flat][part], self._flat[right][flat][part], out=total)

    def set_grads(self, workers: int, engines: int, optimizer: torch.optim.Optimizer) -> None:
        """Make the sum every parameter's `.grad`; one that no engine used keeps None, as in a plain loop. After the second barrier.

        Where something may change gradients in place (clipping), each worker gets a copy: the sum belongs to all of them.
        """
        if workers == 1:
            row = self._rounded(self._row(0))
            self.read_used(engines)
        else:
            row = self._sum(optimizer)
        for p, view, some in zip(self._parameters, row.views, self._used, strict=True):
            p.grad = view.to(p.device) if some else None
        self._versions = [flat._version for flat in self._flat[SUM_ROW]]

    def _rounded(self, row: Row) -> Row:
        """What the only worker has added up, as gradients."""
        if all(flat.parts == flat.dtype for flat in self._segment.layout.flat_buffers):
            return row
        total = self._own_row(self._engines) if self._on_device else self._shared_row(SUM_ROW)
        for rounded, flat in zip(total.flats, row.flats, strict=True):
            rounded.copy_(flat)
        return total

    def _sum(self, optimizer: torch.optim.Optimizer) -> Row:
        """Where the sum stands, for this worker to read."""
        if self._on_device or self.copies or optimizers.may_change_gradients(optimizer):
            row = self._own_row(self._engines)
            for own, total in zip(row.flats, self._flat[SUM_ROW], strict=True):
                own.copy_(total)
            return row
        return self._shared_row(SUM_ROW)

    def set_own_grads(self) -> None:
        """The only worker has computed the only engine: the gradients are where they belong. They are to be as a sum would be."""
        self._drop_others()
        for p in self._parameters:
            if p.grad is not None and p.grad.layout == torch.strided and p.grad.stride() != strides_of(p):
                p.grad = laid_out_as(p, torch.empty_like(p.grad).view(-1)).copy_(p.grad)

    def _drop_others(self) -> None:
        for p in self._others:
            p.grad = None

    def refuse_changes(self, optimizer: torch.optim.Optimizer) -> None:
        """Raises UserError where the optimizer holds other parameters than at the start: nobody would add up their gradients."""
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        if held != self._where.keys():
            raise UserError(
                "the optimizer was given parameters, or lost some, while it was training: give it all of them before train(), and call "
                "requires_grad_(False) on those that are not to be trained yet (they are not stepped until requires_grad_(True))"
            )

    def check(self) -> None:
        """After the optimizer's step: the shared sum must be as it was. Raises UserError where it is not (see `may_change_gradients`)."""
        if self._versions != [flat._version for flat in self._flat[SUM_ROW]]:
            raise UserError(
                "the optimizer changes gradients in place in a way that was not foreseen; give it a step_pre_hook that does nothing"
            )

    def drop(self) -> None:
        """The optimizer has used the gradients; also: a step was dropped, whatever stands anywhere is void."""
        self._target, self._parts = [], [None] * len(self._parameters)
        self._drop_others()
        for p in self._parameters:
            p.grad = None
        for place in tuple(self._held):
            self._release(place)


def _refuse_sparse(grad: torch.Tensor) -> None:
    if grad.layout != torch.strided:
        raise UserError("sparse gradients are not supported: build the layer with sparse=False")
