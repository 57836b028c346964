"""What a thing in the store consists of: pure.

Its files are cut into objects that are called after the SHA-256 of their content, so that what is there is never sent again and whatever
comes back is checked. Small files share an object; a large one has several. The manifest says which bytes of which objects a file is, and
begins with a digest of itself. Objects that it names no more stay for a while, as what is deleted stays in the trash.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

FORMAT = 1
OBJECT_BYTES = 16 << 20  # the most of a large file in one object, which is held in memory
SMALL_BYTES = 1 << 20  # up to here a file shares an object
PACK_BYTES = 8 << 20  # and so large such an object becomes


class Damaged(Exception):
    """What is in the store is not what was put there. The message says what of."""


@dataclass(frozen=True)
class Part:
    """`size` bytes from `begin` on, of an object."""

    object: str
    begin: int
    size: int


@dataclass(frozen=True)
class Stored:
    """A file: its path below the thing, its size, when it was last written and changed in any way (nanoseconds), and what it is made of; in
    a draft fewer parts than its size."""

    path: str
    size: int
    mtime_ns: int
    ctime_ns: int
    parts: tuple[Part, ...]

    @property
    def there(self) -> int:
        return sum(part.size for part in self.parts)

    @property
    def facts(self) -> tuple[int, int, int]:
        return self.size, self.mtime_ns, self.ctime_ns


@dataclass(frozen=True)
class Manifest:
    """`read_at`: when it began to be read here, Unix seconds. `retired`: objects of earlier ones, and since when they are named no more."""

    kind: str
    key: str
    read_at: float
    files: tuple[Stored, ...]
    retired: Mapping[str, float] = field(default_factory=dict)

    @property
    def objects(self) -> set[str]:
        return {part.object for file in self.files for part in file.parts}

    @property
    def size_bytes(self) -> int:
        return sum(file.size for file in self.files)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def encode(manifest: Manifest) -> bytes:
    files = [[f.path, f.size, f.mtime_ns, f.ctime_ns, [[p.object, p.begin, p.size] for p in f.parts]] for f in manifest.files]
    raw = {
        "format": FORMAT,
        "kind": manifest.kind,
        "key": manifest.key,
        "read_at": manifest.read_at,
        "files": files,
        "retired": dict(manifest.retired),
    }
    body = json.dumps(raw, separators=(",", ":")).encode()
    return digest(body).encode() + b"\n" + body


def decode(data: bytes, *, kind: str, key: str, whole: bool = True) -> Manifest:
    """Raises Damaged, also for a path that leads out of the thing. `whole`: it is no draft, in which the parts of a file may be fewer."""
    said, _, body = data.partition(b"\n")
    if said.decode(errors="replace") != digest(body):
        raise Damaged(f"the list of files of {kind} {key} is damaged")
    try:
        raw = json.loads(body)
        if raw["format"] != FORMAT:
            raise Damaged(f"{kind} {key} was stored by a newer version of the studio")
        files = tuple(
            Stored(str(path), int(size), int(mtime), int(ctime), tuple(Part(str(name), int(begin), int(of)) for name, begin, of in parts))
            for path, size, mtime, ctime, parts in raw["files"]
        )
        found = Manifest(
            str(raw["kind"]), str(raw["key"]), float(raw["read_at"]), files, {str(k): float(v) for k, v in raw["retired"].items()}
        )
    except (ValueError, KeyError, TypeError):
        raise Damaged(f"the list of files of {kind} {key} is damaged") from None
    if (found.kind, found.key) != (kind, key) or not all(
        _stays_inside(file.path) and (file.there == file.size or not whole) for file in files
    ):
        raise Damaged(f"the list of files of {kind} {key} is damaged")
    return found


def _stays_inside(path: str) -> bool:
    return not path.startswith("/") and "\0" not in path and not any(part in ("", ".", "..") for part in path.split("/"))


def retired(before: Manifest | None, objects: Iterable[str], *, there: Iterable[str], now: float) -> dict[str, float]:
    """Of the objects that are `there`, those that the manifest to come names no more, each since when: also what an attempt has left that
    was given up."""
    known = before.retired if before is not None else {}
    return {name: known.get(name, now) for name in sorted(set(there) - set(objects))}


def due(manifest: Manifest, *, kept_s: float, now: float) -> list[str]:
    """Retired objects that are kept no longer."""
    return [name for name, since in manifest.retired.items() if now - since >= kept_s]
