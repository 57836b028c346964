"""Samplers of the script's own: one order for all workers, whatever they are and whenever they draw it."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from tests.engine.scripts import LOOP
from training_runtime.elastic.data import script_sampler
from training_runtime.errors import UserError
from training_runtime.fabric.from_loader import Data, opened

DATA = TensorDataset(torch.arange(40.0))


class Own:
    """Draws from everything, and knows its epoch."""

    epoch = -1

    def __len__(self) -> int:
        return 30

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        for _ in range(30):
            yield (random.randrange(40) + int(np.random.randint(40)) + int(torch.randint(40, ())) + self.epoch) % 40


SAMPLERS = {
    "weighted": lambda: WeightedRandomSampler([i % 5 for i in range(40)], 64),
    "with a generator": lambda: WeightedRandomSampler([1.0] * 40, 64, generator=torch.Generator()),
    "a subset": lambda: SubsetRandomSampler(range(0, 40, 3)),
    "with replacement": lambda: RandomSampler(DATA, replacement=True, num_samples=50),
    "sequential": lambda: SequentialSampler(DATA),
    "own": Own,
}


def stood() -> tuple[list[int], object, list[int]]:
    return torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()


@pytest.mark.parametrize("name", SAMPLERS)
def test_an_order_is_the_same_whoever_draws_it_and_leaves_no_trace(name: str) -> None:
    sampler, other = SAMPLERS[name](), SAMPLERS[name]()
    script_sampler.check(sampler, 40)
    before = stood()
    first = script_sampler.draw(sampler, 40, 3, seed=7)
    assert stood() == before
    torch.rand(5), random.random(), np.random.rand()
    script_sampler.draw(other, 40, 1, seed=7)
    with torch.device("meta"):
        assert script_sampler.draw(other, 40, 3, seed=7) == first
    assert len(first) == len(sampler) == len(first[range(len(sampler))])
    if name != "sequential":
        assert script_sampler.draw(sampler, 40, 4, seed=7) != first != script_sampler.draw(sampler, 40, 3, seed=8)


class Counts(SequentialSampler):
    count = 0

    def __iter__(self) -> Iterator[int]:
        self.count += 1
        return iter((i + self.count) % 40 for i in range(40))


class Endless(SequentialSampler):
    def __iter__(self) -> Iterator[int]:
        while True:
            yield 1


class Breaks(SequentialSampler):
    def __iter__(self) -> Iterator[int]:
        yield 1
        raise TypeError("of the sampler's own")


@pytest.mark.parametrize(
    ("sampler", "words"),
    [
        (Counts(DATA), "another order for the same epoch"),
        (Endless(DATA), "gave more than 40 samples"),
        (BatchSampler(SequentialSampler(DATA), 4, False), "one sample at a time"),
        ([0.5, 1.0], "one sample at a time"),
        ([0, 40], "gave 40, and the dataset's samples are 0 to 39"),
        ([-1], "gave -1"),
        (iter([1]), "must have a length"),
        (DistributedSampler(DATA, num_replicas=2, rank=0), "one rank of several"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_gives_no_order_is_refused_with_a_sentence(sampler: object, words: str) -> None:
    with pytest.raises(UserError, match=words):
        script_sampler.check(sampler, 40)


def test_an_error_in_a_sampler_is_shown_as_it_is() -> None:
    with pytest.raises(TypeError, match="of the sampler's own"):
        script_sampler.check(Breaks(DATA), 40)


def test_a_loader_says_what_it_has_been_told() -> None:
    weighted = WeightedRandomSampler([1.0] * 40, 64)
    assert opened(Data(DataLoader(DATA, 8, shuffle=True), threads=4)) == Data(DATA, None, 8, threads=4)
    loader = DataLoader(DATA, 8, sampler=weighted, collate_fn=list, num_workers=2)
    assert opened(Data(loader, threads=4)) == Data(DATA, None, 8, list, weighted, 2)
    assert type(opened(Data(DataLoader(DATA, 8))).sampler) is SequentialSampler
    assert opened(Data(DATA, DataLoader(DATA, 3), 8)) == Data(DATA, DATA, 8)
    whole = opened(Data(DataLoader(DATA, 12, shuffle=True, drop_last=True))).sampler
    assert len(whole) == 36
    script_sampler.check(whole, 40)
    assert len(set(script_sampler.draw(whole, 40, 0, seed=1)[range(36)])) == 36


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (Data(DATA), "batch_size is missing"),
        (Data(DataLoader(DATA, 8), batch_size=8), "batch_size is said by the DataLoader and as an argument"),
        (Data(DataLoader(DATA, 8), sampler=[1]), "sampler is said by the DataLoader"),
        (Data(DataLoader(DATA, batch_size=None)), "made by a batch_sampler"),
        (Data(DataLoader(DATA, batch_sampler=[[1, 2]])), "made by a batch_sampler"),
        (Data(DataLoader(DATA, 8, worker_init_fn=print)), "worker_init_fn"),
        (Data(DATA, DataLoader(DATA, 8, worker_init_fn=print), 8), "worker_init_fn"),
        (Data(DATA, DataLoader(DATA, 8, sampler=[1]), 8), "must go through all samples"),
        (Data(DATA, DataLoader(DATA, 8, drop_last=True), 8), "must go through all samples"),
        (Data(DATA, DataLoader(DATA, 8, collate_fn=list), 8), "different collate_fn"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_loader_cannot_say_here_is_refused_with_a_sentence(given: Data, words: str) -> None:
    with pytest.raises(UserError, match=words):
        opened(given)


WEIGHTED = LOOP.replace(
    "step in edt.elastic([body, head], [slow, fast], data, batch_size=4 * args.parts,",
    "step in edt.elastic([body, head], [slow, fast], LOADER,",
)
DRAWS = "torch.utils.data.WeightedRandomSampler([i % 5 + 1.0 for i in range(len(data))], 90, generator=torch.Generator())"
WEIGHTED = WEIGHTED.replace("LOADER", f"torch.utils.data.DataLoader(data, 4 * args.parts, sampler={DRAWS})")
CHANGES = LOOP.replace("batch_size=4 * args.parts,", "batch_size=4 * args.parts, sampler=taken,").replace(
    "    for step in edt.elastic", "    taken = list(range(32))\n    for step in edt.elastic"
)
CHANGES = CHANGES.replace("        scheduler.step()\n", "        scheduler.step()\n        taken[0] = step.number\n")


def test_a_loop_with_a_sampler_of_its_own_does_not_depend_on_its_slots(start, fixed) -> None:
    long = ("--epochs", "5")  # 6 steps an epoch
    one = fixed(*long, script=WEIGHTED)
    assert len(one.train_lines()) == 30
    assert sum(line[3] for line in one.train_lines()) == 5 * 90
    run = start(WEIGHTED, *long)
    run.members(0, 1, 2)
    run.until_step(4)
    run.kill(1)
    run.until_step(9)
    run.members(2)
    run.until_step(16)
    run.members()
    run.until(lambda: run.events("suspended") or run.pid in run.warm.codes, what="suspended")
    run.members(1, 3)
    assert run.wait() == 0, run.tail()
    assert (run.weights(), run.train_lines(), run.test_lines()) == (one.weights(), one.train_lines(), one.test_lines())


def test_a_sampler_that_changes_with_what_is_learnt_ends_the_run_with_a_sentence(start) -> None:
    run = start(CHANGES, "--epochs", "4")
    run.members(0, 1)
    assert run.wait() == 1
    assert "another order for the same epoch" in run.events("error")[0].message
