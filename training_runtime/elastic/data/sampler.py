"""Which samples each engine gets at each step: a function of (seed, epoch, step) alone, never of who computes it.

An epoch is a permutation of all samples, cut into global batches of V x batch_size and these into engines. The incomplete last global batch
is split evenly over as few engines as can hold it; the others contribute nothing, so every sample is used exactly once. A run is a row of
units: for every epoch one that begins it, its steps, and one that ends it (validation, checkpoint). How many are done is the run's place:
its position.
"""

from __future__ import annotations

import hashlib
import random
import struct
import sys
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch

from training_runtime.elastic.data.order import Order
from training_runtime.errors import UserError


@dataclass(frozen=True)
class WorkItem:
    """One unit of a run. `epoch` counts from 0; `index` is the step within the epoch, from 0; `step` the global one, from 1 (of a
    step unit)."""

    kind: Literal["begin", "step", "end"]
    epoch: int
    index: int
    step: int


@dataclass(frozen=True)
class RunPlan:
    """The fixed shape of a job: everything the order of samples depends on."""

    samples: int
    test_samples: int
    batch_size: int
    engines: int
    epochs: int
    seed: int

    def __post_init__(self) -> None:
        if min(self.samples, self.batch_size, self.engines, self.epochs) < 1:
            counts = f"{self.samples} training samples, batch_size {self.batch_size}, {self.engines} engines, {self.epochs} epochs"
            raise UserError(f"{counts}: each must be at least 1")

    @cached_property
    def steps_per_epoch(self) -> int:
        return -(-self.samples // (self.batch_size * self.engines))

    @cached_property
    def length(self) -> int:
        """Units of the whole run."""
        return self.epochs * (self.steps_per_epoch + 2)

    @cached_property
    def test_batches(self) -> int:
        return -(-self.test_samples // self.batch_size)

    def unit(self, position: int) -> WorkItem:
        epoch, place = divmod(position, self.steps_per_epoch + 2)
        done = epoch * self.steps_per_epoch
        if place == 0:
            return WorkItem("begin", epoch, 0, done)
        if place <= self.steps_per_epoch:
            return WorkItem("step", epoch, place - 1, done + place)
        return WorkItem("end", epoch, 0, done + self.steps_per_epoch)

    def step_at(self, position: int) -> int:
        """The last global step that is done when `position` units are."""
        epoch, place = divmod(position, self.steps_per_epoch + 2)
        return epoch * self.steps_per_epoch + max(0, min(place - 1, self.steps_per_epoch))

    def epoch_at(self, position: int) -> int:
        """The epoch, from 1, that the unit after `position` belongs to; the last one at the end."""
        return self.unit(min(position, self.length - 1)).epoch + 1

    def sizes(self, index: int) -> tuple[int, ...]:
        """Samples of each engine that takes part in step `index` of an epoch."""
        whole = self.batch_size * self.engines
        left = min(whole, self.samples - index * whole)
        if left == whole:
            return (self.batch_size,) * self.engines
        engines = -(-left // self.batch_size)
        return tuple(left * (m + 1) // engines - left * m // engines for m in range(engines))

    @property
    def engine_counts(self) -> set[int]:
        """How many engines take part in a step: in all steps but the last one of an epoch, and in that."""
        return {len(self.sizes(0)), len(self.sizes(self.steps_per_epoch - 1))}

    def engine_batches(self, step: int) -> int:
        """Batches that all engines together have computed when global step `step` is done."""
        epochs, rest = divmod(step, self.steps_per_epoch)
        return epochs * (self.engines * (self.steps_per_epoch - 1) + len(self.sizes(self.steps_per_epoch - 1))) + rest * self.engines

    def samples_before(self, step: int) -> int:
        """Samples that all epochs together have gone through when global step `step` is done."""
        epochs, rest = divmod(step, self.steps_per_epoch)
        return epochs * self.samples + rest * self.batch_size * self.engines

    def span(self, index: int, engine: int) -> range:
        """The places in the epoch's order that `engine` takes at step `index`."""
        sizes = self.sizes(index)
        start = index * self.batch_size * self.engines + sum(sizes[:engine])
        return range(start, start + sizes[engine])

    def test_span(self, batch: int) -> range:
        return range(batch * self.batch_size, min((batch + 1) * self.batch_size, self.test_samples))

    def order(self, epoch: int) -> Order:
        """The permutation of all samples for `epoch`."""
        return Order(self.samples, derive(self.seed, epoch, 0, 0, "order"))


def derive(seed: int, epoch: int, step: int, engine: int, purpose: str) -> int:
    """A 63-bit seed that differs for any two different arguments (up to a collision of BLAKE2b)."""
    digest = hashlib.blake2b(struct.pack("<4q", seed, epoch, step, engine) + purpose.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def seed_everything(value: int, *, devices: bool = True) -> None:
    """Seed every generator that user code may draw from: torch's, `random`, and numpy's where it is imported.

    `devices` False leaves out those of accelerators: asking each of them takes longer than a small step can afford.
    """
    if devices:
        torch.manual_seed(value)
    else:
        torch.default_generator.manual_seed(value)
    random.seed(value)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(value & 0xFFFFFFFF)


def generator_states() -> tuple[Any, ...]:
    """The states of the CPU generators that `seed_everything` seeds."""
    numpy = sys.modules.get("numpy")
    return torch.get_rng_state(), random.getstate(), numpy.random.get_state() if numpy else None


def set_generator_states(states: tuple[Any, ...]) -> None:
    torchs, pythons, numpys = states
    torch.set_rng_state(torchs.clone())  # torch crashes where it is a part of a larger tensor
    random.setstate(pythons)
    if numpys is not None:
        sys.modules["numpy"].random.set_state(numpys)
