"""torchelastic's sampler, by the name under which scripts import it: each sample of an epoch is shown once, however often ranks change."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.elastic.utils.data import ElasticDistributedSampler as TorchsOwn
from torch.utils.data import DataLoader

from training_runtime import fabric


@pytest.fixture(scope="module")
def sampler_type():
    helpers = str(Path(fabric.__file__).parent / "helpers")
    sys.path.append(helpers)
    try:
        from torchelastic.utils.data import ElasticDistributedSampler
    finally:
        sys.path.remove(helpers)
    return ElasticDistributedSampler


def shown(kind, size: int, phases: list[tuple[int, int]], *, epoch: int = 0, **options) -> list[int]:
    """What all ranks are shown: so many steps of one sample on so many ranks, then the next phase goes on there. 0 steps: to the end."""
    done: list[int] = []
    for ranks, steps in phases:
        if done and len(done) >= size:
            break
        parts = []
        for rank in range(ranks):
            sampler = kind(range(size), ranks, rank, len(done), **options)
            sampler.set_epoch(epoch)
            parts.append(list(sampler))
            assert len(parts[-1]) == len(sampler)
        assert len({len(part) for part in parts}) == 1, "a rank takes more steps than another, which hangs"
        taken = [part[:steps] if steps else part for part in parts]
        done += [sample for step in zip(*taken, strict=True) for sample in step]
    return done


def test_after_a_change_from_4_to_3_ranks_nothing_is_left_out_where_torchs_own_leaves_out_28(sampler_type):
    phases = [(4, 10), (3, 0)]
    assert Counter(shown(sampler_type, 103, phases)) == Counter(range(103)), "63 are left, 21 for each of 3 ranks"
    theirs = Counter(shown(TorchsOwn, 103, phases))
    assert (103 - len(theirs), sum(count > 1 for count in theirs.values())) == (28, 28), "torch has mended it: use its own"


@given(
    size=st.integers(1, 200),
    phases=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 20)), max_size=4),
    last=st.integers(1, 6),
    epoch=st.integers(0, 3),
)
def test_every_sample_is_shown_once_and_only_the_last_step_is_filled_up(sampler_type, size, phases, last, epoch):
    found = shown(sampler_type, size, [*phases, (last, 0)], epoch=epoch)
    assert set(found) == set(range(size))
    repeated = len(found) - size
    assert repeated < max(last, *(ranks for ranks, _ in phases), 1)
    assert sorted(found[:size]) == list(range(size)), "what is shown again comes after all the others"


@given(size=st.integers(1, 100), first=st.integers(1, 5), steps=st.integers(0, 10), then=st.integers(1, 5))
def test_with_drop_last_nothing_is_shown_again(sampler_type, size, first, steps, then):
    found = shown(sampler_type, size, [*([(first, steps)] if steps else []), (then, 0)], drop_last=True)
    assert max(Counter(found).values(), default=1) == 1
    assert size - len(found) < max(first, then)


def test_where_it_goes_on_can_be_set_later_and_a_new_epoch_begins_with_0(sampler_type):
    sampler = sampler_type(range(10), 2, 0)
    loader = DataLoader(list(range(10)), batch_size=1, sampler=sampler)
    whole = [int(batch) for batch in loader]
    sampler.start_index = 4
    assert [int(batch) for batch in loader] == whole[2:]
    assert len(loader) == len(sampler) == 3
    sampler.start_index = 10
    assert list(loader) == []
    sampler.start_index = 0
    sampler.set_epoch(1)
    assert [int(batch) for batch in loader] != whole


def test_what_cannot_be_is_refused(sampler_type):
    with pytest.raises(ValueError, match="less than 0"):
        sampler_type(range(10), 2, 0, -1)
    with pytest.raises(TypeError, match="length"):
        sampler_type(iter(range(10)), 2, 0)
