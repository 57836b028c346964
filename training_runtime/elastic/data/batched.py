"""Data whose index is a whole batch (Keras' Sequence, PyDataset and the iterators of ImageDataGenerator), as a data set of samples.

What a sample is must not depend on who asks first: the order that a shuffling iterator makes up at its first use is made up here, and its
own count of what it has given out, from which some seed their augmentation, is set from the seed of the batch that is being loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.data import Dataset

from training_runtime.errors import UserError

_EXACTLY = "_get_batches_of_transformed_samples"  # of Keras' iterators: these samples and no others
_COUNTED = "total_batches_seen"


def by_sample(data: Any, name: str) -> Any:
    """`data`, or what makes samples of its batches. UserError where those are not (inputs, targets)."""
    if isinstance(data, Dataset) or not all(hasattr(data, each) for each in ("on_epoch_end", "__getitem__", "__len__")):
        return data
    return Samples(data, name)


class Samples:
    """Map-style. Sample i is row i % B of batch i // B, all batches but the last being as long as the first."""

    def __init__(self, batches: Any, name: str) -> None:
        self._batches, self._name = batches, name
        if not len(batches):
            raise UserError(f"the {name} dataset ({type(batches).__name__}) has no batch")
        self._size = _rows(self._batch(0))  # the first use, for everybody
        self._exactly = getattr(batches, _EXACTLY, None)
        self._order = getattr(batches, "index_array", None)
        given = getattr(batches, "n", None)
        self._count = int(given) if given is not None else self._size * (len(batches) - 1) + _rows(self._batch(len(batches) - 1))

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """The samples, each batch that one of them is in asked for once."""
        if self._exactly is not None and self._order is not None:
            inputs, targets = self._pair(self._exactly(self._order[list(indices)]))
            return [(_row(inputs, i), _row(targets, i)) for i in range(len(indices))]
        loaded = {number: self._batch(number) for number in sorted({index // self._size for index in indices})}
        places = [(*loaded[index // self._size], index % self._size) for index in indices]
        return [(_row(inputs, row), _row(targets, row)) for inputs, targets, row in places]

    def _batch(self, number: int) -> tuple[Any, Any]:
        if hasattr(self._batches, _COUNTED):
            setattr(self._batches, _COUNTED, int(torch.randint(1 << 30, ())))
        return self._pair(self._batches[number])

    def _pair(self, batch: Any) -> tuple[Any, Any]:
        if not isinstance(batch, (tuple, list)) or len(batch) != 2:
            kind = type(self._batches).__name__
            raise UserError(f"a batch of the {self._name} dataset ({kind}) must be (inputs, targets), not {type(batch).__name__}")
        return batch[0], batch[1]


def _rows(batch: tuple[Any, Any]) -> int:
    inputs = batch[0]
    while isinstance(inputs, (list, tuple)):  # a model of several inputs
        inputs = inputs[0]
    return len(inputs)


def _row(values: Any, row: int) -> Any:
    return type(values)(_row(each, row) for each in values) if isinstance(values, (list, tuple)) else values[row]
