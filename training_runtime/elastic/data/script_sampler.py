"""The order of an epoch as a sampler of the script's draws it (`torch.utils.data.Sampler`, or what is iterated like one).

Every worker draws for itself, so what a sampler gives must be a function of the epoch alone: it draws from generators that are seeded for
the epoch, its own (`generator`) too, and is told the epoch where it has `set_epoch`. Afterwards all generators stand where they stood.
A sampler that counts its calls, or changes with what is learnt, would give each worker an order of its own. It is refused: before the
training by drawing an epoch again after another one, later by drawing the epoch before again when the next one is drawn.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import torch

from training_runtime.elastic.data.sampler import derive, generator_states, seed_everything, set_generator_states
from training_runtime.errors import UserError

NO_LENGTH = "the sampler ({}) must have a length and be iterable: __len__ says how many samples an epoch has, __iter__ gives their numbers"
NO_NUMBERS = (
    "the sampler ({}) must give the number of one sample at a time: batches are made by batch_size and parts, so give what is within a "
    "BatchSampler"
)
NO_SAMPLE = "the sampler ({}) gave {}, and the dataset's samples are 0 to {}"
COUNT = "the sampler ({}) gave {} samples of an epoch and its length is {}: the two must agree"
RANKS = "the sampler ({}) is for one rank of several: all workers share one order here, so give the whole one, for instance {}"
NOT_THE_SAME = (
    "the sampler ({}) gave another order for the same epoch. Each worker draws it for itself, so it must depend on the epoch alone: draw "
    "from torch, `random`, numpy or the sampler's `generator`, which are seeded for each epoch, have set_epoch(epoch) if it needs to know "
    "it, and do not change it during the training"
)


class Drawn:
    """`order[span]`: the samples at these places, as `order.Order` has them."""

    def __init__(self, places: torch.Tensor) -> None:
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, span: range) -> list[int]:
        found: list[int] = self._places[span.start : span.stop].tolist()
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Drawn) and torch.equal(self._places, other._places)

    __hash__ = None  # type: ignore[assignment]


def check(sampler: Any, samples: int) -> None:
    """UserError where `sampler` cannot give the order of a set of so many samples to every worker alike."""
    name = type(sampler).__name__
    if not (hasattr(sampler, "__len__") and hasattr(sampler, "__iter__")):
        raise UserError(NO_LENGTH.format(name))
    if hasattr(sampler, "num_replicas") and hasattr(sampler, "rank"):
        raise UserError(RANKS.format(name, "RandomSampler(dataset), or none: the order is shuffled without one"))
    first = draw(sampler, samples, 0, seed=0)
    draw(sampler, samples, 1, seed=0)
    if draw(sampler, samples, 0, seed=0) != first:
        raise UserError(NOT_THE_SAME.format(name))


def draw(sampler: Any, samples: int, epoch: int, *, seed: int) -> Drawn:
    """The order of `epoch` (from 0). UserError where it is none of a set of so many samples."""
    name, length = type(sampler).__name__, len(sampler)
    with _seeded(sampler, derive(seed, epoch, 0, 0, "sampler")), torch.device("cpu"):
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)
        numbers = _numbers(islice(iter(sampler), length + 1), name)
    if len(numbers) != length:
        raise UserError(COUNT.format(name, f"more than {length}" if len(numbers) > length else len(numbers), length))
    places = torch.frombuffer(numbers, dtype=torch.int64) if length else torch.empty(0, dtype=torch.int64)
    for odd in places[(places < 0) | (places >= samples)][:1].tolist():
        raise UserError(NO_SAMPLE.format(name, odd, samples - 1))
    return Drawn(places)


def again(sampler: Any, samples: int, epoch: int, drawn: Drawn, *, seed: int) -> None:
    """UserError where `epoch` has come to have another order than it had."""
    if draw(sampler, samples, epoch, seed=seed) != drawn:
        raise UserError(NOT_THE_SAME.format(type(sampler).__name__))


def _numbers(given: Iterable[Any], name: str) -> array[int]:
    numbers = array("q")
    for each in given:
        try:
            numbers.append(each)
        except (TypeError, OverflowError):
            raise UserError(NO_NUMBERS.format(name)) from None
    return numbers


@contextmanager
def _seeded(sampler: Any, value: int) -> Iterator[None]:
    """All generators that a sampler may draw from stand for `value`, and afterwards where they stood."""
    own = getattr(sampler, "generator", None)
    own = own if isinstance(own, torch.Generator) else None
    outside = generator_states()
    owns = None if own is None else own.get_state()
    try:
        seed_everything(value, devices=False)
        if own is not None:
            own.manual_seed(value)
        yield
    finally:
        set_generator_states(outside)
        if own is not None and owns is not None:
            own.set_state(owns)
