"""Figures and progress of a script that it only prints, out of its console logs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from training_runtime import journal
from training_runtime.elastic.script_logs.console_logs import ConsoleLogs, Piece
from training_runtime.elastic.script_logs.event_folders import Figure, group_of
from training_runtime.elastic.script_logs.held_figures import HeldFigures
from training_runtime.elastic.script_logs.printed import Bar, Bars, bar, beside_bar, figures
from training_runtime.elastic.script_logs.printed_lines import PrintedLines
from training_runtime.elastic.script_logs.trainer_progress import TrainerProgress
from training_runtime.elastic.script_logs.trainer_records import PATH, TrainerRecords

LOOK_S = 1.0
TELL_S = 2.0  # between two lines of progress in the journal
OVER_S = 30.0  # after which figures are of something else than a bar that is done
LONGEST_LABEL = 100
MOST_KINDS = 1000  # of lines, by the names in them

_Line = tuple[Bar | None, list[Figure]]  # what it has figures beside, and these


class PrintedFigures:
    """Of the run whose result folder is `root`. `offsets`: how far each log was read. Where several processes print figures, those of the
    first that does are taken. Lines for people count as long as none is an object or dict, which says the same to programs, and none of it
    where a library's trainer has records; nor do bars where it says how far it is."""

    def __init__(self, root: Path, offsets: Mapping[str, int]) -> None:
        self._logs, self._bars, self._held = ConsoleLogs(root, offsets), Bars(), HeldFigures()
        self._records, self._trainer = TrainerRecords(root, offsets.get(PATH, 0)), TrainerProgress(root)
        self._source, self._has_records = "", False
        self._lines: dict[str, PrintedLines] = {}
        self._counts: dict[frozenset[str], int] = {}
        self._looked = self._told = float("-inf")
        self._until = time.time()
        self._progress: journal.Progress | None = None  # to be told
        self._latest: journal.Progress | None = None
        self._done_at: float | None = None  # since when what was told last is done

    @property
    def offsets(self) -> dict[str, int]:
        return {**self._logs.offsets, PATH: self._records.offset} if self._records.offset else self._logs.offsets

    def due(self, now: float) -> bool:
        """Whether it is time to look again (monotonic)."""
        return now - self._looked >= LOOK_S

    def read(self, *, now: float, all_of_it: bool) -> list[Figure]:
        """What was printed since, at even distances: nobody knows when it was printed, and at one moment it would be without end fast."""
        self._looked, since, self._until = now, self._until, time.time()
        printed: list[_Line] = []
        reported = self._trainer.read()
        for piece in self._logs.read(all_of_it=all_of_it):
            if drawn := bar(piece.text):
                if (tells := self._bars.add(drawn, now)) is not None and not self._trainer.is_at_work:
                    self._note_progress(journal.Progress(tells.done, tells.total, tells.left_s, tells.label[:LONGEST_LABEL]), now)
                if piece.whole or piece.text.rstrip().endswith("]"):  # its end comes with the next one, which may be an hour later
                    printed.append((drawn, self._for_people(piece.path, beside_bar(piece.text))))
            elif piece.whole:
                printed.append((None, self._figures(piece)))
        if reported is not None:
            self._note_progress(reported, now)
        found: list[Figure] = []
        for beside, of_line in _dated(printed, since, self._until):
            found += self._held.add(of_line, beside, now)
        found += self._held.release() if all_of_it else self._held.due(now)
        records = self._records.read(all_of_it=all_of_it)
        return records if self._records.are_kept else found

    def _note_progress(self, said: journal.Progress, now: float) -> None:
        """A bar that stands at the end of a log is read at each look."""
        if said != self._latest:
            self._progress = self._latest = said
            self._done_at = now if said.done >= said.total else None

    def progress(self, *, now: float, all_of_it: bool, figures_at: float = float("-inf")) -> journal.Progress | None:
        """What is to be told now of how far it is. `figures_at`: when the last figures came, from wherever."""
        if self._progress is None and self._done_at is not None and figures_at >= self._done_at + OVER_S:
            self._progress, self._done_at = journal.Progress(0, 0, None, ""), None
        if self._progress is None or (now - self._told < TELL_S and not all_of_it):
            return None
        told, self._progress, self._told = self._progress, None, now
        return told

    def _figures(self, piece: Piece) -> list[Figure]:
        said = figures(piece.text)
        if said is None:
            return self._for_people(piece.path, piece.text)
        if self._source not in ("", piece.path):
            return []
        self._source, self._has_records = piece.path, True
        step = self._count(frozenset(said.values)) if said.step is None else said.step
        if step is None:
            return []
        return [Figure(group_of(name), name, step, value, 0.0) for name, value in said.values.items()]

    def _count(self, names: frozenset[str]) -> int | None:
        """The step of a line without one, by what it has: lines of a kind are counted, and those of a test belong to where the training
        is, as long as that is further."""
        if names not in self._counts and len(self._counts) >= MOST_KINDS:
            return None
        trained = 0 if not _are_of_test(names) else max((n for kind, n in self._counts.items() if not _are_of_test(kind)), default=0)
        step = self._counts[names] = max(self._counts.get(names, 0) + 1, trained)
        return step

    def _for_people(self, path: str, text: str) -> list[Figure]:
        if self._has_records or self._source not in ("", path):
            return []
        found = self._lines.setdefault(path, PrintedLines()).add(text)
        self._source = path if found else self._source
        return [Figure(each.group, each.name, each.step, each.value, 0.0) for each in found]


def _dated(printed: list[_Line], since: float, until: float) -> Iterator[_Line]:
    """Those with figures, in their order from the first moment, which is the last where the clock was put back, to the other."""
    lines = [line for line in printed if line[1]]
    each_s = max(0.0, until - since) / max(1, len(lines))
    for place, (beside, found) in enumerate(lines, 1):
        yield beside, [replace(figure, t=until - each_s * (len(lines) - place)) for figure in found]


def _are_of_test(names: frozenset[str]) -> bool:
    return all(group_of(name) == "test" for name in names)
