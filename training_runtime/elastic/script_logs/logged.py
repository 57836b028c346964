"""What a script logs of its own, as lines of the run's journal: `evaluation-metrics.txt` (EMetrics, one JSON object a line), event files
of TensorBoard, tables of figures, what its MLflow client sends (`tracking`); and where it has none of these and no engine measures for it,
what it prints. So any script, whether it trains with FabricModel or not, has charts. Names that the engine measures are left to it.
Pictures, texts and histograms of event files are listed in a file of their own (`media_list`), of which the journal says that it changed.

The files are the script's: whatever stands in them, nothing is raised. How far they have been read is kept, so that a driver after this
one goes on there; a line that is told twice after a crash is one point all the same.
"""

from __future__ import annotations

import json
import os
import stat
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from training_runtime import journal, journal_writer
from training_runtime.elastic.script_logs.event_folders import EventFolders, Figure
from training_runtime.elastic.script_logs.media_list import MediaList
from training_runtime.elastic.script_logs.printed_figures import PrintedFigures
from training_runtime.tracking.answers import Group

FILE_NAME = "evaluation-metrics.txt"
PLACE = ".evaluation-metrics.read"
MEASURED = ".engine-measures"  # an empty file beside it
LOOK_S = 0.25
MOST_BYTES = 1 << 20  # at a time; a longer line is passed over
MOST_STEPS = 2**63 - 1  # that the database can hold
FILES_WAIT_S = 30.0  # for the first figure of files that have none yet, before what is printed counts
MOST_HELD = 10_000  # figures that are held back meanwhile
MOST_SENT = 5_000  # names that are known to be told by other ways than files
_GROUPS: frozenset[Group] = frozenset(("train", "test"))
_NUMBERS = (2, 3)  # the types of values that are numbers


@dataclass(frozen=True)
class _ReadPositions:
    """Up to where all was read: offsets in the file, and in event files and in logs by path; which header each table had then; sent: groups
    and names of what was told by other ways than files; measured: groups of which files had a usual measure."""

    offset: int = 0
    events: dict[str, int] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    printed: dict[str, int] = field(default_factory=dict)
    sent: tuple[tuple[Group, str], ...] = ()
    measured: tuple[Group, ...] = ()


class ScriptMetrics:
    """Follows the file in `folder`, and event files anywhere below `result_dir`; there it is kept how far all was read. One thread at a
    time calls its methods, but for `figures` and `note`, which any may call."""

    def __init__(self, folder: Path, result_dir: Path, writer: journal_writer.Writer) -> None:
        self._path, self._writer = folder / FILE_NAME, writer
        self._place = result_dir / "checkpoint" / PLACE
        self._own: frozenset[str] = frozenset()
        self._looked = 0.0
        self._figures_at = float("-inf")  # when the last ones came, of the clock that goes forward
        self._steps: dict[Group, int] = {"train": 0, "test": 0}
        self._latest: dict[str, float] = {}
        self._lock = threading.Lock()  # over the two that `figures` changes too
        self._sent = False  # something was, by `figures` or `note`
        self._has_figures = False  # by `figures`
        place = self._recall()
        self._offset = place.offset
        self._events = EventFolders(result_dir, place.events, place.headers, sent=place.sent, measured=place.measured)
        self._media = MediaList(result_dir)
        self._printed, self._printed_until = PrintedFigures(result_dir, place.printed), place.printed
        self._held: list[Figure] = []
        self._held_since = float("-inf")
        self._waited: frozenset[Group] = frozenset()  # groups of which something printed was told
        self._measured = self._place.with_name(MEASURED).exists()  # a driver after the first knows before the script has come so far

    @property
    def step(self) -> int:
        with self._lock:
            return max(self._steps.values())

    @property
    def latest(self) -> dict[str, float]:
        with self._lock:
            return dict(self._latest)

    def figures(self, group: Group, step: int, metrics: dict[str, float], *, t: float) -> None:
        """Those that are sent: in the journal, as far as the disk takes them, when this returns."""
        self._has_figures = True
        if own := {name: value for name, value in metrics.items() if name not in self._own}:
            self._write_sent(group, min(step, MOST_STEPS), own, t=t)
            self._flush()

    def note(self, noted: journal.Noted | journal.Setup) -> None:
        """What is said beside figures."""
        self._writer.write(noted)
        self._flush()

    def leave_out(self, names: Iterable[str]) -> None:
        """The engine measures these itself."""
        self._own, self._measured = frozenset(names), True
        with suppress(OSError):
            self._place.parent.mkdir(exist_ok=True)
            self._place.with_name(MEASURED).touch()

    def due(self, now: float) -> bool:
        """Whether it is time to look again (monotonic)."""
        return now - self._looked >= LOOK_S

    def write_to_journal(self, *, all_of_it: bool = False) -> bool:
        """Write what the file has since into the journal, which the caller flushes; whether there was anything. Then call `keep_place`."""
        with self._lock:
            found, self._sent = self._sent, False
        self._looked = time.monotonic()
        found = self._take_events(all_of_it=all_of_it) or found
        found = self._take_printed(all_of_it=all_of_it) or found
        while (chunk := self._read()) and self._write_lines(chunk):
            found = True
            if not all_of_it:
                break
        return found

    def keep_place(self) -> None:
        """The journal has it."""
        with suppress(OSError):  # then some is told again
            self._place.parent.mkdir(exist_ok=True)
            beside = self._place.with_name(f"{self._place.name}.new")
            kept = {
                FILE_NAME: self._offset,
                "events": self._events.offsets,
                "printed": self._printed_until,
                "headers": self._events.headers,
                "sent": sorted(self._events.sent.copy()),  # `figures` adds to it meanwhile
            }
            beside.write_text(json.dumps({**kept, "measured": sorted(self._events.measured)}))
            beside.replace(self._place)

    def _recall(self) -> _ReadPositions:
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            kept = json.loads(self._place.read_text())
            events = _offsets(kept["events"])
            headers = {str(path): str(header) for path, header in kept.get("headers", {}).items()}
            sent = tuple((_group(label), str(name)) for label, name in kept.get("sent", ()))
            measured = tuple(_group(label) for label in kept.get("measured", ("train", "test") if kept.get("has_figures", events) else ()))
            return _ReadPositions(max(0, int(kept[FILE_NAME])), events, headers, _offsets(kept.get("printed", {})), sent, measured)
        return _ReadPositions()

    def _take_events(self, *, all_of_it: bool) -> bool:
        found = self._events.read(now=self._looked, all_of_it=all_of_it)
        for noted in journal.Noted.of(found.parameters, {}):
            self._writer.write(noted)
        for file, medium in found.media:
            self._media.add(file, medium)
        if listed := self._media.write():
            self._writer.write(journal.Media(self._media.tags))
        return self._tell_of(found.figures) or bool(found.parameters) or listed

    def _take_printed(self, *, all_of_it: bool) -> bool:
        """What it prints says less than what it logs: it counts where nothing else does."""
        if self._measured or not (all_of_it or self._printed.due(self._looked)):
            return False
        printed = self._printed.read(now=self._looked, all_of_it=all_of_it)
        found = self._tell_of(self._that_count(printed, all_of_it=all_of_it))
        if progress := self._printed.progress(now=self._looked, all_of_it=all_of_it, figures_at=self._figures_at):
            self._writer.write(progress)
        return found or progress is not None

    def _that_count(self, printed: list[Figure], *, all_of_it: bool) -> list[Figure]:
        """Those of what is printed that can be told: none where the script sends figures, and none of the training or of a test where files
        measure that. Files that do not yet are waited for, once, and for ever do not where a script writes pictures or settings there."""
        if self._offset or self._has_figures:
            self._held, self._printed_until = [], dict(self._printed.offsets)
            return []
        if not self._held and printed:
            self._held_since = self._looked
        self._held = [each for each in (*self._held, *printed) if not self._events.says(each.group, each.name)]
        waits = self._events.offsets and self._looked < self._held_since + FILES_WAIT_S and len(self._held) < MOST_HELD
        waited_for = frozenset[Group]() if all_of_it or not waits else _GROUPS - self._waited
        told = [each for each in self._held if each.group not in waited_for]
        self._held = [each for each in self._held if each.group in waited_for]
        self._waited |= {each.group for each in told}
        if not self._held:
            self._printed_until = dict(self._printed.offsets)
        return told

    def _tell_of(self, figures: list[Figure]) -> bool:
        lines: dict[tuple[Group, int], list[Figure]] = {}
        for each in figures:
            if each.name not in self._own:
                lines.setdefault((each.group, each.step), []).append(each)
        for (group, step), found in lines.items():
            self._write(group, min(step, MOST_STEPS), {each.name: each.value for each in found}, t=max(each.t for each in found))
        return bool(figures)

    def _read(self) -> bytes:
        """From where it was read on; again from its start where a script has begun it anew."""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return b""
        try:
            facts = os.fstat(fd)
            if not stat.S_ISREG(facts.st_mode):
                return b""
            if facts.st_size < self._offset:
                self._offset = 0
            return os.pread(fd, MOST_BYTES, self._offset)
        except OSError:
            return b""
        finally:
            os.close(fd)

    def _write_lines(self, chunk: bytes) -> bool:
        """Whole lines; one without an end waits for it, unless it is too long."""
        end = chunk.rfind(b"\n") + 1 or (len(chunk) if len(chunk) >= MOST_BYTES else 0)
        self._offset += end
        for line in chunk[:end].splitlines():
            self._tell(line)
        return bool(end)

    def _tell(self, line: bytes) -> None:
        try:
            record = json.loads(line)
            group = _group(record["grouplabel"])
            step, t = min(int(record["etimes"]["iteration"]["value"]), MOST_STEPS), float(record["meta"]["time"]) / 1000
            values = {str(name): _number(value) for name, value in record["values"].items() if name not in self._own}
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            return
        metrics = {name: value for name, value in values.items() if value is not None}
        if not metrics:
            return
        if step <= 0:  # logged without a count, as the later releases' tests are: it belongs to what was trained last
            step = max(1, self.step)
        self._write_sent(group, step, metrics, t=t)

    def _write_sent(self, group: Group, step: int, metrics: dict[str, float], *, t: float) -> None:
        if len(self._events.sent) < MOST_SENT:
            self._events.sent |= {(group, name) for name in metrics}
        self._write(group, step, metrics, t=t)

    def _write(self, group: Group, step: int, metrics: dict[str, float], *, t: float) -> None:
        now = time.time()
        with self._lock:
            self._steps[group] = max(self._steps[group], step)
            self._latest |= {f"{group} {name}": value for name, value in metrics.items()}
            self._figures_at = time.monotonic()
            self._writer.write(journal.Logged(group, step, metrics), t=t if 0 < t <= now + 60 else now)

    def _flush(self) -> None:
        """The host is told by whoever calls `write_to_journal` next."""
        with suppress(OSError):  # a full disk: the writer keeps it
            self._writer.flush()
        with self._lock:
            self._sent = True


def _offsets(kept: dict[Any, Any]) -> dict[str, int]:
    return {str(path): max(0, int(offset)) for path, offset in kept.items()}


def _group(label: Any) -> Group:
    return "train" if str(label).lower().startswith("train") else "test"


def _number(value: Any) -> float | None:
    if not isinstance(value, dict) or value.get("type") not in _NUMBERS:
        return None
    return float(value["value"])
