"""Which bucket holds what, who adds up which shard, and in which order: pure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_runtime.elastic import tree
from training_runtime.elastic.comm import buckets
from training_runtime.elastic.comm.buckets import Bucket, ParameterSpan

WORKERS, ENGINES = st.integers(1, 40), st.integers(1, 70)
MB = 1 << 20


@st.composite
def places(draw):
    """Parameters of up to three flat buffers, each flat buffer without gaps."""
    ends, found = {}, []
    for flat_buffer, size in draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 50)), max_size=40)):
        found.append(ParameterSpan(flat_buffer, ends.get(flat_buffer, 0), size, (4, 2, 8)[flat_buffer]))
        ends[flat_buffer] = ends.get(flat_buffer, 0) + size
    return found


@pytest.mark.parametrize(
    ("sizes_mb", "expected"),
    [
        ([1, 2, 3], [(0, 1, 2)]),
        ([10, 10, 10, 10], [(2, 3), (0, 1)]),
        ([30, 1, 1], [(1, 2), (0,)]),
        ([1, 30, 1], [(2,), (1,), (0,)]),
        ([25, 25], [(1,), (0,)]),
    ],
)
def test_buckets_are_filled_from_the_last_parameter_on(sizes_mb, expected):
    starts = [sum(sizes_mb[:i]) * MB // 4 for i in range(len(sizes_mb))]
    found = buckets.plan([ParameterSpan(0, start, size * MB // 4, 4) for start, size in zip(starts, sizes_mb, strict=True)])
    assert [bucket.parameters for bucket in found] == expected


def test_lanes_are_sent_in_the_order_in_which_a_backward_pass_finishes_them():
    found = buckets.plan(
        [ParameterSpan(0, 0, 8, 4), ParameterSpan(1, 0, 8, 2), ParameterSpan(0, 8, 8, 4), ParameterSpan(1, 8, 8, 2)], bucket_bytes=16
    )
    assert [bucket.parameters for bucket in found] == [(3,), (2,), (1,), (0,)]
    assert found[0] == Bucket(1, 8, 16, (3,))


@given(places(), st.integers(1, 200))
def test_each_parameter_lies_in_one_bucket_that_spans_it(found, bucket_bytes):
    planned = buckets.plan(found, bucket_bytes)
    assert sorted(i for bucket in planned for i in bucket.parameters) == list(range(len(found)))
    for bucket in planned:
        held = [found[i] for i in bucket.parameters]
        assert {place.flat_buffer for place in held} == {bucket.flat_buffer}
        assert bucket.stop - bucket.start == sum(place.size for place in held)
        assert all(bucket.start <= place.start and place.start + place.size <= bucket.stop for place in held)
        assert len(held) == 1 or sum(place.size * place.item_bytes for place in held) <= bucket_bytes


@given(st.integers(0, 5000), WORKERS)
def test_shards_cover_a_bucket_without_overlap(size, workers):
    found = buckets.shards(size, workers)
    assert len(found) == workers
    assert [element for shard in found for element in shard] == list(range(size))


@given(st.integers(0, 5000), WORKERS, st.integers(1, 700))
def test_pieces_cover_a_shard(size, workers, length):
    for shard in buckets.shards(size, workers):
        found = buckets.pieces(shard, length)
        assert [element for piece in found for element in piece] == list(shard)
        assert all(0 < len(piece) <= length for piece in found)


@given(ENGINES, WORKERS)
def test_the_parts_of_all_workers_added_as_the_tree_says_are_the_sum(engines, workers):
    there = {place for parts in buckets.parts_of(workers, engines) for place in parts}
    for left, right in tree.cross_rank_merges(workers, engines):
        assert left in there
        there.remove(right)
    assert there == {0}


@given(ENGINES, WORKERS)
def test_what_the_last_engine_of_a_worker_is_added_to_is_what_the_tree_has_it_added_to(engines, workers):
    for rank in range(workers):
        mine = tree.share(rank, workers, engines)
        if not mine:
            assert buckets.chain(mine, engines) == ()
            continue
        newest, own = mine[-1], tree.own_merges(mine, engines)[mine[-1]]
        for left, right in own:
            assert right == newest, "each addition has all that came before on its right"
            newest = left
        assert buckets.chain(mine, engines) == tuple(left for left, _ in own)


@given(st.sampled_from([1, 2, 4, 8, 16]), st.sampled_from([1, 2, 4, 8, 16]), st.integers(1, 4))
def test_a_worker_sends_as_much_as_in_a_ring_however_many_there_are(workers, each, mb):
    size = mb * MB
    sent = [buckets.sent_bytes(size, rank=rank, workers=workers, engines=workers * each) for rank in range(workers)]
    assert max(sent) <= 2 * size * (workers - 1) / workers + 64 * workers
