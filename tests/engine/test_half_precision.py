"""Gradients of half precision are added in float32 in the order of the tree and rounded once, whoever adds them. In one process."""

from __future__ import annotations

import os
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from training_runtime.elastic import tree
from training_runtime.elastic.comm import half_precision
from training_runtime.elastic.comm.all_reduce import Exchange, flat_buffers
from training_runtime.elastic.comm.segment import SUM_ROW, Layout, Segment
from training_runtime.elastic.job import Job, TrainConfig
from training_runtime.elastic.training_components import TrainingComponents

HALF = (torch.bfloat16, torch.float16)
SHAPES = ((33, 7), (1,), (513,), (64, 65), (3,))
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.bfloat16, torch.float64)


def gradients(engines: int, dtypes=DTYPES, passes: int = 1) -> list[list[list[torch.Tensor]]]:
    """By engine, pass and parameter: of very different sizes."""
    drawn = torch.Generator().manual_seed(engines)

    def one(m: int, i: int) -> torch.Tensor:
        return (torch.randn(SHAPES[i], generator=drawn) * 10.0 ** ((m + i) % 5 - 3)).to(dtypes[i])

    return [[[one(m, i) for i in range(len(dtypes))] for _ in range(passes)] for m in range(engines)]


def summed(found: list[list[list[torch.Tensor]]], workers: int, *, on_device=lambda rank: False, scale=None, wide=True):
    """What each of so many workers has in `.grad` when all engines are in; by worker and parameter."""
    engines, zeros = len(found), [torch.zeros_like(g) for g in found[0][0]]
    layout = Layout(workers, engines, 1, len(zeros), 0, 0, flat_buffers(zeros, wide=wide))
    fd = os.memfd_create("test")
    try:
        segment = Segment(fd, layout, create=True)
        held = [[torch.nn.Parameter(zero.clone()) for zero in zeros] for _ in range(workers)]
        crew = [Exchange(segment, each, torch.device("cpu"), on_device=on_device(r), own_step=bool(scale)) for r, each in enumerate(held)]
        for rank, exchange in enumerate(crew):
            mine = tree.share(rank, workers, engines)
            exchange.join(SimpleNamespace(size=workers))
            for m in mine:
                exchange.begin(m, mine, engines)
                for each in found[m]:
                    sum((p * g).sum().double() for p, g in zip(held[rank], each, strict=True)).backward()
                exchange.end(m, mine, engines, scale=scale)
        for exchange in crew if workers > 1 else ():
            exchange.stage_parts(engines)
        for rank, exchange in enumerate(crew if workers > 1 else ()):
            exchange.add_cross_rank(rank, workers, engines)
        for exchange, each in zip(crew, held, strict=True):
            exchange.set_grads(workers, engines, torch.optim.SGD(each, 0.1))
        return [[p.grad.clone() for p in each] for each in held]
    finally:
        os.close(fd)


def in_the_tree(found: list[list[list[torch.Tensor]]], *, scale: float = 1.0, wide: bool = True) -> list[torch.Tensor]:
    """The same by plain additions. Several passes of an engine are added as autograd adds to `.grad`."""
    sums = []
    for i in range(len(found[0][0])):
        rows = []
        for passes in found:
            total = passes[0][i]
            for more in passes[1:]:
                total = total + more[i]
            rows.append((total.float() if total.dtype in HALF and wide else total) * scale)
        for left, right in tree.merges(len(found)):
            rows[left] = rows[left] + rows[right]
        sums.append(rows[0].to(found[0][0][i].dtype))
    return sums


def same(found: list[torch.Tensor], wanted: list[torch.Tensor]) -> bool:
    return all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("where", ["shared rows", "rows of their own", "some of each"])
@pytest.mark.parametrize("engines", [2, 3, 5, 8])
def test_the_sum_is_that_of_the_tree_in_float32_rounded_once_for_any_number_of_workers(engines, where):
    found = gradients(engines)
    wanted = in_the_tree(found)
    on_device = {"shared rows": lambda _: False, "rows of their own": lambda _: True, "some of each": lambda rank: rank % 2 == 0}[where]
    for workers in range(1, engines + 1):
        for grads in summed(found, workers, on_device=on_device):
            assert same(grads, wanted), f"{workers} workers"
    assert same(in_the_tree(found, wide=False), wanted) == (engines == 2), "to round after each addition shows where there are several"


@pytest.mark.parametrize("engines", [2, 3, 5, 8])
def test_several_passes_of_an_engine_are_one_gradient_as_autograd_adds_them(engines):
    found = gradients(engines, passes=3)
    wanted = in_the_tree(found)
    for workers in range(1, engines + 1):
        assert all(same(grads, wanted) for grads in summed(found, workers)), f"{workers} workers"


def test_gradients_of_a_step_of_the_scripts_own_are_weighted_in_float32():
    found = gradients(6, passes=2)
    wanted = in_the_tree(found, scale=1 / 3)
    for workers in (1, 2, 3, 6):
        assert all(same(grads, wanted) for grads in summed(found, workers, scale=1 / 3)), f"{workers} workers"


def test_a_sum_that_has_gone_through_numbers_too_large_for_the_dtype_is_right():
    large = [[[torch.full((3,), value, dtype=torch.float16)]] for value in (60000.0, 60000.0, -60000.0, -20000.0)]
    for workers in (1, 2, 3, 4):
        assert summed(large, workers)[0][0].tolist() == [40000.0] * 3


def test_a_run_that_keeps_the_sums_of_an_earlier_release_has_their_bits():
    found = gradients(8)
    wanted = in_the_tree(found, wide=False)
    for workers in (1, 2, 3, 8):
        assert all(same(grads, wanted) for grads in summed(found, workers, wide=False)), f"{workers} workers"


def test_no_other_dtype_lies_in_memory_otherwise_than_it_did():
    plain = [
        torch.zeros(shape, dtype=dtype) for shape, dtype in zip(SHAPES, [torch.float32, torch.float64, torch.complex64] * 2, strict=False)
    ]
    assert flat_buffers(plain) == flat_buffers(plain, wide=False)
    assert all(flat.dtype_in(row) == flat.dtype for flat in flat_buffers(plain) for row in (SUM_ROW, SUM_ROW + 1))


@pytest.mark.parametrize(("engines", "own_step", "widened"), [(1, False, False), (2, False, False), (2, True, True), (3, False, True)])
def test_rows_are_wider_only_where_a_sum_would_be_rounded_more_than_once(engines, own_step, widened, tmp_path):
    model = torch.nn.Linear(3, 2).bfloat16()
    config = TrainConfig(engines=engines, seed=0, result_dir=tmp_path, max_workers=1, in_studio=False)
    parts = TrainingComponents(model, torch.nn.functional.mse_loss, torch.optim.SGD(model.parameters(), 0.1))
    job = Job(parts, lambda: None, 1, 4, config, train_function=print if own_step else None)
    (flat,) = job.layout(job.shape(8, 0)).flat_buffers
    assert (flat.dtype, flat.parts) == (torch.bfloat16, torch.float32 if widened else torch.bfloat16)


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("layout", ["one after the other", "transposed", "with gaps"])
def test_a_part_of_half_precision_is_added_as_if_it_had_been_float32_wherever_it_lies(dtype, layout, monkeypatch):
    monkeypatch.setattr(half_precision, "PIECE", 64)
    shape = {"one after the other": lambda t: t, "transposed": lambda t: t.T, "with gaps": lambda t: t[:, ::2]}[layout]
    into, part = shape(torch.randn(37, 24)), shape(torch.randn(37, 24).to(dtype))
    wanted = into + part.float()
    half_precision.add(into, part)
    assert torch.equal(into, wanted)


def rounded(value: float, dtype: torch.dtype) -> int:
    """The bits of the nearest number, the even one of two: by numpy, or by arithmetic of whole numbers."""
    if dtype == torch.float16:
        with np.errstate(over="ignore"):
            return int(np.float32(value).astype(np.float16).view(np.int16))
    bits = int(np.float32(value).view(np.uint32))
    return int(np.uint16((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).view(np.int16))


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("value", [1.00390625, 1.01171875, 1.0005, -7e-8, 3e-8, 6.1e-5, 4e-39, -2.4e-39, 4.6e-41, 65519.9, -3.38e38])
def test_a_number_is_rounded_alike_wherever_in_a_piece_it_stands(value, dtype):
    """Kernels take most of a tensor in vectors and its end one by one, and some processors' own conversions know no subnormal numbers."""
    for size in (1, 7, 31, 32, 33, 67, 1029):
        total, copied = torch.empty(size, dtype=dtype), torch.empty(size, dtype=dtype)
        torch.add(torch.full((size,), value), torch.zeros(size), out=total)
        copied.copy_(torch.full((size,), value))
        assert torch.stack([total, copied]).view(torch.int16).unique().tolist() == [rounded(value, dtype)], size
