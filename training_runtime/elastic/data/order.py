"""The order in which an epoch goes through the samples of a set: a permutation, a function of a seed.

Up to MOST_LISTED samples it is a list, drawn at once. A list of a hundred million would be gigabytes in every worker: beyond, what stands
at a place is computed when it is asked for, by a Feistel network (Luby and Rackoff 1988) over the next power of four: a permutation
whatever its rounds are, and walked on from what lies beyond the last sample (Black and Rogaway 2002). Integers only: the same everywhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache

import torch

MOST_LISTED = 1 << 22  # 32 MiB
BLOCK = 1 << 13  # places that are computed at a time: a tensor's operation costs as much for one
ROUNDS = 8
_WORD = 0xFFFFFFFF


class Order:
    """`order[span]`: the samples at these places, ints in [0, samples). `seed`: 63 bits."""

    def __init__(self, samples: int, seed: int) -> None:
        self.samples = samples
        self._listed: torch.Tensor | None = None
        if samples <= MOST_LISTED:
            self._listed = torch.randperm(samples, generator=torch.Generator("cpu").manual_seed(seed), device="cpu")
        digest = hashlib.blake2b(seed.to_bytes(8, "little"), digest_size=4 * ROUNDS).digest()
        self._keys = [int.from_bytes(digest[i : i + 4], "little") for i in range(0, len(digest), 4)]
        self._block = lru_cache(maxsize=4)(self._computed_block)

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, span: range) -> list[int]:
        """IndexError where it is not within the set. The span's step is 1."""
        if span.step != 1 or not 0 <= span.start <= span.stop <= self.samples:
            raise IndexError(f"{span} of {self.samples} samples")
        if self._listed is not None:
            return self._list(self._listed[span.start : span.stop])
        first = span.start // BLOCK
        blocks = [self._block(index) for index in range(first, -(-span.stop // BLOCK))]
        return self._list(torch.cat(blocks)[span.start - first * BLOCK : span.stop - first * BLOCK]) if span else []

    @staticmethod
    def _list(places: torch.Tensor) -> list[int]:
        found: list[int] = places.tolist()
        return found

    def _computed_block(self, index: int) -> torch.Tensor:
        places = torch.arange(index * BLOCK, min((index + 1) * BLOCK, self.samples), device="cpu")  # whatever the script's default is
        return permuted(places, self.samples, self._keys)


def permuted(places: torch.Tensor, samples: int, keys: Sequence[int]) -> torch.Tensor:
    """Where the permutation of [0, samples) with these round keys (32 bits each) takes each place. int64 [n] -> int64 [n]"""
    half = max(1, -(-(samples - 1).bit_length() // 2))
    found = _mixed(places, half, keys)
    while (beyond := (found >= samples).nonzero().squeeze(1)).numel():  # fewer than four values to a sample: a few turns
        found[beyond] = _mixed(found[beyond], half, keys)
    return found


def _mixed(values: torch.Tensor, half: int, keys: Sequence[int]) -> torch.Tensor:
    """A permutation of [0, 4^half). int64 [n]"""
    mask = (1 << half) - 1
    left, right = values >> half, values & mask
    for key in keys:
        left, right = right, left ^ (_hashed(right ^ key) & mask)
    return left << half | right


def _hashed(word: torch.Tensor) -> torch.Tensor:
    """The finaliser of MurmurHash3, of 32 bits: every bit of the result depends on every one given. A product that overflows 64 bits keeps
    its low ones, and these are what is used."""
    word = (word ^ word >> 16) * 0x85EBCA6B & _WORD
    word = (word ^ word >> 13) * 0xC2B2AE35 & _WORD
    return word ^ word >> 16
