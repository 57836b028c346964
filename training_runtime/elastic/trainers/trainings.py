"""What the trainings of a run have saved: a later process of the run, which runs the script from its first line, finds for each of them
where it was.

The files lie in the run's results, which its script may write to, and are believed by nobody else. All workers of a start read what those
before them have left as they begin their first training; the first of them writes, when all have begun it. On another machine the results
may lie elsewhere: what is below them is found there, and so are the paths that a library has written into its checkpoints, by `moved`.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from training_runtime.elastic.state import durable
from training_runtime.elastic.trainers import meeting
from training_runtime.elastic.trainers.identity import Identity

FOLDER = "checkpoint/trainings"  # in RESULT_DIR: a file for each, by number; a script may have thousands
MOST_SAVED = 20  # of one training; libraries delete the older ones


@dataclass(frozen=True)
class Saved:
    """A checkpoint. path: its file or folder; mark: the file that is written last, with its size and time, by which another one in its
    place is told from it; step: of the training; samples: of such a step, by all workers, or the number of these where nothing is known
    of their batches; is_due: the evaluation at that step was left out; places: where else the training writes, as its trainer has it; root:
    RESULT_DIR then, "" where an older version did not say."""

    path: str
    mark: str
    size: int
    time_ns: int
    step: int
    samples: int = 0
    is_due: bool = False
    places: dict[str, Any] = field(default_factory=dict)
    root: str = ""

    @property
    def is_there(self) -> bool:
        with suppress(OSError):
            found = Path(self.mark).stat()
            return (found.st_size, found.st_mtime_ns) == (self.size, self.time_ns)
        return False


@dataclass
class Record:
    """Of one training. lines, loops: which of the script's it is, see `identity`; "" in files of a version that went by the order alone."""

    lines: str
    loops: str
    saved: list[Saved] = field(default_factory=list)


class Training:
    """One training of the script's. `number`: of its files; `results`: RESULT_DIR."""

    def __init__(self, number: int, results: Path, record: Record, *, writes: bool) -> None:
        self.number, self._results, self._record, self._writes = number, results, record, writes

    def last(self) -> Saved | None:
        """What to go on from: the newest that is there as it was written."""
        here = (_here(each, self._results) for each in reversed(self._record.saved))
        return next((each for each in here if each.is_there), None)

    def note(
        self, path: Path, mark: Path, *, step: int, places: dict[str, Any] | None = None, samples: int = 0, is_due: bool = False
    ) -> None:
        """A checkpoint is there, whole. By the first worker; of a disk that takes nothing more only the script hears."""
        if not self._writes:
            return
        with suppress(OSError):
            found = mark.stat()
            names, places, root = (str(path.absolute()), str(mark.absolute())), places or {}, str(self._results.absolute())
            saved = Saved(*names, found.st_size, found.st_mtime_ns, step, samples, is_due, places, root)
            known = [each for each in self._record.saved if _here(each, self._results).mark != saved.mark]
            self._record.saved = [*known, saved][-MOST_SAVED:]
            text = json.dumps(asdict(self._record)).encode()
            durable.write(self._results / FOLDER / f"{self.number}.json", lambda file: file.write(text))

    def keep_last(self, folder: Path) -> None:
        """Of what is in this folder, which is ours, only what `last` is."""
        last = self.last()
        if not self._writes or last is None or Path(last.path).parent != folder.absolute():
            return
        with suppress(OSError):
            for each in [each for each in folder.iterdir() if each.name != Path(last.path).name]:
                shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()


class Trainings:
    def __init__(self, environment: Mapping[str, str]) -> None:
        """Of the run whose process this is, as its environment says."""
        self._environment = environment
        self._results = Path(environment["RESULT_DIR"])
        self._writes = environment.get("RANK", "0") == "0"
        self._records: dict[int, Record] | None = None
        self._begun = Counter[str]()  # by their lines
        self._taken = set[int]()
        self._last = 0

    def begin(self, identity: Identity, *, goes_on: bool = False) -> Training:
        """The next one; all workers agree on its number. `goes_on`: by a checkpoint that the script names."""
        if self._records is None:
            self._records = _read(self._results)
            self._last = max(self._records, default=0)
        place = self._begun.total() + 1
        number = meeting.agreed(self._environment, f"training/{place}", self._number(identity, place, goes_on=goes_on))
        self._begun[identity.lines] += 1
        self._taken.add(number)
        self._last = max(self._last, number)
        record = Record(identity.lines, identity.loops, self._records[number].saved if number in self._records else [])
        return Training(number, self._results, record, writes=self._writes)

    def _number(self, identity: Identity, place: int, *, goes_on: bool) -> int:
        """Of the one that was saved as this one; of several that cannot be told apart, in their order. Of one that goes on at another line:
        of what was saved last."""
        records = self._records or {}
        same = sorted(number for number, record in records.items() if record.lines == identity.lines)
        if self._begun[identity.lines] < len(same):
            return same[self._begun[identity.lines]]
        if place in records and not records[place].lines:
            return place
        left = {number: record for number, record in records.items() if goes_on and record.saved and number not in self._taken}
        alike = [number for number, record in left.items() if record.loops == identity.loops]
        return max(alike, key=lambda number: left[number].saved[-1].time_ns, default=self._last + 1)


def moved(value: Any, saved: Saved, environment: Mapping[str, str]) -> Any:
    """What was saved with it, where paths below RESULT_DIR are those of this machine."""
    return _moved(value, saved.root, _root(environment)) if is_moved(saved, environment) else value


def is_moved(saved: Saved, environment: Mapping[str, str]) -> bool:
    return saved.root not in ("", _root(environment))


def _root(environment: Mapping[str, str]) -> str:
    return str(Path(environment["RESULT_DIR"]).absolute())


def _moved(value: Any, before: str, now: str) -> Any:
    if isinstance(value, str):
        return now + value.removeprefix(before) if value == before or value.startswith(before + os.sep) else value
    if isinstance(value, dict):
        return {_moved(key, before, now): _moved(each, before, now) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_moved(each, before, now) for each in value)
    return value


def _read(results: Path) -> dict[int, Record]:
    """By number. Nothing of a file that is not as it was written: then the training begins at its start."""
    found = dict[int, Record]()
    for path in (results / FOLDER).glob("*.json"):
        with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
            said = json.loads(path.read_bytes())
            lines, loops, saved = ("", "", said) if isinstance(said, list) else (said["lines"], said["loops"], said["saved"])
            record = Record(str(lines), str(loops), [Saved(**each) for each in saved])
            if all(_is_whole(each) for each in record.saved):
                found[int(path.stem)] = record
    return found


def _here(saved: Saved, results: Path) -> Saved:
    """As it is found on this machine; what is written down of it stays, as the checkpoint itself does."""
    environment = {"RESULT_DIR": str(results)}
    path, mark, places = moved((saved.path, saved.mark, saved.places), saved, environment)
    return replace(saved, path=path, mark=mark, places=places)


def _is_whole(saved: Saved) -> bool:
    return all(type(getattr(saved, each.name)) is type(getattr(EXAMPLE, each.name)) for each in fields(Saved))


EXAMPLE = Saved("", "", 0, 0, 0)
