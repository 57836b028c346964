"""Arrays that users or their programs saved with numpy, .npy and .npz: shape, kind of values, their range where they are few, first rows.

The format is read by hand (numpy.lib.format describes it): its header is searched for three facts, not evaluated, and nothing is ever
unpickled. Of an .npz, a zip that anybody may have written, a bounded part of each array is unpacked.
"""

from __future__ import annotations

import math
import re
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import BinaryIO

from experiments.boxed import tables
from experiments.boxed.tables import Table

MAGIC = b"\x93NUMPY"
MOST_HEADER, MOST_AXES = 64 * 1024, 64
MOST_VALUES = 100_000  # of which the range is taken
MOST_SIZE = 1024  # bytes, of one value
MOST_MEMBERS, MOST_TABLES, MEMBER_ROWS = 50, 5, 20  # of an .npz: arrays, those that are shown, rows of each
MEMBER_BYTES, ARCHIVE_BYTES = 1 << 20, 8 << 20  # unpacked of one array, and of all of them
MOST_AT_ONCE, CHUNK = 256 * 1024, 64 * 1024  # read for a zip's table of contents, and of its members
PICKLED = "It holds Python objects, which are saved as a program that makes them. It is not run here: save numbers or text instead."
_KINDS = {
    "b1": ("bool", "?"), "i1": ("int8", "b"), "i2": ("int16", "h"), "i4": ("int32", "i"), "i8": ("int64", "q"),
    "u1": ("uint8", "B"), "u2": ("uint16", "H"), "u4": ("uint32", "I"), "u8": ("uint64", "Q"),
    "f2": ("float16", "e"), "f4": ("float32", "f"), "f8": ("float64", "d"), "c8": ("complex64", "ff"), "c16": ("complex128", "dd"),
}  # fmt: skip
_DESCR = re.compile(r"""['"]descr['"]\s*:\s*['"]([<>=|]?)([a-zA-Z])(\d{0,9})((?:\[\w{1,20}\])?)['"]""")
_RECORDS = re.compile(r"""['"]descr['"]\s*:\s*\[""")
_ORDER = re.compile(r"""['"]fortran_order['"]\s*:\s*(True|False)""")
_SHAPE = re.compile(r"""['"]shape['"]\s*:\s*\(([\d\s,]{0,1000})\)""")
Read = Callable[[int, int], bytes]  # (offset, count) -> as many bytes as there are


class NotReadable(Exception):
    """What a person is told of an array that cannot be shown."""


@dataclass(frozen=True)
class Array:
    """`facts`: what is known of it, as pairs of words; `said`: what a reader must know beside that. `name`: in an .npz."""

    name: str
    kind: str
    shape: str
    facts: list[tuple[str, str]]
    table: Table | None
    said: list[str]


@dataclass(frozen=True)
class _Layout:
    """Where the values are: `code` is struct's for one of them, "" for those that are not shown; `size` in bytes; strides in values."""

    kind: str
    order: str
    code: str
    size: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    begin: int

    @property
    def count(self) -> int:
        return math.prod(self.shape)


def npy(file: BinaryIO, size_bytes: int) -> Array:
    """Of a file that begins with MAGIC."""

    def read(offset: int, count: int) -> bytes:
        file.seek(min(offset, size_bytes))  # a header may name places that no file has
        return file.read(count)

    return _array(read, size_bytes)


def npz(file: BinaryIO) -> tuple[list[Array], list[str]]:
    """The arrays of a zip, as far as they are shown, and what there is to say of all of them."""
    found: list[Array] = []
    left = ARCHIVE_BYTES
    try:
        with zipfile.ZipFile(_Frugal(file)) as archive:
            members = [info for info in archive.infolist() if not info.is_dir()]
            for info in members[:MOST_MEMBERS]:
                if left <= 0:
                    break
                data, refused = _unpacked(archive, info, limit=min(MEMBER_BYTES, left))
                left -= len(data)
                array = _array(lambda at, count, data=data: data[at : at + count], info.file_size, rows=MEMBER_ROWS)  # type: ignore[misc]
                array = replace(array, said=[refused]) if refused else array
                shown = array.table if sum(one.table is not None for one in found) < MOST_TABLES else None
                found.append(replace(array, name=info.filename.removesuffix(".npy")[:200], table=shown))
    except (zipfile.BadZipFile, NotImplementedError, OSError, ValueError, struct.error, UnicodeDecodeError, OverflowError) as error:
        return found, [f"This is no .npz that can be read: {str(error)[:200]}."]
    many = f"{len(members):,} array{'' if len(members) == 1 else 's'}"
    return found, [f"{many}." if len(found) == len(members) else f"The first {len(found)} of {many}."]


class _Frugal:
    """A file that hands out little at once: the table of contents of a zip may claim to be of any size."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, count: int = -1) -> bytes:
        data = self.file.read(MOST_AT_ONCE + 1 if count < 0 else min(count, MOST_AT_ONCE + 1))
        if len(data) > MOST_AT_ONCE:
            raise zipfile.BadZipFile("its table of contents is too large")
        return data


def _unpacked(archive: zipfile.ZipFile, info: zipfile.ZipInfo, *, limit: int) -> tuple[bytes, str]:
    """The beginning of a member, and why it could not be read: methods other than deflate unpack all they are given at once."""
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or info.flag_bits & 0x41:
        return b"", "It is packed in a way that is not read here."
    try:
        with archive.open(info) as member:
            data = b""
            while len(data) < limit and (chunk := member.read(min(CHUNK, limit - len(data)))):
                data += chunk
            return data, ""
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError, struct.error) as error:
        return b"", f"It is damaged: {str(error)[:200]}."


def _array(read: Read, size_bytes: int, *, rows: int = tables.MOST_ROWS) -> Array:
    try:
        layout = _layout(read)
    except NotReadable as refusal:
        return Array("", "", "", [], None, [str(refusal)])
    except struct.error:
        return Array("", "", "", [], None, ["Its header is cut short."])
    shape = " × ".join(f"{each:,}" for each in layout.shape) or "one value"
    facts = [("Shape", shape), ("Values", f"{layout.count:,} of {layout.kind}")]
    said: list[str] = []
    if layout.begin + layout.count * layout.size > size_bytes:
        said.append(f"It is cut short: {layout.begin + layout.count * layout.size - size_bytes:,} bytes are missing.")
    if not layout.code:
        said.append(PICKLED if layout.kind == "Python objects" else f"Values of the kind {layout.kind} are not shown.")
        return Array("", layout.kind, shape, facts, None, said)
    facts += _range(layout, read)
    return Array("", layout.kind, shape, facts, _rows(layout, read, rows) if layout.count else None, said)


def _layout(read: Read) -> _Layout:
    start = read(0, 12)
    if not start.startswith(MAGIC):
        raise NotReadable("It is not an array that numpy saved.")
    wide = start[6:7] != b"\1"
    (length,) = struct.unpack_from("<I" if wide else "<H", start, 8)
    begin = (12 if wide else 10) + length
    if length > MOST_HEADER:
        raise NotReadable("Its header is too long to be read.")
    header = read(12 if wide else 10, length).decode("latin-1")
    if _RECORDS.search(header):
        raise NotReadable("It holds records with named fields, which are not shown.")
    descr, order, dims = _DESCR.search(header), _ORDER.search(header), _SHAPE.search(header)
    if len(header) < length or not (descr and order and dims):
        raise NotReadable("Its header is not what numpy writes.")
    extents = [each.strip() for each in dims[1].split(",") if each.strip()]
    if len(extents) > MOST_AXES or not all(each.isdigit() and len(each) <= 18 for each in extents):
        raise NotReadable("Its shape is not what numpy writes.")
    shape = tuple(map(int, extents))
    kind, code, size = _values(descr[2], int(descr[3] or 0), descr[4])
    axes = shape if order[1] == "True" else shape[::-1]
    steps = [1]
    for extent in axes[:-1]:
        steps.append(steps[-1] * extent)
    strides = tuple(steps if order[1] == "True" else steps[::-1])[: len(shape)]
    return _Layout(kind, ">" if descr[1] == ">" else "<", code, size, shape, strides, begin)


def _values(letter: str, size: int, unit: str) -> tuple[str, str, int]:
    """What numpy calls them, struct's code for one, its size in bytes."""
    if letter == "O":
        return "Python objects", "", 0
    if (known := _KINDS.get(f"{letter}{size}")) is not None:
        return known[0], known[1], size
    if letter in ("S", "a"):
        return f"bytes, up to {size:,}", f"{size}s" if 0 < size <= MOST_SIZE else "", size
    if letter == "U":
        return f"text of up to {size:,} characters", f"{4 * size}s" if 0 < 4 * size <= MOST_SIZE else "", 4 * size
    named = {"M": "datetime64", "m": "timedelta64", "V": "void"}.get(letter, letter)
    return f"{named}{unit or 8 * size}", "", size


def _range(layout: _Layout, read: Read) -> list[tuple[str, str]]:
    """Least, greatest and mean of few values; those that are no finite number are counted apart."""
    if len(layout.code) != 1 or not 0 < layout.count <= MOST_VALUES:
        return []
    data = read(layout.begin, layout.count * layout.size)
    if len(data) < layout.count * layout.size:
        return []
    values = struct.unpack(f"{layout.order}{layout.count}{layout.code}", data)
    finite = values if layout.code not in "efd" else [each for each in values if math.isfinite(each)]
    facts = [("Not finite", f"{len(values) - len(finite):,}")] if len(finite) < len(values) else []
    if finite:
        mean = math.fsum(each / len(finite) for each in finite)
        facts = [("Least", _spelled(min(finite))), ("Greatest", _spelled(max(finite))), ("Mean", _spelled(mean)), *facts]
    return facts


def _rows(layout: _Layout, read: Read, most: int) -> Table:
    """The first rows of the last two axes, and which part that is."""
    height = layout.shape[-2] if len(layout.shape) > 1 else math.prod(layout.shape)
    width = layout.shape[-1] if len(layout.shape) > 1 else 1
    down = layout.strides[-2] if len(layout.shape) > 1 else 1
    across = layout.strides[-1] if len(layout.shape) > 1 else 1
    wide = min(width, tables.MOST_COLUMNS)
    rows: list[tuple[str, list[str]]] = []
    for row in range(min(height, most)):
        at = layout.begin + row * down * layout.size
        if across == 1:
            parts = read(at, wide * layout.size)
        else:
            parts = b"".join(read(at + column * across * layout.size, layout.size) for column in range(wide))
        if len(parts) < wide * layout.size:
            break  # of an .npz, as much as was unpacked
        rows.append((str(row), [_value(layout, parts[n * layout.size : (n + 1) * layout.size]) for n in range(wide)]))
    flat = len(layout.shape) < 2
    shown = tables.table(["value"] if flat else [str(column) for column in range(wide)], rows, total=height)
    extent = _of(len(shown.rows), height, "value" if flat else "row") + ("" if flat else f", {_of(wide, width, 'column').lower()}")
    part = f" of the slice [{'0, ' * (len(layout.shape) - 2)}:, :]" if len(layout.shape) > 2 else ""
    return replace(shown, said=[f"{extent}{part}."])


def _of(shown: int, there: int, what: str) -> str:
    many = f"{there:,} {what}{'' if there == 1 else 's'}"
    return many if shown == there else f"The first {shown:,} of {many}"


def _value(layout: _Layout, data: bytes) -> str:
    if layout.code[-1] == "s":
        if layout.kind.startswith("bytes"):
            return data.rstrip(b"\0").decode(errors="backslashreplace")
        return data.decode("utf-32-be" if layout.order == ">" else "utf-32-le", errors="replace").rstrip("\0")
    values = struct.unpack(layout.order + layout.code, data)
    return _spelled(complex(*values)) if len(values) == 2 else _spelled(values[0])


def _spelled(value: object) -> str:
    if isinstance(value, complex):
        return f"{value.real:.6g}{value.imag:+.6g}j"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
