"""torchelastic's sampler: a rank's part of an epoch, of which some has been shown already, perhaps to another number of ranks.

The order of an epoch follows from (seed, epoch) alone, whatever the number of ranks, and is dealt out in turns; so what was shown before
a change is the beginning of that order, and `start_index` skips exactly that. (torch's own draws a new order of the samples from
`start_index` on, as if those before it in the data set had been shown.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sized
from typing import Any

import torch
from torch.utils.data import Dataset
from torch.utils.data.distributed import DistributedSampler


class ElasticDistributedSampler(DistributedSampler[Any]):
    """`start_index`: how many samples of the epoch all ranks together have been shown. It may be set at any time between two passes; a new
    epoch begins with 0. Where the rest cannot be divided evenly, at most `num_replicas - 1` samples are shown again at the end, so that
    all ranks take as many steps, as DistributedSampler does; with `drop_last` they are left out instead."""

    def __init__(
        self,
        dataset: Dataset[Any],
        num_replicas: int | None = None,
        rank: int | None = None,
        start_index: int = 0,
        *,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if not isinstance(dataset, Sized):
            raise TypeError("ElasticDistributedSampler needs a dataset with a length")
        super().__init__(dataset, num_replicas=num_replicas, rank=rank, shuffle=shuffle, seed=seed, drop_last=drop_last)
        self._samples = len(dataset)
        self.start_index = start_index

    @property
    def start_index(self) -> int:
        """Samples of the epoch that all ranks together have been shown. ValueError for one below 0; what is set counts for the next
        pass."""
        return self._start_index

    @start_index.setter
    def start_index(self, start_index: int) -> None:
        if start_index < 0:
            raise ValueError(f"start_index {start_index} is less than 0")
        self._start_index = start_index
        left = max(0, self._samples - start_index)
        self.num_samples = left // self.num_replicas if self.drop_last else math.ceil(left / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        if self.shuffle:
            order = torch.randperm(self._samples, generator=torch.Generator().manual_seed(self.seed + self.epoch)).tolist()
        else:
            order = list(range(self._samples))
        left = order[self._start_index :]
        while left and len(left) < self.total_size:
            left += left[: self.total_size - len(left)]
        return iter(left[self.rank : self.total_size : self.num_replicas])
