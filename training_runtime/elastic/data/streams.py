"""A stream of samples (`torch.utils.data.IterableDataset`, or what is iterated like one) as a set whose samples have numbers.

A sample's number says how many came before it since the training began. A stream that ends is gone through again: each time is a pass, for
which all generators are seeded; one that has a length has one pass an epoch. Every worker goes through the whole stream and keeps what its
own parts need, so a step's batch is the next samples of the stream, as in a plain loop, whoever computes it. What costs time (decoding,
augmenting) belongs into `collate`, which is called for a worker's own samples alone.

The position after each step is a part of the training's state. Who takes it up asks the stream to go on there (`load_state_dict`), or goes
through the pass again up to there. A sum over what was read is a part of it too: workers whose streams differ are found by it.
"""

from __future__ import annotations

import contextlib
import copy
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch.utils.data import IterableDataset

from training_runtime.elastic.data.sampler import derive, generator_states, seed_everything, set_generator_states
from training_runtime.elastic.worker import heartbeat
from training_runtime.errors import UserError

LOOKED_AT = 8  # samples by which it is seen whether a stream is the same again
SUMMED_BYTES = 4096  # of each tensor of a sample
BEAT_EVERY = 64  # samples that are gone through

ONCE = (
    "the stream ({}) is an iterator, which can be gone through once, and each worker has to do that: give an object whose __iter__ begins "
    "anew (an IterableDataset)"
)
EMPTY = "the stream ({}) gave no sample in pass {}: its __iter__ must begin anew each time it is called"
SHORT = "the stream ({}) has a length of {}, and ended after {} samples: correct __len__, or say samples={}"
NOT_THE_SAME = (
    "the stream ({}) did not give the same samples again{}. Each worker goes through it for itself, so it must not depend on what it gave "
    "before, on the clock or on the process: draw from torch, `random` or numpy, which are seeded for each pass, open files in __iter__, "
    "and have set_epoch(number) if it needs to know which pass this is"
)


@dataclass
class Position:
    """Where all workers are, after the last step. `number`: of the next sample; `turn`: the pass, from 0, and `start` the number of its
    first sample; `total`: the sum over what was read of it; `own`: what the stream says of its position, with the generators' states."""

    number: int = 0
    turn: int = 0
    start: int = 0
    total: int = 0
    own: Any = None

    def state_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)


class Stream:
    """`samples` of an epoch; `length`: of a pass, where the stream has one. `keeps`: the samples since `position`, as a step may be done
    again. `seed`: of the run."""

    def __init__(self, dataset: Any, samples: int, *, length: int | None = None, keeps: bool = True) -> None:
        self.dataset, self.samples, self.length, self.seed = dataset, samples, length, 0
        self.position = Position()
        self.resumes = False  # exactly, by its own state
        self.unread: list[Any] = []  # that state before anything was read, where it has one
        self._keeps, self._kept = keeps, dict[int, Any]()
        self._reader: _Reader | None = None

    @property
    def name(self) -> str:
        return type(self.dataset).__name__

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, number: int) -> Any:
        return self.__getitems__([number])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        """The samples of these numbers, which ascend."""
        found: list[Any] = []
        for number in numbers:
            if number not in self._kept:
                found += self._read(number, numbers[len(found) :])
                break
            found.append(self._kept[number])
        return copy.deepcopy(found) if self._keeps else found  # a collate function may change what it gets, and it may be needed again

    def of_epoch(self, epoch: int) -> _Epoch:
        return _Epoch(self, epoch * self.samples)

    def settle(self, number: int) -> None:
        """Advance the position to sample `number`: all samples before it have been trained."""
        if number == self.position.number:
            return
        reader = self._reader_before(number, last=number - 1)  # through the end of a pass, whose sum is that of all who have come here
        with reader.drawing():
            while reader.number < number:
                self._check(reader)
                reader.next()
            own = copy.deepcopy(self.dataset.state_dict()) if self.resumes else None
        told = (own, reader.states) if self.resumes else None
        self.position.load_state_dict(vars(Position(number, reader.turn, reader.start, reader.total, told)))
        self._kept.clear()

    def approach(self, number: int) -> None:
        """Read the samples before `number` now, so that others need not wait for it later."""
        if self.resumes:
            return
        reader = self._reader_before(number)
        with reader.drawing():
            while reader.number < number:
                reader.next()

    def _read(self, first: int, numbers: Sequence[int]) -> list[Any]:
        reader, found, wanted = self._reader_before(first), [], set(numbers)
        with reader.drawing():
            while reader.number <= numbers[-1]:
                self._check(reader)
                number, kept = reader.number, self._keeps and reader.number >= self.position.number
                sample = reader.next()
                if kept:
                    self._kept[number] = sample
                if number in wanted:
                    found.append(sample)
        return found

    def _reader_before(self, number: int, *, last: int | None = None) -> _Reader:
        """One that has not read `number` yet, in the pass of `last` (of `number` itself, where that is not said) or before. It is dropped
        where the stream raises: the next one begins anew."""
        if number < self.position.number:  # of another run
            self.position.load_state_dict(vars(Position()))
        at, reader = self.position, self._reader
        if reader is None or reader.broken or reader.number > number:
            self._kept.clear()
            turn = (number if last is None else last) // self.length if self.length else 0
            if at.number and turn <= at.turn:
                reader = _Reader(self, at.turn, at.start)
                if at.own is not None:
                    reader.go_on(at)
            else:
                reader = _Reader(self, turn, turn * (self.length or 0))
            self._reader = reader
        return reader

    def _check(self, reader: _Reader) -> None:
        at = self.position
        if reader.number == reader.start:
            return  # it has read nothing of its pass
        if reader.number == at.number and (reader.turn, reader.start, reader.total) != (at.turn, at.start, at.total):
            raise UserError(NOT_THE_SAME.format(self.name, f" (its first {at.number - at.start} of pass {at.turn + 1})"))


class _Epoch:
    """Samples by their places in an epoch."""

    def __init__(self, stream: Stream, first: int) -> None:
        self._stream, self._first = stream, first

    def __getitems__(self, places: Sequence[int]) -> list[Any]:
        return self._stream.__getitems__([self._first + place for place in places])


class InOrder:
    """The places of an epoch, `order[span]`, as they come."""

    def __getitem__(self, span: range) -> list[int]:
        return list(span)


class _Reader:
    """Goes through pass `turn`, whose first sample is number `start`, and those after it. `broken`: the stream has raised something."""

    def __init__(self, stream: Stream, turn: int, start: int) -> None:
        self._stream, self._dataset = stream, stream.dataset
        self.number = self.start = start
        self.turn, self.total, self.broken = turn, 0, False
        self._iterator: Iterator[Any] | None = None
        self.states: Any = None

    @contextlib.contextmanager
    def drawing(self) -> Iterator[None]:
        """Context in which all generators have the states that the stream left them in; outside they keep their own."""
        outside, self.broken = generator_states(), True
        try:
            if self.states is not None:
                set_generator_states(self.states)
            yield
            self.states, self.broken = generator_states(), False
        finally:
            set_generator_states(outside)

    def go_on(self, at: Position) -> None:
        own, states = at.own
        self.states = states
        with self.drawing():
            self._tell_turn()
            self._dataset.load_state_dict(copy.deepcopy(own))
            self._iterator = iter(self._dataset)
        self.states = states
        self.number, self.total = at.number, at.total

    def next(self) -> Any:
        """The next sample."""
        if self.number - self.start == self._stream.length:
            self._turn_over()
        while True:
            for sample in self._passing():
                self.number += 1
                self.total = checksum(sample, self.total)
                if self.number % BEAT_EVERY == 0:
                    heartbeat.beat()
                return sample
            self._end()

    def _passing(self) -> Iterator[Any]:
        if self._iterator is None:
            seed_everything(derive(self._stream.seed, self.turn, 0, 0, "stream"), devices=False)
            self._tell_turn()
            for state in self._stream.unread:  # else a stream may begin where it was put last, or left
                self._dataset.load_state_dict(copy.deepcopy(state))
            self._iterator = iter(self._dataset)
        return self._iterator

    def _tell_turn(self) -> None:
        if hasattr(self._dataset, "set_epoch"):
            self._dataset.set_epoch(self.turn)

    def _end(self) -> None:
        read, length, name = self.number - self.start, self._stream.length, self._stream.name
        if not read:
            raise UserError(EMPTY.format(name, self.turn + 1))
        if length is not None:
            raise UserError(SHORT.format(name, length, read, read))
        self._turn_over()

    def _turn_over(self) -> None:
        self.turn, self.start, self.total, self._iterator = self.turn + 1, self.number, 0, None


def is_stream(data: Any) -> bool:
    numbered = hasattr(data, "__len__") and hasattr(data, "__getitem__")
    return isinstance(data, IterableDataset) or (hasattr(data, "__iter__") and not numbered)


def length_of(data: Any) -> int | None:
    """The stream's length in samples; None if it has none."""
    try:
        return len(data)
    except (TypeError, NotImplementedError):
        return None


def check(stream: Stream) -> None:
    """UserError where it cannot be gone through by every worker alike, as its first samples show; and whether it goes on by itself."""
    dataset = stream.dataset
    if hasattr(dataset, "state_dict") and hasattr(dataset, "load_state_dict"):
        with contextlib.suppress(Exception):  # it needs to be asked for a sample first
            stream.unread = [copy.deepcopy(dataset.state_dict())]
    if iter(dataset) is dataset:
        raise UserError(ONCE.format(stream.name))
    first = _first(stream, 0)
    _first(stream, 1)
    if _first(stream, 0) != first:
        raise UserError(NOT_THE_SAME.format(stream.name, ""))
    stream.resumes = bool(stream.unread) and _goes_on(stream, first)


def _first(stream: Stream, turn: int) -> list[int]:
    """Checksums over the first samples of a pass."""
    reader = _Reader(stream, turn, 0)
    with reader.drawing():
        return [checksum(sample, 0) for sample in islice(reader._passing(), LOOKED_AT)]


def _goes_on(stream: Stream, first: list[int]) -> bool:
    """Whether the stream, restored to a position among these samples, yields the rest of them."""
    reader, half = _Reader(stream, 0, 0), len(first) // 2
    try:
        with reader.drawing():
            for _ in islice(reader._passing(), half):
                pass
            own = copy.deepcopy(stream.dataset.state_dict())
        again = _Reader(stream, 0, 0)
        again.go_on(Position(own=(own, reader.states)))
        with again.drawing():
            return [checksum(sample, 0) for sample in islice(again._passing(), len(first) - half)] == first[half:]
    except Exception:  # of the stream's own, which has what it needs without
        return False


def checksum(sample: Any, found: int) -> int:
    """Of the beginning of all that a sample holds, added to `found`: for finding accidents, in a few microseconds."""
    if isinstance(sample, torch.Tensor):
        if sample.layout != torch.strided or sample.device.type != "cpu":
            return zlib.crc32(f"{tuple(sample.shape)}".encode(), found)
        flat = sample.detach().resolve_conj().resolve_neg().reshape(-1)
        try:
            return _summed(flat.numpy(), found)
        except TypeError:  # numpy has no such numbers
            return _summed(flat.view(torch.uint8).numpy(), found)
    if type(sample).__module__ == "numpy" and hasattr(sample, "tobytes"):
        return _summed(sample, found)
    if isinstance(sample, (bytes, bytearray, memoryview)):
        return zlib.crc32(sample[:SUMMED_BYTES], found)
    if isinstance(sample, Mapping):
        for key in sample:
            found = checksum(sample[key], zlib.crc32(repr(key).encode(), found))
        return found
    if isinstance(sample, (list, tuple)):
        for each in sample:
            found = checksum(each, found)
        return found
    plain = sample is None or isinstance(sample, (bool, int, float, complex, str))
    return zlib.crc32(repr(sample)[:SUMMED_BYTES].encode("utf-8", "surrogatepass") if plain else type(sample).__name__.encode(), found)


def _summed(array: Any, found: int) -> int:
    """Of the beginning of one of numpy's."""
    return zlib.crc32(array.reshape(-1)[: SUMMED_BYTES // max(1, array.itemsize)].tobytes(), found)
