"""Histograms of event files: buckets of any widths become parts of equal width. Pure."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable

from training_runtime.elastic.script_logs.summaries import wire
from training_runtime.elastic.script_logs.summaries.tensors import MOST_NUMBERS_BYTES, Tensor
from training_runtime.media import BINS, Histogram

Bucket = tuple[float, float, float]  # from, to, how many


def of_proto(message: bytes) -> Histogram | None:
    """Of tensorboard/compat/proto/histogram.proto; None where it says nothing that can be drawn."""
    ends: dict[int, float] = {}
    packed: dict[int, list[float]] = {6: [], 7: []}
    for each in wire.fields(message):
        if each.number in (1, 2) and each.kind == wire.FIXED64:
            (ends[each.number],) = struct.unpack("<d", each.data)
        elif each.number in packed and each.kind in (wire.BYTES, wire.FIXED64) and len(each.data) <= MOST_NUMBERS_BYTES:
            packed[each.number] += [value for (value,) in struct.iter_unpack("<d", each.data)]
    limits, counts = packed[6], packed[7]
    low, high = ends.get(1, 0.0), ends.get(2, 0.0)  # a zero is not written
    # The first bucket begins, and the last may end, where no value is: at minus or plus 1.8e308.
    edges = [min(max(each, low), high) for each in (low, *limits)]
    return binned(zip(edges, edges[1:], counts, strict=False))


def of_tensor(tensor: Tensor) -> Histogram | None:
    """Of rows of (from, to, how many), as tf.summary writes them."""
    rows = tensor.numbers
    if len(tensor.shape) != 2 or tensor.shape[1] != 3 or len(rows) != 3 * tensor.shape[0]:
        return None
    return binned(zip(rows[::3], rows[1::3], rows[2::3], strict=True))


def binned(buckets: Iterable[Bucket]) -> Histogram | None:
    """In BINS parts of equal width, as far as there are values. A bucket's are spread evenly over it."""
    some = [each for each in buckets if all(map(math.isfinite, each)) and each[2] > 0 and each[0] <= each[1]]
    if not some:
        return None
    low, high = min(each[0] for each in some), max(each[1] for each in some)
    if not math.isfinite(high - low):
        return None
    if high <= low:  # all values are the same
        margin = max(abs(low), 1.0) * 1e-3
        low, high = low - margin, high + margin
    width = (high - low) / BINS
    if width <= 0:
        return None
    counts = [0.0] * BINS
    for begin, end, count in some:
        _spread(counts, (begin - low) / width, (end - low) / width, count)
    return Histogram(low, high, tuple(float(f"{count:.6g}") for count in counts))


def _spread(counts: list[float], begin: float, end: float, count: float) -> None:
    """Add a bucket's values, which lie between two places counted in bins."""
    first, last = (min(max(int(place), 0), BINS - 1) for place in (begin, end))
    if first == last or end <= begin:
        counts[first] += count
        return
    for place in range(first, last + 1):
        counts[place] += count * max(0.0, min(end, place + 1) - max(begin, place)) / (end - begin)
