"""The files of a run as a tree of folders: kinds, sums, what a filter leaves, and the rows that a page shows of it. Pure."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from experiments.files import registrable

KINDS = {
    "checkpoint": "Checkpoint",
    "model": "Model",
    "picture": "Picture",
    "table": "Table or array",
    "log": "Log",
    "other": "Other",
}
FEW = 100  # so many rows or fewer are shown with all folders open
MOST_ROWS = 200  # files of one folder, before more of them are asked for
_ENDINGS = (
    ("picture", (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".svg")),
    ("table", (".csv", ".tsv", ".parquet", ".jsonl", ".ndjson", ".npy", ".npz", ".xlsx", ".arrow", ".feather")),
    ("log", (".log", ".out", ".err")),
)
_OF_AN_EPOCH = re.compile(r"model/train/model_epoch_[0-9]+(_|\.|$)")  # as the engine calls what it writes on the way
_OF_A_TRAINER = re.compile(r"(^|/)checkpoints?([-_][^/]*)?/")  # checkpoint-500/ of Transformers, checkpoints/ of Lightning
_EVENTS = ".tfevents."


@dataclass(frozen=True)
class File:
    """`path` is below the run's folder. `kind`: a key of KINDS."""

    path: str
    kind: str
    size_bytes: int
    modified_at: dt.datetime

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


F = TypeVar("F", bound=File)


@dataclass
class Folder:
    """With the sums of all that is below it, however deep."""

    path: str
    folders: dict[str, Folder] = field(default_factory=dict)
    files: list[File] = field(default_factory=list)
    count: int = 0
    size_bytes: int = 0
    modified_at: dt.datetime | None = None

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class Row:
    """Of a page: a folder, a file, or, with neither, how many files of a folder (`more_of`) are not shown."""

    depth: int
    folder: Folder | None = None
    is_open: bool = False
    file: File | None = None
    more: int = 0
    more_of: str = ""


def kind_of(path: str) -> str:
    """By its place and its name: nobody has looked into it."""
    low = path.lower()
    if low.startswith("log/") or path == "journal.jsonl" or _EVENTS in low:
        return "log"
    if low.startswith("checkpoint/") or _OF_AN_EPOCH.match(low) or _OF_A_TRAINER.search(low) or low.endswith(".ckpt"):
        return "checkpoint"
    if low.startswith("model/"):
        return "model"
    named = next((kind for kind, endings in _ENDINGS if low.endswith(endings)), "")
    return named or ("model" if low.endswith(registrable.WEIGHTS) else "other")


def matching(files: Iterable[F], *, q: str = "", kind: str = "") -> list[F]:
    """Those whose path has every word of `q` in it, in any case, and that are of the kind, where one is named."""
    words = q.lower().split()
    return [each for each in files if (not kind or each.kind == kind) and all(word in each.path.lower() for word in words)]


def tree(files: Iterable[File]) -> Folder:
    """The files in the order in which they are given, folders with what is in them."""
    root = Folder("")
    for file in files:
        at = root
        _count(at, file)
        for part in file.path.split("/")[:-1]:
            at = at.folders.setdefault(part, Folder(f"{at.path}/{part}" if at.path else part))
            _count(at, file)
        at.files.append(file)
    return root


def rows(root: Folder, *, opened: Collection[str], most: int = MOST_ROWS) -> list[Row]:
    """What is seen with these folders open, folders before files, at most so many folders and files of each folder."""
    return list(_rows(root, opened, most, 0))


def all_open(root: Folder) -> set[str]:
    """Every folder where few rows come of that; else none. A folder with nothing beside it is opened in any case."""
    paths = {folder.path for folder in folders(root)}
    if root.count + len(paths) <= FEW:
        return paths
    found: set[str] = set()
    at = root
    while len(at.folders) == 1 and not at.files:
        at = next(iter(at.folders.values()))
        found.add(at.path)
    return found


def below(files: Iterable[F], folder: str) -> list[F]:
    """Those in the folder, however deep; all where none is named."""
    return [each for each in files if not folder or each.path.startswith(f"{folder}/")]


def folders(root: Folder) -> list[Folder]:
    """All of them, from above."""
    return list(_below(root))


def _count(folder: Folder, file: File) -> None:
    folder.count += 1
    folder.size_bytes += file.size_bytes
    folder.modified_at = file.modified_at if folder.modified_at is None else max(folder.modified_at, file.modified_at)


def _below(folder: Folder) -> Iterator[Folder]:
    for each in folder.folders.values():
        yield each
        yield from _below(each)


def _rows(folder: Folder, opened: Collection[str], most: int, depth: int) -> Iterator[Row]:
    for each in list(folder.folders.values())[:most]:
        is_open = each.path in opened
        yield Row(depth, folder=each, is_open=is_open)
        if is_open:
            yield from _rows(each, opened, most, depth + 1)
    for file in folder.files[:most]:
        yield Row(depth, file=file)
    more = max(0, len(folder.files) - most) + sum(each.count for each in list(folder.folders.values())[most:])
    if more:
        yield Row(depth, more=more, more_of=folder.path)
