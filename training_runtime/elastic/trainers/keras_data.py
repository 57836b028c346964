"""Where a fit of Keras is in its data, and the way back there: the pass through them is begun as it was then, and the batches that were
done are drawn once more and dropped.

The order comes back with the random generators of Python, numpy and torch, those that a data set or loader has as attributes, and its plain
attributes. What TensorFlow shuffles by itself comes back where the script has set its seed. Else, and of a PyDataset with workers, of which
Keras hands batches on from one epoch to the next, those are as many batches of data that are shuffled anew.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from training_runtime.elastic.trainers import generators, plain
from training_runtime.elastic.trainers.interruption import Interruption

Steps = Iterator[tuple[int, int, Any]]  # the first batch of a step, its last one, and what they are drawn from


@dataclass
class Position:
    """passes: through the data that were begun; batches: done of this epoch; drawn: of this pass, which may be longer than an epoch;
    at_creation, at_first: the generators when the pass was made and when its first batch was drawn; now: when the last one had been done;
    attributes: of the data then."""

    passes: int
    batches: int
    drawn: int
    at_creation: dict[str, Any] | None
    at_first: dict[str, Any] | None
    now: dict[str, Any]
    attributes: list[dict[str, Any]]


class FollowedData:
    """The data of one fit, by the iterator that Keras has made for them."""

    def __init__(self, iterator: Any, interruption: Interruption) -> None:
        self._iterator, self._interruption = iterator, interruption
        adapter = iterator.data_adapter
        self._owners = _owners(adapter)
        self._own = generators.belonging_to(self._owners)
        self._before = [plain.digests(each, plain.MOST_BYTES) for each in self._owners]
        self._drawn = self._passes = 0
        self._at_creation: dict[str, Any] | None = None
        self._at_first: dict[str, Any] | None = None
        self._resumed: Position | None = None
        self._replay: Callable[[], None] | None = None
        self.is_begun = False  # what is drawn before that has Keras see what they look like

    def resume(self, position: Position, replay: Callable[[], None]) -> None:
        """The next epoch goes on there. `replay`: called before the first step of an epoch of which some batches were done: that step is
        the last of these once more, without data, since Keras has nothing to tell its callbacks without one."""
        self._resumed, self._replay = position, replay
        self._begin_passes(position.passes - (position.at_creation is not None))
        generators.restore(position.now, self._own)

    def end(self, position: Position) -> None:
        """What comes behind the fit finds the data and the generators as it has left them."""
        self._set_attributes(position)
        self._begin_passes(position.passes)
        generators.restore(position.now, self._own)

    def position(self, batches: int) -> Position:
        """Now: between two batches, or behind the last one, when so many of this epoch are done."""
        iterator = self._iterator
        is_kept = bool(batches or (iterator.steps_per_epoch and iterator._current_iterator is not None))
        attributes = [plain.changes(each, before, plain.MOST_BYTES) for each, before in zip(self._owners, self._before, strict=True)]
        now = generators.states(self._own)
        if not is_kept:
            return Position(self._passes, 0, 0, None, None, now, attributes)
        return Position(self._passes, batches, self._drawn, self._at_creation, self._at_first, now, attributes)

    def is_last(self, batches: int) -> bool:
        """So many are all of the epoch. False where that is not known."""
        total = self._iterator.num_batches
        return total is not None and batches >= total

    def _begin_passes(self, count: int) -> None:
        """As before: with each of them a data set of TensorFlow's goes on to its next order."""
        self._passes = count
        if (dataset := getattr(self._iterator, "_distributed_dataset", None)) is not None:
            for _ in range(count):
                iter(dataset)

    def begin_pass(self, make: Callable[[], Any]) -> Any:
        position = self._resumed
        self._passes += self.is_begun
        if not self.is_begun or position is None or position.at_creation is None:
            self._drawn, self._at_creation, self._at_first = 0, generators.states(self._own), None
            return make()
        self._resumed = None
        if position.batches:
            self._set_attributes(position)
        after = position.now if position.batches else generators.states(self._own)
        generators.restore(position.at_creation, self._own)
        batches = iter(make())
        if position.at_first is not None:
            generators.restore(position.at_first, self._own)
        for _ in range(position.drawn):
            if self._interruption.is_told:
                self._interruption.leave()  # what was saved is there still
            next(batches, None)
        generators.restore(after, self._own)
        self._drawn, self._at_creation, self._at_first = position.drawn, position.at_creation, position.at_first
        return batches

    def steps(self, steps: Steps) -> Steps:
        """Of one epoch."""
        position = self._resumed if self.is_begun else None
        if position is not None and not position.batches:
            self._set_attributes(position)
            self._resumed = position if position.at_creation is not None else None
        if position is not None and position.batches:
            yield from self._done(position, steps)
        for begin, end, batches in steps:
            if position is not None and not position.batches:
                self._iterator._steps_seen += position.drawn  # of a pass that was begun in an epoch before
            position = None
            if not self._drawn:
                self._at_first = generators.states(self._own)
            self._drawn += end - begin + 1
            yield begin, end, batches

    def _done(self, position: Position, steps: Steps) -> Steps:
        """Past the steps that were done before."""
        count, last = 0, (0, position.batches - 1, None)
        while count < position.batches and (step := next(steps, None)) is not None:
            last, count = step, step[1] + 1
        self._iterator._steps_seen += position.drawn - position.batches
        if self._replay is not None:
            self._replay()
            yield last[0], last[1], itertools.repeat(None)

    def _set_attributes(self, position: Position) -> None:
        if len(position.attributes) == len(self._owners):
            for owner, attributes in zip(self._owners, position.attributes, strict=True):
                vars(owner).update(copy.deepcopy(attributes))


def follow(base: Any, followed: Callable[[Any], FollowedData | None]) -> Any:
    """Keras' iterator for the epochs of a backend, `base`, which asks for each new one whose data it has."""

    class FollowedEpochIterator(base):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._followed = followed(self)

        def _get_iterator(self) -> Any:
            return self._followed.begin_pass(super()._get_iterator) if self._followed is not None else super()._get_iterator()

        def _enumerate_iterator(self) -> Steps:
            steps: Steps = super()._enumerate_iterator()
            return self._followed.steps(steps) if self._followed is not None else steps

    return FollowedEpochIterator


def _owners(adapter: Any) -> list[Any]:
    """The script's objects that say which samples come when: a PyDataset, or a DataLoader with its parts."""
    if (own := getattr(adapter, "py_dataset", None)) is not None:
        return [own]
    loader = getattr(adapter, "_dataloader", None)
    parts = [loader, *(getattr(loader, name, None) for name in ("dataset", "sampler", "batch_sampler"))]
    parts.append(getattr(parts[-1], "sampler", None))
    return list({id(each): each for each in parts if each is not None}.values())
