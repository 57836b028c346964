"""The list of what a run has to look at (`training_runtime.media`), as its driver keeps it: of each tag a few entries, the first and the
last among them and the others at even distances, however many come."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from training_runtime import media
from training_runtime.elastic.script_logs.event_files import Medium
from training_runtime.elastic.script_logs.pieces import read_piece
from training_runtime.errors import ProtocolError
from training_runtime.media import Entry, Kind, Tag

LONGEST_NAME = 200
MOST_STEPS = 2**53  # that pages can count to


class MediaList:
    """Goes on with the list that an earlier driver of the run has written."""

    def __init__(self, result_dir: Path) -> None:
        self._path = result_dir / media.FILE_NAME
        self._tags: dict[tuple[Kind, str], list[Entry]] = {}
        self._unwritten = False
        with suppress(ProtocolError):
            self._tags = {(tag.kind, tag.name): list(tag.entries) for tag in media.parse(read_piece(self._path, 0, most=media.MOST_BYTES))}

    @property
    def tags(self) -> int:
        return len(self._tags)

    def add(self, file: str, medium: Medium) -> None:
        name = "".join(each if each.isprintable() else "?" for each in medium.tag)[:LONGEST_NAME]
        entries = self._tags.get((medium.kind, name))
        if entries is None:
            if sum(kind == medium.kind for kind, _ in self._tags) >= media.MOST_TAGS:
                return
            entries = self._tags[medium.kind, name] = []
        step = min(max(medium.step, 0), MOST_STEPS)
        entries[:] = [each for each in entries if each.step != step]  # a step that was done again
        entries.append(Entry(step, medium.t, file, medium.pieces, medium.histogram))
        entries.sort(key=lambda each: each.step)
        thin_out(entries)
        self._unwritten = True

    def write(self) -> bool:
        """Whether there was anything to write, and it is written. What the disk does not take is tried again the next time."""
        if not self._unwritten:
            return False
        beside = self._path.with_name(f".{self._path.name}.new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_bytes(media.dump(tuple(Tag(kind, name, tuple(entries)) for (kind, name), entries in self._tags.items())))
            beside.replace(self._path)
        except OSError:
            return False
        self._unwritten = False
        return True


def thin_out(entries: list[Entry]) -> None:
    """Down to so many: of those between the first and the last the one goes whose neighbours are nearest to each other."""
    while len(entries) > media.MOST_ENTRIES:
        inner = range(1, len(entries) - 1)
        del entries[min(inner, key=lambda place: entries[place + 1].step - entries[place - 1].step)]
