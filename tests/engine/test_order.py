"""The order of samples: a permutation that every worker can look up without a list of all samples."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.e2e.studio import REPOSITORY
from tests.engine.scripts import SMALL
from training_runtime.elastic.data import order
from training_runtime.elastic.data.order import MOST_LISTED, ROUNDS, Order, permuted
from training_runtime.elastic.data.sampler import RunPlan
from training_runtime.elastic.state import checkpoint
from training_runtime.errors import UserError

keys = st.lists(st.integers(0, 2**32 - 1), min_size=ROUNDS, max_size=ROUNDS)


@given(st.integers(1, 3000), keys)
def test_what_is_computed_is_a_permutation_whatever_the_keys_are(samples, keys):
    assert sorted(permuted(torch.arange(samples), samples, keys).tolist()) == list(range(samples))


@pytest.fixture
def computed(monkeypatch):
    """computed(samples, seed) -> an order that is computed, of any number of samples."""
    monkeypatch.setattr(order, "MOST_LISTED", 0)
    return Order


@pytest.mark.parametrize("samples", [1, 2, order.BLOCK - 1, order.BLOCK, order.BLOCK + 1, 3 * order.BLOCK + 17])
def test_spans_of_any_size_see_one_permutation(computed, samples):
    whole = computed(samples, 7)[range(samples)]
    assert sorted(whole) == list(range(samples))
    for size in (1, 1000, order.BLOCK, samples):
        starts = range(0, samples, max(size, samples // 50))
        other = computed(samples, 7)
        for start in starts:
            span = range(start, min(start + size, samples))
            assert other[span] == whole[span.start : span.stop]
    assert other[range(samples, samples)] == []


def test_seeds_and_epochs_go_through_them_differently(computed):
    shape = RunPlan(samples=10_000, test_samples=0, batch_size=10, engines=4, epochs=3, seed=1)
    orders = [shape.order(epoch)[range(10_000)] for epoch in range(3)]
    assert orders[0] == shape.order(0)[range(10_000)]
    assert all(sum(a == b for a, b in zip(one, other, strict=True)) < 20 for one, other in ((orders[0], orders[1]), (orders[1], orders[2])))


@pytest.mark.parametrize("seed", range(5))
def test_it_looks_like_one_that_was_drawn(computed, seed):
    """Chi-square over 16 x 16 cells of place and sample, and of neighbours: 225 degrees of freedom, of which six sigma are 127."""
    samples = 1 << 16
    found = torch.tensor(computed(samples, seed)[range(samples)])
    expected = samples / 256
    for one, other in ((torch.arange(samples), found), (found[:-1], found[1:]), (found % 16 * 4096, torch.arange(samples))):
        cells = torch.bincount((one * 16 // samples) * 16 + other * 16 // samples, minlength=256).double()
        assert 98 < ((cells - expected) ** 2 / expected).sum() < 352


@pytest.mark.parametrize("listed", [True, False])
def test_a_scripts_default_device_changes_nothing(monkeypatch, listed):
    monkeypatch.setattr(order, "MOST_LISTED", 100 if listed else 0)
    usual = Order(100, 1)[range(100)]
    with torch.device("meta"):
        assert Order(100, 1)[range(100)] == usual


@pytest.mark.parametrize("span", [range(-1, 3), range(8, 11), range(0, 10, 2), range(5, 3)])
@pytest.mark.parametrize("listed", [True, False])
def test_what_is_no_span_of_the_set_is_refused(monkeypatch, span, listed):
    monkeypatch.setattr(order, "MOST_LISTED", 10 if listed else 0)
    with pytest.raises(IndexError):
        Order(10, 1)[span]


def test_a_hundred_million_samples_take_no_memory():
    code = """
import resource
from training_runtime.elastic.data.sampler import RunPlan
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
shape = RunPlan(samples=10**8, test_samples=0, batch_size=64, engines=8, epochs=2, seed=3)
shape.order(0)[shape.span(0, 0)]
before = peak()
for epoch in range(2):
    order = shape.order(epoch)
    steps = range(0, shape.steps_per_epoch, shape.steps_per_epoch // 40)
    seen = [i for step in steps for m in range(8) for i in order[shape.span(step, m)]]
    assert len(set(seen)) == len(seen) and max(seen) > 9 * 10**7
print(peak() - before)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 32, "MiB"


COMPUTED = "from training_runtime.elastic.data import order\norder.MOST_LISTED, order.BLOCK = 64, 32\n"


def test_a_training_whose_order_is_computed_is_exact(fixed, start):
    alone = fixed(script=COMPUTED + SMALL)
    run = start(COMPUTED + SMALL)
    run.members(0, 1, 2)
    run.until_step(9)
    run.members(3)
    assert run.wait() == 0, run.tail()
    assert run.weights() == alone.weights()
    assert run.train_lines() == alone.train_lines()
    assert alone.train_lines() != fixed().train_lines(), "it is another order"


def test_a_state_of_a_release_with_another_order_is_refused():
    shape = RunPlan(samples=MOST_LISTED + 1, test_samples=0, batch_size=4, engines=2, epochs=1, seed=0)
    saved = checkpoint.vars_of(shape)
    checkpoint.check({"shape": saved}, shape)
    del saved["order"]
    with pytest.raises(UserError, match="an earlier release"):
        checkpoint.check({"shape": saved}, shape)
    small = RunPlan(samples=400, test_samples=0, batch_size=4, engines=2, epochs=1, seed=0)
    saved = checkpoint.vars_of(small)
    del saved["order"]
    checkpoint.check({"shape": saved}, small)  # nothing has changed for these
