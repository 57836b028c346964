"""Weights that torch.save wrote, as safetensors. In the child alone, which has no torch: it reads what a state_dict is made of, and nothing
else, with as much memory as its names take.

A file of torch.save is a zip: `data.pkl` says which tensors there are, and their values lie uncompressed beside it. The pickle is read by
an unpickler that resolves no name to anything but a handful of plain stand-ins of this module, so it can call nothing. Source of the
formats: torch/serialization.py, torch/_utils.py; https://github.com/huggingface/safetensors#format.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import struct
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

MOST_PICKLE = 64 << 20
CHUNK_BYTES = 1 << 20
NAMED_LEFT = 5
# Where scripts put the state_dict in a file with other things.
PLACES = ("state_dict", "model_state_dict", "model", "module", "net", "weights", "params")
_WHOLE = "it holds a whole object, and no state_dict: save model.state_dict()"
_OLD = "torch.save did not write it, or a version of it from before 2020"
# torch's names of what a storage or a tensor holds: safetensors' name, and bytes of a value.
_KINDS = {
    "Double": ("F64", 8), "Float": ("F32", 4), "Half": ("F16", 2), "BFloat16": ("BF16", 2), "Long": ("I64", 8), "Int": ("I32", 4),
    "Short": ("I16", 2), "Char": ("I8", 1), "Byte": ("U8", 1), "Bool": ("BOOL", 1),
    "float64": ("F64", 8), "float32": ("F32", 4), "float16": ("F16", 2), "bfloat16": ("BF16", 2), "int64": ("I64", 8), "int32": ("I32", 4),
    "int16": ("I16", 2), "int8": ("I8", 1), "uint8": ("U8", 1), "bool": ("BOOL", 1), "uint16": ("U16", 2), "uint32": ("U32", 4),
    "uint64": ("U64", 8), "float8_e4m3fn": ("F8_E4M3", 1), "float8_e5m2": ("F8_E5M2", 1),
}  # fmt: skip


class NotConverted(Exception):
    """The end of a sentence: why there is no safetensors of it."""


@dataclass(frozen=True)
class _Kind:
    name: str
    size: int


@dataclass(frozen=True)
class _Storage:
    key: str
    kind: _Kind | None


@dataclass(frozen=True)
class _Tensor:
    """Offset and strides in values."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    kind: _Kind

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    def is_in_order(self) -> bool:
        step = 1
        for extent, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if extent > 1 and stride != step:
                return self.count == 0
            step *= extent
        return True


class _Other:
    """Stands for anything else: made of whatever it is made of, and of no use."""

    def __new__(cls, *_: object, **__: object) -> _Other:
        return object.__new__(cls)

    def __init__(self, *_: object, **__: object) -> None: ...

    def __call__(self, *_: object, **__: object) -> _Other:
        return self

    def __setstate__(self, _: object) -> None: ...

    def __setitem__(self, _: object, __: object) -> None: ...

    def append(self, _: object) -> None: ...

    def extend(self, _: object) -> None: ...


class _Ordered(dict[Any, Any]):
    def __setstate__(self, _: object) -> None: ...


def _tensor(storage: _Storage, offset: int, shape: Sequence[int], strides: Sequence[int], *_: object) -> _Tensor | _Other:
    return _of(storage, offset, shape, strides, storage.kind)


def _tensor_of_kind(
    storage: _Storage, offset: int, shape: Sequence[int], strides: Sequence[int], _grad: object, _hooks: object, kind: _Kind, *_: object
) -> _Tensor | _Other:
    return _of(storage, offset, shape, strides, kind)


def _of(storage: _Storage, offset: int, shape: Sequence[int], strides: Sequence[int], kind: _Kind | None) -> _Tensor | _Other:
    numbers = [offset, *shape, *strides]
    if not all(type(each) is int and 0 <= each < 1 << 62 for each in numbers) or len(shape) != len(strides) or len(shape) > 64:
        raise NotConverted("its tensors are not as torch writes them")
    return _Tensor(storage, offset, tuple(shape), tuple(strides), kind) if isinstance(kind, _Kind) else _Other()


def _parameter(data: object, *_: object) -> object:
    return data


_STAND_INS = {
    ("collections", "OrderedDict"): _Ordered,
    ("torch", "Size"): tuple,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_tensor_v3"): _tensor_of_kind,
    ("torch._utils", "_rebuild_parameter"): _parameter,
    ("torch._utils", "_rebuild_parameter_with_state"): _parameter,
}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (found := _STAND_INS.get((module, name))) is not None:
            return found
        if module == "torch" and (kind := _KINDS.get(name.removesuffix("Storage"))) is not None:
            return _Kind(*kind)
        return _Other

    def persistent_load(self, pid: Any) -> _Storage:
        if not (isinstance(pid, tuple) and len(pid) == 5 and pid[0] == "storage" and isinstance(pid[2], str)):
            raise NotConverted("its tensors are not as torch writes them")
        return _Storage(pid[2], pid[1] if isinstance(pid[1], _Kind) else None)


def safetensors(files: Sequence[int]) -> dict[str, object]:
    """`files`: what torch.save wrote, and where the safetensors goes. `refused`: the end of a sentence, empty where it was made; `left`:
    names of what is no tensor and was left out."""
    source, into = os.fdopen(files[0], "rb"), os.fdopen(files[1], "r+b")
    source.seek(0)
    try:
        with zipfile.ZipFile(source) as archive:
            weights, left = _weights(archive)
            _write(source, archive, weights, into)
        into.flush()
    except NotConverted as why:
        return {"refused": str(why), "left": [], "tensors": 0}
    except (zipfile.BadZipFile, NotImplementedError):  # the latter: a way to pack that zipfile does not know
        return {"refused": _OLD, "left": [], "tensors": 0}
    return {"refused": "", "left": left[:NAMED_LEFT], "tensors": len(weights)}


def _weights(archive: zipfile.ZipFile) -> tuple[dict[str, _Tensor], list[str]]:
    """The tensors by name, and the names of what is none."""
    entry = _entry(archive, "data.pkl")
    if entry.file_size > MOST_PICKLE:
        raise NotConverted("what it says of its tensors is too long")
    if _content(archive, "byteorder") not in (b"", b"little"):
        raise NotConverted("its numbers are in the order of another kind of machine")
    with archive.open(entry) as file:
        try:
            found = _Reader(file).load()
        except NotConverted:
            raise
        except Exception:  # whatever a pickle does that was made up
            raise NotConverted(_WHOLE) from None
    if not isinstance(found, dict):
        raise NotConverted(_WHOLE)
    for state in (found, *(found[place] for place in PLACES if isinstance(found.get(place), dict))):
        weights = {name: value for name, value in state.items() if isinstance(name, str) and isinstance(value, _Tensor)}
        if weights:
            return weights, [str(name)[:100] for name in state if name not in weights]
    raise NotConverted(f"it holds no tensors by name, neither at its top nor under {', '.join(PLACES)}")


def _write(source: BinaryIO, archive: zipfile.ZipFile, weights: dict[str, _Tensor], into: BinaryIO) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    places, end = {}, 0
    for name, tensor in weights.items():
        if name in header or not tensor.is_in_order():
            raise NotConverted(f"the values of {name[:100]} do not lie in the usual order: save it after .contiguous()")
        places[name] = _data_offset(source, archive, tensor)
        size = tensor.count * tensor.kind.size
        header[name] = {"dtype": tensor.kind.name, "shape": list(tensor.shape), "data_offsets": [end, end + size]}
        end += size
    if end > 2 * source.seek(0, os.SEEK_END):  # the same values under many names
        raise NotConverted("its tensors share their values, and would take far more room apart")
    said = json.dumps(header, separators=(",", ":")).encode()
    said += b" " * (-len(said) % 8)
    into.write(struct.pack("<Q", len(said)) + said)
    for name, tensor in weights.items():
        for piece in _pieces(source, places[name], tensor.count * tensor.kind.size):
            into.write(piece)


def _data_offset(source: BinaryIO, archive: zipfile.ZipFile, tensor: _Tensor) -> int:
    """Where in the file its first value lies."""
    entry = _entry(archive, f"data/{tensor.storage.key}")
    if (tensor.offset + tensor.count) * tensor.kind.size > entry.file_size or entry.compress_type != zipfile.ZIP_STORED:
        raise NotConverted("it is cut short, or packed")
    source.seek(entry.header_offset)
    head = source.read(30)
    if len(head) < 30 or not head.startswith(b"PK\3\4"):
        raise NotConverted("it is damaged")
    name, extra = struct.unpack_from("<HH", head, 26)
    return int(entry.header_offset + 30 + name + extra + tensor.offset * tensor.kind.size)


def _pieces(source: BinaryIO, begin: int, size: int) -> Iterator[bytes]:
    source.seek(begin)
    while size:
        piece = source.read(min(CHUNK_BYTES, size))
        if not piece:
            raise NotConverted("it is cut short")
        size -= len(piece)
        yield piece


def _entry(archive: zipfile.ZipFile, path: str) -> zipfile.ZipInfo:
    """In the one folder that all of its files are in."""
    top = next((name.removesuffix("data.pkl") for name in archive.namelist() if name.count("/") <= 1 and name.endswith("data.pkl")), "")
    if (found := archive.NameToInfo.get(f"{top}{path}")) is None:
        raise NotConverted(_OLD)
    return found


def _content(archive: zipfile.ZipFile, path: str) -> bytes:
    try:
        entry = _entry(archive, path)
    except NotConverted:
        return b""
    with archive.open(entry) as file:
        return file.read(16).strip()
