"""Finds TensorBoard's event files, logs of Weights & Biases and tables of figures below a folder and follows them all as they grow, but for
those that were uploaded with the code, which tell of other trainings, and copies among MLflow's artifacts. Whatever lies there, nothing is
raised; what cannot be read of a file is said once, on the standard error."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from training_runtime.elastic.script_logs import event_files, scalar_tables, wandb_logs
from training_runtime.elastic.script_logs.event_files import Chunk, Medium
from training_runtime.elastic.script_logs.pieces import read_piece
from training_runtime.elastic.script_logs.printed_pairs import MEASURES, words_of
from training_runtime.media import MOST_PATH
from training_runtime.protocol import UNCHANGED_CODE_NS
from training_runtime.tracking.answers import ARTIFACTS
from training_runtime.tracking.answers import Group as Group
from training_runtime.tracking.answers import group_of as group_of

FILE_NAME = re.compile(r"events\.out\.tfevents\.")
SCAN_S = 2.0  # between two searches for new files, at least
SCAN_SHARE = 0.02  # of a processor is spent on them, at most
MOST_ENTRIES = 20_000  # that a search looks at
MOST_FILES = 256  # that are followed, the first that were found
MOST_BYTES = 1 << 20  # of a file, at a time
COMPARED_BYTES = 1 << 16  # of a file that may be a copy


@dataclass(frozen=True)
class Figure:
    """`t`: Unix seconds, 0.0 where the file does not say."""

    group: Group
    name: str
    step: int
    value: float
    t: float


@dataclass
class NewEvents:
    """`media`: what there is to look at, each with its file's path below the root; `parameters`: what the script says it was begun with."""

    figures: list[Figure] = field(default_factory=list)
    media: list[tuple[str, Medium]] = field(default_factory=list)
    parameters: dict[str, str] = field(default_factory=dict)


class EventFolders:
    """Follows what is below `root`. `offsets`: how far each file was read, by its path, for whoever follows after it, `headers`: which
    header each table had, `sent`: groups and names of what is told by other ways, and `measured`: groups of which there was a usual measure
    in any."""

    def __init__(
        self,
        root: Path,
        offsets: Mapping[str, int],
        headers: Mapping[str, str] | None = None,
        *,
        sent: Iterable[tuple[Group, str]] = (),
        measured: Iterable[Group] = (),
    ) -> None:
        self._root = root
        self.offsets, self.headers, self.measured = dict(offsets), dict(headers or {}), set[Group](measured)
        self.sent = set[tuple[str, str]](sent)
        self._of_before = frozenset(offsets)
        self._within = frozenset[str]()  # a line that is longer than what is looked at together
        self._owners: dict[tuple[str, str], Path] = {}
        self._told: set[tuple[str, str]] = set()
        self._scan_at = 0.0

    def read(self, *, now: float, all_of_it: bool) -> NewEvents:
        """What has been written since; at most MOST_BYTES of each file unless `all_of_it`. `now` is monotonic."""
        if all_of_it or now >= self._scan_at:
            self._scan(now)
        found = NewEvents()
        for path in list(self.offsets):
            while (chunk := self._chunk(path)) is not None:
                self._add_chunk(path, chunk, found)
                if not all_of_it:
                    break
        self.measured |= {group for group, name in {(each.group, each.name) for each in found.figures} if words_of(name) & MEASURES}
        return found

    def says(self, group: Group, name: str) -> bool:
        """Whether they have this figure, or say themselves how well the training or a test goes."""
        return group in self.measured or (group, name) in self._owners

    def _scan(self, now: float) -> None:
        begun = time.thread_time()
        for path in sorted(_files_of_figures(self._root), key=_is_artifact):
            if path not in self.offsets and len(self.offsets) < MOST_FILES and not self._is_copy(path):
                self.offsets[path] = 0
        self._scan_at = now + max(SCAN_S, (time.thread_time() - begun) / SCAN_SHARE)

    def _is_copy(self, path: str) -> bool:
        """Of one that is followed: `mlflow.log_artifact` makes them."""
        if not _is_artifact(path):
            return False
        begins = read_piece(self._root / path, 0, most=COMPARED_BYTES)
        originals = (each for each in self.offsets if Path(each).name == Path(path).name and not _is_artifact(each))
        return any(read_piece(self._root / each, 0, most=len(begins)) == begins for each in originals)

    def _chunk(self, path: str) -> Chunk | None:
        """None where there is nothing new; the offset is that of the next."""
        offset = self.offsets[path]
        data = read_piece(self._root / path, offset, most=MOST_BYTES)
        name = Path(path).name
        if scalar_tables.FILE_NAME.fullmatch(name):
            chunk = self._of_table(path, data, offset)
        elif wandb_logs.FILE_NAME.fullmatch(name):
            chunk = self._of_wandb(path, data, offset)
        else:
            chunk = self._of_events(path, data, offset) if data else None
        if chunk is None or chunk.offset == offset:
            return None
        self.offsets[path] = chunk.offset
        return chunk

    def _of_events(self, path: str, data: bytes, offset: int) -> Chunk:
        chunk = event_files.read(data, offset)
        if chunk.offset == offset and len(data) < chunk.needs <= _size(self._root / path) - offset:  # a record larger than a piece
            chunk = event_files.read(read_piece(self._root / path, offset, most=chunk.needs), offset)
        self._tell_of_losses(path, chunk, what="event file", most=f"{event_files.MOST_EVENT_BYTES >> 20} MiB")
        return chunk

    def _of_wandb(self, path: str, data: bytes, offset: int) -> Chunk:
        chunk = wandb_logs.read(data, offset)
        self._tell_of_losses(path, chunk, what="log of Weights & Biases", most=f"{wandb_logs.MOST_RECORD_BYTES >> 10} KiB")
        return chunk

    def _tell_of_losses(self, path: str, chunk: Chunk, *, what: str, most: str) -> None:
        if chunk.broken:
            self._tell(path, f"is no {what} from byte {chunk.offset:,} on, and is not read further")
        if chunk.damaged:
            self._tell(path, "has records that cannot be read, which are left out")
        if chunk.too_large:
            self._tell(path, f"has records of more than {most}, which are left out")

    def _tell(self, path: str, what: str) -> None:
        if (path, what) not in self._told:
            self._told.add((path, what))
            print(f"{path} {what}", file=sys.stderr)  # noqa: T201 - the driver's log

    def _of_table(self, path: str, data: bytes, offset: int) -> Chunk | None:
        """A table that is shorter than it was, has another header, or another line there, was written anew from its first line on: some
        loggers do so when a column is added."""
        header = b""
        if path.endswith(".csv"):
            header = scalar_tables.header_of(read_piece(self._root / path, 0, most=scalar_tables.MOST_HEADER_BYTES))
            if not header:
                return None
        mark = hashlib.blake2b(header, digest_size=8).hexdigest()
        is_there = path in self._within or not offset or read_piece(self._root / path, offset - 1, most=1) == b"\n"
        if self.headers.setdefault(path, mark) != mark or not is_there:
            self.headers[path], offset = mark, 0
            data = read_piece(self._root / path, 0, most=MOST_BYTES)
        if not data:
            return None
        chunk = scalar_tables.read(path, header, data, offset)
        ends_line = data[: chunk.offset - offset].endswith(b"\n")
        self._within = self._within - {path} if ends_line else self._within | {path}
        return chunk

    def _add_chunk(self, path: str, chunk: Chunk, found: NewEvents) -> None:
        folder = Path(path).parent
        for each in chunk.scalars:
            group = group_of(each.tag, folder.name)
            found.figures.append(Figure(group, self._name(path, group, each.tag), max(0, each.step), each.value, each.t))
        for some in chunk.parameters:
            found.parameters |= {self._name(path, "parameter", name): value for name, value in some.items()}
        if chunk.media and (len(path) > MOST_PATH or not path.isprintable()):
            self._tell(ascii(path)[: 2 * MOST_PATH], "has a name that no page can show, so its pictures and texts are left out")
        else:
            found.media += [(path, replace(each, tag=self._name(path, each.kind, each.tag))) for each in chunk.media]

    def _name(self, path: str, kind: str, tag: str) -> str:
        """The tag, which belongs to the first folder that has it in this attempt; of another folder with its name before it, and so where
        a name is sent, too: a curve is of one of them, as they may count steps from 0 and from 1."""
        folder = Path(path).parent
        full = f"{folder.name or Path(path).name.partition('.')[0]}/{tag}"
        if (kind, tag) in self.sent:
            return full
        if path in self._of_before:
            return tag
        owner = self._owners.setdefault((kind, tag), folder)
        return tag if owner == folder else full


def _files_of_figures(root: Path) -> Iterator[str]:
    """Paths below the root, in order, so that who comes after finds the same first."""
    left = MOST_ENTRIES
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        left -= len(folders) + len(names)
        for name in sorted(names):
            if _has_figures(name) and not _is_uploaded(Path(folder, name)):
                yield str(Path(folder, name).relative_to(root))
        if left <= 0:
            return


def _is_artifact(path: str) -> bool:
    return Path(path).parts[0] == ARTIFACTS


def _has_figures(name: str) -> bool:
    return bool(FILE_NAME.match(name) or any(kind.FILE_NAME.fullmatch(name) for kind in (scalar_tables, wandb_logs)))


def _is_uploaded(path: Path) -> bool:
    """And not written to since."""
    try:
        return path.stat(follow_symlinks=False).st_mtime_ns == UNCHANGED_CODE_NS
    except OSError:
        return False


def _size(path: Path) -> int:
    try:
        return path.stat(follow_symlinks=False).st_size
    except OSError:
        return 0
