"""The summation tree, the order of samples and the shares: pure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_runtime.elastic import tree
from training_runtime.elastic.data.sampler import RunPlan, derive
from training_runtime.errors import UserError

ENGINES = st.integers(1, 70)


def summed(engines: int, workers: int) -> str:
    """The sum as a formula: each worker's own merges in its order, then those across ranks."""
    row = {m: str(m) for m in range(engines)}
    for rank in range(workers):
        mine = tree.share(rank, workers, engines)
        own = tree.own_merges(mine, engines)
        for m in mine:
            for left, right in own[m]:
                row[left] = f"({row[left]}+{row.pop(right)})"
    for left, right in tree.cross_rank_merges(workers, engines):
        row[left] = f"({row[left]}+{row.pop(right)})"
    assert list(row) == [0]
    return row[0]


@given(ENGINES, st.integers(1, 70))
def test_the_sum_is_the_same_formula_for_any_number_of_workers(engines, workers):
    assert summed(engines, workers) == summed(engines, 1)


@given(ENGINES)
def test_every_engine_is_added_once(engines):
    merges = tree.merges(engines)
    assert sorted(right for _, right in merges) == list(range(1, engines))


@given(ENGINES, st.integers(1, 70))
def test_shares_cover_all_engines_and_differ_by_one_at_most(engines, workers):
    shares = [tree.share(rank, workers, engines) for rank in range(workers)]
    assert [m for share in shares for m in share] == list(range(engines))
    sizes = {len(share) for share in shares}
    assert max(sizes) - min(sizes) <= 1


@given(ENGINES, st.integers(1, 70))
def test_no_row_is_taken_for_two_sums_at_a_time(engines, workers):
    """As a step goes: whatever a worker computes, no sum that is still needed is written over; at the end all parts are there."""
    rows = tree.rows(workers, engines)
    held: dict[int, str] = {}
    kept: dict[int, int] = {}
    for rank in range(workers):
        mine = tree.share(rank, workers, engines)
        own = tree.own_merges(mine, engines)
        for m in mine:
            if (m - 1, m) in own[m]:
                held[rows[m - 1]] = f"({held[rows[m - 1]]}+{m})"
            else:
                assert rows[m] not in kept, "somebody's sum stands there"
                held[rows[m]], kept[rows[m]] = str(m), m
            for left, right in own[m]:
                if not (left == m - 1 and right == m):
                    held[rows[left]] = f"({held[rows[left]]}+{held[rows[right]]})"
                    del kept[rows[right]]
        assert {place for place in kept.values() if place in mine} == set(tree.parts(mine, engines))
    for left, right in tree.cross_rank_merges(workers, engines):
        held[rows[left]] = f"({held[rows[left]]}+{held[rows[right]]})"
    assert held[rows[0]] == summed(engines, 1)


@given(ENGINES, st.integers(1, 70))
def test_rows_are_as_many_as_parts_need_and_not_one_for_each_engine(engines, workers):
    shares = [len(tree.share(rank, workers, engines)) for rank in range(workers)]
    assert tree.rows_needed(workers, engines) <= sum(min(share, 2 * share.bit_length()) for share in shares)
    assert tree.rows_needed(1, engines) <= (engines - 1).bit_length() or engines == 1
    assert 0 not in tree.rows(workers, engines).values(), "that is the sum's"


def test_the_tree_of_six():
    assert summed(6, 1) == "(((0+1)+(2+3))+(4+5))"


shapes = st.builds(
    RunPlan,
    samples=st.integers(1, 400),
    test_samples=st.integers(0, 50),
    batch_size=st.integers(1, 20),
    engines=st.integers(1, 9),
    epochs=st.integers(1, 4),
    seed=st.integers(0, 2**40),
)


@given(shapes, st.integers(0, 3))
def test_every_sample_is_used_exactly_once_in_an_epoch(shape, epoch):
    order = shape.order(epoch)
    used = [i for index in range(shape.steps_per_epoch) for m in range(len(shape.sizes(index))) for i in order[shape.span(index, m)]]
    assert sorted(used) == list(range(shape.samples))


@given(shapes)
def test_the_last_step_is_split_evenly_over_as_few_engines_as_hold_it(shape):
    sizes = shape.sizes(shape.steps_per_epoch - 1)
    assert max(sizes) <= shape.batch_size
    assert max(sizes) - min(sizes) <= 1
    assert (len(sizes) - 1) * shape.batch_size < sum(sizes)


@given(shapes)
def test_units_number_the_steps_without_a_gap(shape):
    units = [shape.unit(position) for position in range(shape.length)]
    assert [u.step for u in units if u.kind == "step"] == list(range(1, shape.epochs * shape.steps_per_epoch + 1))
    assert [shape.step_at(position) for position in range(shape.length + 1)] == [
        sum(u.kind == "step" for u in units[:position]) for position in range(shape.length + 1)
    ]


@given(shapes)
def test_engine_batches_are_counted_over_the_incomplete_steps_too(shape):
    total = 0
    for step in range(1, shape.epochs * shape.steps_per_epoch + 1):
        total += len(shape.sizes((step - 1) % shape.steps_per_epoch))
        assert shape.engine_batches(step) == total


def test_seeds_differ_by_every_part():
    seeds = {derive(s, e, t, m, p) for s in (0, 1) for e in (0, 1) for t in (0, 1) for m in (0, 1) for p in ("load", "forward")}
    assert len(seeds) == 32


def test_an_empty_dataset_is_refused_in_plain_words():
    with pytest.raises(UserError, match="0 training samples"):
        RunPlan(samples=0, test_samples=0, batch_size=4, engines=2, epochs=1, seed=0)
