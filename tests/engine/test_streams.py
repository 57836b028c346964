"""Streams: a step's batch is the next samples of the stream, whoever computes it and wherever it was begun."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from tests.engine.scripts import SMALL
from training_runtime.elastic.data import streams
from training_runtime.elastic.data.streams import Stream
from training_runtime.errors import UserError
from training_runtime.fabric.from_loader import Data, opened, with_numbers
from training_runtime.fabric.native import elastic


class Plain(IterableDataset[Any]):
    """Draws from everything, and knows its pass."""

    turn = -1

    def __init__(self, count: int = 20) -> None:
        self.count, self.begun, self.given = count, 0, 0

    def set_epoch(self, epoch: int) -> None:
        self.turn = epoch

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.begun += 1
        for i in range(self.count):
            self.given += 1
            yield {"i": torch.tensor([i, self.turn]), "drawn": (random.random(), float(torch.rand(())), float(np.random.rand()))}


class Long(Plain):
    def __len__(self) -> int:
        return self.count


class Resumed(Plain):
    """Says where it is."""

    at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for i, sample in enumerate(super().__iter__() if not self.at else self._rest(), self.at):
            self.at = i + 1
            yield sample
        self.at = 0

    def _rest(self) -> Iterator[dict[str, Any]]:
        for i in range(self.at, self.count):
            self.given += 1
            yield {"i": torch.tensor([i, self.turn]), "drawn": (random.random(), float(torch.rand(())), float(np.random.rand()))}


def made(dataset: Plain, samples: int = 0) -> Stream:
    stream = with_numbers(Data(dataset, batch_size=4, samples=samples)).dataset
    assert isinstance(stream, Stream)
    stream.seed = 7
    dataset.begun = dataset.given = 0
    return stream


MAKES: dict[str, Callable[[], Stream]] = {
    "with a length": lambda: made(Long()),
    "without": lambda: made(Plain(), samples=14),
    "shorter than an epoch": lambda: made(Plain(5), samples=14),
    "that says where it is": lambda: made(Resumed(), samples=14),
}


def told(samples: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(*sample["i"].tolist(), *sample["drawn"]) for sample in samples]


def all_of(stream: Stream, count: int) -> list[tuple[Any, ...]]:
    return told(stream.__getitems__(range(count)))


@pytest.mark.parametrize("kind", MAKES)
def test_samples_are_the_same_in_any_pieces_and_leave_generators_where_they_stood(kind: str) -> None:
    make = MAKES[kind]
    whole = all_of(make(), 60)
    torch.manual_seed(5), random.seed(5), np.random.seed(5)
    before = torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()
    one, pieces = make(), []
    for first in range(0, 60, 6):
        mine = one.__getitems__([first + 2, first + 3])
        torch.rand(3), random.random(), np.random.rand()
        redone = one.__getitems__([first, first + 1])  # of one that died
        pieces += [*redone, *mine, *one.__getitems__([first + 4, first + 5])]
        one.settle(first + 6)
    assert told(pieces) == whole
    torch.manual_seed(5), random.seed(5), np.random.seed(5)
    assert (torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()) == before


def test_a_stream_that_says_where_it_is_and_one_with_a_length_are_not_gone_through_again() -> None:
    for make, position in ((MAKES["that says where it is"], 17), (MAKES["with a length"], 20 * 50 + 1)):
        first, other = make(), make()
        if first.length:
            first.approach(position)  # begins with its pass
            first.settle(position)
        first.settle(position)
        other.position.load_state_dict(first.position.state_dict())
        other.__getitems__([position])
        assert other.dataset.given <= 2


def test_what_was_gone_through_ahead_is_not_gone_through_again() -> None:
    ahead, first = made(Plain(), samples=14), made(Plain(), samples=14)
    ahead.approach(12)
    first.settle(15)
    ahead.position.load_state_dict(first.position.state_dict())
    ahead.__getitems__([15])
    assert (ahead.dataset.begun, ahead.dataset.given) == (1, 16)


def test_samples_that_a_collate_function_changes_are_as_they_were_when_a_step_is_done_again() -> None:
    stream = made(Plain(), samples=14)
    (sample,) = stream.__getitems__([3])
    sample["i"].zero_()
    assert stream.__getitems__([3])[0]["i"].tolist() == [3, 0]


class Counts(Plain):
    def __iter__(self) -> Iterator[Any]:
        self.begun += 1
        return iter(range(self.begun, self.begun + 20))


class Later(Plain):
    """Another one after the first samples, each time."""

    def __iter__(self) -> Iterator[Any]:
        self.begun += 1
        return iter([*range(10), *range(self.begun, self.begun + 20)])


class Short(Plain):
    def __len__(self) -> int:
        return 100


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (Data(iter([1, 2]), samples=2), "an iterator, which can be gone through once"),
        (Data(Plain()), "a stream without a length: say by samples"),
        (Data(Plain(), samples=4, sampler=[1]), "come in its own order"),
        (Data([1, 2], samples=2), "samples= is for streams; list has a length"),
        (Data([1], test_set=Plain()), "test_set .Plain. must have a length"),
        (Data(Counts(), samples=4), "did not give the same samples again"),
        (Data(DataLoader(Plain(), 4)), "a stream without a length"),
    ],
)
def test_what_every_worker_cannot_go_through_alike_is_refused_with_a_sentence(given: Data, words: str) -> None:
    with pytest.raises(UserError, match=words):
        with_numbers(opened(given) if isinstance(given.dataset, DataLoader) else given)


def test_a_stream_that_ends_too_early_gives_nothing_or_is_another_one_later_is_refused() -> None:
    with pytest.raises(UserError, match="has a length of 100, and ended after 20 samples: correct __len__, or say samples=20"):
        made(Short()).settle(24)
    with pytest.raises(UserError, match="gave no sample in pass 1"):
        made(Plain(0), samples=4).settle(1)
    first, other = made(Later(), samples=40), made(Later(), samples=40)
    other.dataset.begun = 3
    first.settle(16)
    other.position.load_state_dict(first.position.state_dict())
    with pytest.raises(UserError, match=r"did not give the same samples again \(its first 16 of pass 1\)"):
        other.settle(20)


def test_a_stream_whose_own_position_loses_samples_is_gone_through_instead() -> None:
    class Shuffles(Resumed):
        def _rest(self) -> Iterator[Any]:
            next(rest := super()._rest())
            return rest

    assert made(Resumed(), samples=14).resumes
    assert not made(Shuffles(), samples=14).resumes
    assert not made(Plain(), samples=14).resumes


def test_an_error_of_the_stream_is_its_own_and_the_next_try_begins_anew() -> None:
    class Breaks(Plain):
        broken = False

        def __iter__(self) -> Iterator[Any]:
            for i in range(20):
                if i == 12 and not self.broken:
                    self.broken = True
                    raise OSError("the disk is away")
                yield i

    stream = made(Breaks(), samples=14)
    stream.settle(8)
    with pytest.raises(OSError, match="the disk is away"):
        stream.__getitems__([12])
    assert stream.__getitems__([9, 12]) == [9, 12]


def test_a_loader_says_what_it_has_been_told() -> None:
    data = with_numbers(opened(Data(DataLoader(Long(), 6, drop_last=True, collate_fn=list))))
    assert (data.batch_size, data.collate, len(data.dataset), data.dataset.length) == (6, list, 18, 18)
    assert len(with_numbers(opened(Data(DataLoader(Long(), 6)))).dataset) == 20


@pytest.mark.parametrize(
    "sample",
    [
        torch.ones(3),
        np.ones((2, 2)),
        b"some",
        {"a": [1, 2.5, "x", None]},
        (torch.tensor(1j), torch.zeros(0)),
        torch.ones(5)[::2],
        torch.ones(3, dtype=torch.bfloat16),
        torch.ones(2, requires_grad=True),
        torch.tensor([1j]).conj(),
        np.float32(3),
        torch.eye(2).to_sparse(),
    ],
)
def test_a_checksum_is_the_same_for_the_same_and_another_for_another(sample: Any) -> None:
    assert streams.checksum(sample, 0) == streams.checksum(sample, 0) != streams.checksum([sample, 1], 0)
    assert streams.checksum(torch.tensor([1.0, 2.0]), 0) != streams.checksum(torch.tensor([2.0, 1.0]), 0)


def test_generators_are_put_where_a_state_says_that_is_a_part_of_larger_memory() -> None:
    """As those are that come with a checkpoint; torch reads beyond what it is given then."""
    first, other = made(Resumed(), samples=14), made(Resumed(), samples=14)
    first.settle(5)
    own, (torchs, *rest) = first.position.own
    large = torch.full((3 * len(torchs),), 255, dtype=torch.uint8)
    large[8 : 8 + len(torchs)] = torchs
    other.position.load_state_dict({**first.position.state_dict(), "own": (own, (large[8 : 8 + len(torchs)], *rest))})
    assert told(other.__getitems__([5])) == told(first.__getitems__([5]))


def test_a_model_with_a_stream_is_refused_with_where_it_can_be_trained_on(start) -> None:
    script = SMALL.replace("return Noisy(args.samples, 1), Noisy(61, 2)", "return Given(), None")
    assert script != SMALL
    methods = "    def __len__(self):\n        return 8\n    def __iter__(self):\n        return iter(range(8))\n"
    given = "class Given(torch.utils.data.IterableDataset):\n" + methods
    run = start(script.replace("import torch\n", "import torch\n" + given, 1))
    run.members(0)
    assert run.wait() == 1
    assert "the train dataset (Given) is a stream, which a loop over edt.elastic(...) can train on" in run.events("error")[0].message


def test_samples_that_are_no_whole_number_are_refused() -> None:
    model = torch.nn.Linear(1, 1)
    with pytest.raises(UserError, match="elastic: samples must be a whole number of at least 1"):
        elastic(model, torch.optim.SGD(model.parameters(), 0.1), Plain(), batch_size=8, samples=0)
