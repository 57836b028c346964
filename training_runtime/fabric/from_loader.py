"""What a DataLoader says of its data, for trainings that make the batches themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, SequentialSampler, default_collate

from training_runtime.elastic.data import streams
from training_runtime.errors import UserError

NO_SIZE = "elastic: batch_size is missing: say how many samples a whole step has (or give a DataLoader, which says it)"
SAID_TWICE = "elastic: {} is said by the DataLoader and as an argument: leave the argument out, or give the loader's dataset"
OWN_BATCHES = (
    "elastic: the DataLoader's batches are made by a batch_sampler (or its batch_size is None), and here they are made by batch_size and "
    "parts: give the dataset, batch_size and a sampler"
)
OWN_START = (
    "elastic: worker_init_fn of the DataLoader would not be called here, where generators are seeded for every batch: leave it out, and "
    "open files when the dataset is first asked for a sample"
)
TEST_ALIKE = "elastic: the DataLoader of test_set must go through all samples of its dataset, each once: without a sampler and drop_last"
NO_LENGTH = (
    "elastic: {} ({}) is a stream without a length: say by samples=... how many samples are an epoch (the stream goes on through the "
    "epochs, and is begun anew where it ends)"
)
TEST_STREAM = "elastic: test_set ({}) must have a length, as the means are over all of it: give it __len__, or a list of its samples"
ORDERED = "elastic: the samples of a stream come in its own order: leave the sampler out"
NOT_A_STREAM = "elastic: samples= is for streams; {} has a length and items by number, and an epoch goes through all of them (or `sampler`)"
NOT_DATA = "elastic: {} ({}) must have items by number and a length (a map-style dataset), or be iterable (a stream)"
TEST_COLLATE = "elastic: the DataLoaders of dataset and test_set have different collate_fn, and here one is used for both"

Collate = Callable[[list[Any]], Any]


@dataclass(frozen=True)
class Data:
    """What a training is given of its data. `batch_size`: 0 where it is not said. `threads`: the most loaders of a worker. `samples`: those
    of an epoch of a stream, 0 where its length says it; `whole`: without the last batch, where that is not full."""

    dataset: Any
    test_set: Any = None
    batch_size: int = 0
    collate: Collate | None = None
    sampler: Any = None
    threads: int = 0
    samples: int = 0
    whole: bool = False


def opened(given: Data) -> Data:
    """With what its DataLoaders say in the places of these. UserError for what they cannot say here."""
    if isinstance(given.dataset, DataLoader):
        for name in ("batch_size", "collate", "sampler"):
            if getattr(given, name) not in (None, 0):
                raise UserError(SAID_TWICE.format(name))
        given = _training(given, given.dataset)
    if not given.batch_size:
        raise UserError(NO_SIZE)
    if isinstance(given.test_set, DataLoader):
        given = replace(given, test_set=_test(given.test_set, given.collate))
    return given


def with_numbers(given: Data) -> Data:
    """With streams as sets whose samples have numbers. UserError for what is no data, or cannot be gone through by every worker."""
    for name, data in (("dataset", given.dataset), ("test_set", given.test_set)):
        numbered = hasattr(data, "__len__") and hasattr(data, "__getitem__")
        if (data is not None or name == "dataset") and not (numbered or streams.is_stream(data)):
            raise UserError(NOT_DATA.format(name, type(data).__name__))
    if streams.is_stream(given.dataset):
        given = replace(given, dataset=_stream(given))
    elif given.samples:
        raise UserError(NOT_A_STREAM.format(type(given.dataset).__name__))
    if given.test_set is not None and streams.is_stream(given.test_set):
        given = replace(given, test_set=_test_stream(given.test_set))
    return given


def _stream(given: Data) -> streams.Stream:
    data = given.dataset
    if given.sampler is not None:
        raise UserError(ORDERED)
    length = None if given.samples else streams.length_of(data)
    samples = given.samples or length
    if not samples:
        raise UserError(NO_LENGTH.format("dataset", type(data).__name__))
    if given.whole:
        samples = samples // given.batch_size * given.batch_size
    found = streams.Stream(data, samples, length=samples if length else None)
    streams.check(found)
    return found


def _test_stream(data: Any) -> streams.Stream:
    length = streams.length_of(data)
    if not length:
        raise UserError(TEST_STREAM.format(type(data).__name__))
    found = streams.Stream(data, length, length=length, keeps=False)
    streams.check(found)
    return found


def _training(given: Data, loader: DataLoader[Any]) -> Data:
    if type(loader.batch_sampler) is not BatchSampler or loader.batch_size is None:
        raise UserError(OWN_BATCHES)
    if loader.worker_init_fn is not None:
        raise UserError(OWN_START)
    if isinstance(loader.dataset, IterableDataset):
        return replace(given, dataset=loader.dataset, batch_size=loader.batch_size, collate=_collate(loader), whole=loader.drop_last)
    sampler: Any = None if _goes_through_all(loader.sampler, RandomSampler) else loader.sampler
    if loader.drop_last:
        sampler = Whole(loader.sampler, loader.batch_size)
    return replace(
        given,
        dataset=loader.dataset,
        batch_size=loader.batch_size,
        collate=_collate(loader),
        sampler=sampler,
        threads=loader.num_workers or given.threads,
    )


def _test(loader: DataLoader[Any], collate: Collate | None) -> Any:
    if loader.worker_init_fn is not None:
        raise UserError(OWN_START)
    if isinstance(loader.dataset, IterableDataset):
        return loader.dataset
    if loader.batch_size is None or loader.drop_last or not _goes_through_all(loader.sampler, RandomSampler, SequentialSampler):
        raise UserError(TEST_ALIKE)
    if _collate(loader) is not collate:
        raise UserError(TEST_COLLATE)
    return loader.dataset


def _collate(loader: DataLoader[Any]) -> Collate | None:
    return None if loader.collate_fn is default_collate else loader.collate_fn


def _goes_through_all(sampler: Any, *kinds: type) -> bool:
    if type(sampler) not in kinds:
        return False
    return not getattr(sampler, "replacement", False) and len(sampler) == len(sampler.data_source)


class Whole:
    """A sampler without the samples of its last batch, where that is not full (`drop_last`)."""

    def __init__(self, sampler: Any, batch_size: int) -> None:
        self._sampler, self._batch_size = sampler, batch_size
        self.generator = getattr(sampler, "generator", None)
        if hasattr(sampler, "set_epoch"):
            self.set_epoch = sampler.set_epoch

    def __len__(self) -> int:
        return len(self._sampler) // self._batch_size * self._batch_size

    def __iter__(self) -> Iterator[int]:
        numbers = iter(self._sampler)
        for _ in range(len(self)):
            yield next(numbers)
