"""Digests of the state, and the divergence detector: all workers of a run hold the same state, bit for bit, so their digests must agree.

A digest depends on values, dtypes and shapes alone, not on the device, the strides or the number of threads. Tensors are hashed where they
lie in one pass over their memory: each 64-bit word is mixed with an odd number that depends on its place, and added up (addition of
integers gives the same in any order). The sums, with what is not in tensors, go through BLAKE2b. It finds accidents; it does not
withstand somebody who looks for a collision.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import torch

from training_runtime.elastic.comm.segment import DIGESTS, Segment
from training_runtime.elastic.processes.reports import Diverged
from training_runtime.errors import UserError

EVERY_STEPS = 100  # a digest reads the state once, a step several times for each sample: less than one percent
VARIABLE = "EDT_DIGEST_STEPS"
HELD = "callbacks"  # what they hold may differ: a copy of the best model, for instance, that the first worker alone keeps
SECTIONS = ("parameters", "buffers", "optimizer", "hyper-parameters", "modules", "schedulers", "samples", HELD)  # a word of a worker each
_ROW = 1 << 16  # words that share a sum
_BLOCK_ROWS = 128  # rows that a device is given at once: 64 MB
_SMALL_BYTES = 1 << 18  # smaller tensors are hashed together
_FOLD = 32


def every_steps() -> int:
    """After how many steps of an epoch workers compare; 0: only at its end. UserError where the setting is no such number."""
    given = os.environ.get(VARIABLE, "")
    if given and not given.isdecimal():
        raise UserError(f"{VARIABLE} must be a whole number of steps, 0 for the ends of epochs only, not {given!r}")
    return int(given) if given else EVERY_STEPS


def of(value: Any) -> int:
    """The digest of a tree of plain values and tensors: a signed 64-bit number, which fits a word of the shared memory."""
    tensors: list[torch.Tensor] = []
    digest = hashlib.blake2b(digest_size=8)
    for part in _encoded(value, tensors, ()):
        digest.update(part)
    for sums in _sums(tensors):
        digest.update(struct.pack(f"<{len(sums)}q", *sums))
    return int.from_bytes(digest.digest(), "little", signed=True)


def sections(contents: Mapping[str, Any], *, numbers: Sequence[Any], held: Mapping[str, Any], samples: int = 0) -> dict[str, int]:
    """The digest of each part of the state. `numbers` are the modules' that follow engine 0, `held` what callbacks hold, `samples` the sum
    over what was read of a stream."""
    found = {
        "parameters": contents["parameters"],
        "buffers": contents["buffers"],
        "optimizer": contents["optimizer"],
        "hyper-parameters": contents["groups"],
        "modules": [contents["grads"], contents["modes"], contents["extra"], numbers],
        "schedulers": contents["schedulers"],
        "samples": samples,
        HELD: held,
    }
    return {name: of(found[name]) for name in SECTIONS}


def joined(parts: Mapping[str, int]) -> str:
    """One digest of all parts that must be the same: 16 hexadecimal digits."""
    values = [value for name, value in parts.items() if name != HELD]
    return hashlib.blake2b(struct.pack(f"<{len(values)}q", *values), digest_size=8).hexdigest()


class Replicas:
    """Those of one run, compared through their workers' words. There are two sets of words, by the parity of the barrier that follows:
    a worker may be one barrier ahead of who still reads, never two."""

    def __init__(self, segment: Segment) -> None:
        self._segment, self.every_steps = segment, every_steps()

    def is_due(self, index: int) -> bool:
        """Whether to compare in step `index` of an epoch."""
        return bool(self.every_steps and index and index % self.every_steps == 0)

    def tell(self, worker_id: int, parity: int, parts: Mapping[str, int]) -> None:
        """Before the barrier."""
        for place, value in enumerate(parts.values()):
            self._segment.set(worker_id, _word(parity, place), value)

    def compare(self, worker_ids: Sequence[int], parity: int) -> tuple[tuple[str, ...], list[list[int]]]:
        """After the barrier: the parts that are not the same everywhere, and the worker ids in groups that agree on them, the largest group
        first. Nothing and one group where all agree."""
        told = {
            worker_id: [self._segment.get(worker_id, _word(parity, place)) for place in range(len(SECTIONS))] for worker_id in worker_ids
        }
        differ = [place for place in range(len(SECTIONS)) if len({words[place] for words in told.values()}) > 1]
        groups: dict[tuple[int, ...], list[int]] = {}
        for worker_id, words in told.items():
            groups.setdefault(tuple(words[place] for place in differ), []).append(worker_id)
        return tuple(SECTIONS[place] for place in differ), sorted(groups.values(), key=len, reverse=True)


HOLD_OTHERS = (
    "after step {} callbacks do not hold the same tensors on all workers; that is right for a copy that the first worker alone keeps, but "
    "a worker that joins gets what one of them holds"
)


def sentence(report: Diverged, slot_of: Callable[[int], int]) -> str:
    """What a person is told of a worker's report that they differ."""
    groups = " and ".join(_slots([slot_of(worker_id) for worker_id in group]) for group in report.groups)
    parts = ", ".join(part for part in report.parts if part != HELD)
    return (
        f"after step {report.step} the workers do not hold the same state any more: {parts} differ between {groups}. Something in the "
        "script changes the training on some workers only, or is not the same each time it is computed; docs/exactness.md says what it "
        "must not do"
    )


def _slots(slots: Sequence[int]) -> str:
    *first, last = (str(slot) for slot in slots)
    return f"slots {', '.join(first)} and {last}" if first else f"slot {last}"


def _word(parity: int, place: int) -> int:
    return DIGESTS + parity * len(SECTIONS) + place


def _encoded(value: Any, tensors: list[torch.Tensor], inside: tuple[int, ...]) -> Iterator[bytes]:
    """`value` as bytes without ambiguity, its tensors put aside. Dictionaries and sets in an order of their own; of other objects the type
    and what they hold."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        yield f"tensor {value.dtype} {tuple(value.shape)};".encode()
    elif isinstance(value, (bytes, bytearray)):
        yield b"bytes %d:" % len(value) + value
    elif value is None or isinstance(value, (bool, int, float, complex, str, torch.dtype)):
        yield f"{type(value).__name__} {value!r};".encode("utf-8", "surrogatepass")
    elif type(value).__module__ == "numpy" and hasattr(value, "tobytes"):
        yield f"numpy {value.dtype} {value.shape}:".encode() + value.tobytes()
    elif id(value) in inside:
        yield b"again;"
    else:
        yield from _container(value, tensors, (*inside, id(value)))


def _container(value: Any, tensors: list[torch.Tensor], inside: tuple[int, ...]) -> Iterator[bytes]:
    if isinstance(value, Mapping):
        ordered = sorted(value, key=repr)
        items: Iterable[Any] = [each for key in ordered for each in (key, value[key])]
    elif isinstance(value, (set, frozenset)):
        items = sorted(value, key=repr)
    elif isinstance(value, Iterable) and isinstance(value, Sequence):
        items = value
    elif isinstance(value, type) or callable(value):
        code = getattr(value, "__code__", None)  # one lambda from another
        made_of = (code.co_firstlineno, code.co_code) if code is not None else ()
        items = (getattr(value, "__module__", ""), getattr(value, "__qualname__", type(value).__qualname__), *made_of)
    else:
        items = (type(value).__qualname__, vars(value) if hasattr(value, "__dict__") else {})
    yield b"("
    for item in items:
        yield from _encoded(item, tensors, inside)
    yield b")"


def _sums(tensors: Sequence[torch.Tensor]) -> Iterator[list[int]]:
    """Of all tensors, in their order: the large ones one by one where they are, the others together."""
    flat = [_bytes(t) for t in tensors]
    small = [b for b in flat if len(b) < _SMALL_BYTES]
    if small:
        yield _rows(_padded(_brought_together(small))).tolist()
    large = [_rows(_padded(b)) for b in flat if len(b) >= _SMALL_BYTES]
    for sums in large:  # a device has all of them to do before anybody waits for the first
        yield sums.tolist()


def _bytes(t: torch.Tensor) -> torch.Tensor:
    """The values in row-major order, as flat uint8."""
    dense = t.detach() if t.layout == torch.strided else t.detach().to_dense()
    return dense.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)


def _brought_together(small: Sequence[torch.Tensor]) -> torch.Tensor:
    """Their bytes on the CPU, in their order: one copy from each device."""
    pieces: list[torch.Tensor] = list(small)
    for device in {b.device for b in small if b.device.type != "cpu"}:
        places = [i for i, b in enumerate(small) if b.device == device]
        moved = torch.split(torch.cat([small[i] for i in places]).cpu(), [len(small[i]) for i in places])
        for i, piece in zip(places, moved, strict=True):
            pieces[i] = piece
    return torch.cat(pieces)


def _padded(flat: torch.Tensor) -> torch.Tensor:
    """Bytes as whole words, with zeros behind them."""
    if rest := -len(flat) % 8:
        flat = torch.nn.functional.pad(flat, (0, rest))
    elif flat.storage_offset() % 8:
        flat = flat.clone()
    return flat.view(torch.int64)


def _rows(words: torch.Tensor) -> torch.Tensor:
    """The sum of each row of words, which are mixed first: without that two changes of a sign would cancel out, as an odd multiple of 2^63
    is 2^63. int64 [words] -> int64 [rows]"""
    factors, rows = _factors(words.device), 1 if words.device.type == "cpu" else _BLOCK_ROWS
    most = min(rows * _ROW, len(words))
    product, high = words.new_empty(most), words.new_empty(most)  # on a processor they stay in its cache
    found = words.new_empty(-(-len(words) // _ROW))
    for row in range(0, len(found), rows):
        block = words[row * _ROW : (row + rows) * _ROW]
        for part, width in _whole_rows(block):
            shape, count = (-1, width), len(part)
            torch.bitwise_xor(part.view(shape), factors[:width], out=product[:count].view(shape))
            product[:count].view(shape).mul_(factors[:width])
            torch.bitwise_right_shift(product[:count], _FOLD, out=high[:count])
            product[:count].bitwise_xor_(high[:count])
            torch.sum(product[:count].view(shape), 1, out=found[row : row + count // width])
            row += count // width
    return found


def _whole_rows(block: torch.Tensor) -> Iterator[tuple[torch.Tensor, int]]:
    """The rows of a block that are whole, then the rest as one; each with the width of its rows."""
    whole = len(block) // _ROW * _ROW
    if whole:
        yield block[:whole], _ROW
    if whole < len(block):
        yield block[whole:], len(block) - whole


@cache
def _factors(device: torch.device) -> torch.Tensor:
    """An odd number for each place in a row. int64 [_ROW]"""
    generator = torch.Generator().manual_seed(0x5EED)
    drawn = torch.randint(-(2**63), 2**63 - 1, (_ROW,), generator=generator, dtype=torch.int64)
    return (drawn | 1).to(device)
