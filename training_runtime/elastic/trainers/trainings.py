"""What the trainings of a run have saved, in the order in which its script begins them: a later process of the run, which runs the script
from its first line, finds for each of them where it was.

The file lies in the run's results, which its script may write to, and is believed by nobody else. All workers of a start read what those
before them have left, once; the first of them writes.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path

FILE = "checkpoint/trainers.json"  # in RESULT_DIR
MOST_SAVED = 20  # of one training; libraries delete the older ones


@dataclass(frozen=True)
class Saved:
    """A checkpoint. path: its file or folder; mark: the file that is written last, with its size and time, by which another one in its
    place is told from it; step: of the training; samples: of such a step, by all workers, or the number of these where nothing is known
    of their batches; is_due: the evaluation at that step was left out."""

    path: str
    mark: str
    size: int
    time_ns: int
    step: int
    samples: int = 0
    is_due: bool = False

    @property
    def is_there(self) -> bool:
        with suppress(OSError):
            found = Path(self.mark).stat()
            return (found.st_size, found.st_mtime_ns) == (self.size, self.time_ns)
        return False


class Training:
    """One training of the script's. `number` counts from 1."""

    def __init__(self, number: int, known: list[Saved], of: Trainings) -> None:
        self.number, self._known, self._of = number, known, of

    def last(self) -> Saved | None:
        """What to go on from: the newest that is there as it was written."""
        return next((each for each in reversed(self._known) if each.is_there), None)

    def note(self, path: Path, mark: Path, *, step: int, samples: int = 0, is_due: bool = False) -> None:
        """A checkpoint is there, whole. By the first worker; of a disk that takes nothing more only the script hears."""
        if not self._of.writes:
            return
        with suppress(OSError):
            found = mark.stat()
            saved = Saved(str(path.absolute()), str(mark.absolute()), found.st_size, found.st_mtime_ns, step, samples, is_due)
            self._known[:] = [*(each for each in self._known if each.mark != saved.mark), saved][-MOST_SAVED:]
            self._of.write()

    def keep_last(self, folder: Path) -> None:
        """Of what is in this folder, which is ours, only what `last` is."""
        last = self.last()
        if not self._of.writes or last is None or Path(last.path).parent != folder.absolute():
            return
        with suppress(OSError):
            for each in [each for each in folder.iterdir() if each.name != Path(last.path).name]:
                shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()


class Trainings:
    def __init__(self, environment: Mapping[str, str]) -> None:
        """Of the run whose process this is, as its environment says."""
        self._path = Path(environment["RESULT_DIR"], FILE)
        self.writes = environment.get("RANK", "0") == "0"
        self._known = _read(self._path)
        self._begun = 0

    def begin(self) -> Training:
        self._begun += 1
        self._known += [[] for _ in range(self._begun - len(self._known))]
        return Training(self._begun, self._known[self._begun - 1], self)

    def write(self) -> None:
        """At once and whole, or not at all."""
        text = json.dumps([[asdict(each) for each in training] for training in self._known])
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=self._path.parent, prefix=".trainers-", delete=False) as draft:
            draft.write(text)
        Path(draft.name).replace(self._path)


def _read(path: Path) -> list[list[Saved]]:
    """Nothing of a file that is not as it was written: then the training begins at its start."""
    try:
        found = [[Saved(**each) for each in training] for training in json.loads(path.read_bytes())]
        kinds = {each.name: type(getattr(EXAMPLE, each.name)) for each in fields(Saved)}
        return found if all(type(getattr(one, name)) is kind for each in found for one in each for name, kind in kinds.items()) else []
    except (OSError, ValueError, TypeError, RecursionError):
        return []


EXAMPLE = Saved("", "", 0, 0, 0)
