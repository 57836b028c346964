"""What the trainings of a run have saved, in the order in which its script begins them: a later process of the run, which runs the script
from its first line, finds for each of them where it was.

The files lie in the run's results, which its script may write to, and are believed by nobody else. All workers of a start read what those
before them have left as they begin a training; the first of them writes, when all have begun it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from training_runtime.elastic.state import durable

FILE = "checkpoint/trainings/{}.json"  # in RESULT_DIR, by number: a script may have thousands
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

    def __init__(self, number: int, path: Path, *, writes: bool) -> None:
        self.number, self._path, self._writes = number, path, writes
        self._known = _read(path)

    def last(self) -> Saved | None:
        """What to go on from: the newest that is there as it was written."""
        return next((each for each in reversed(self._known) if each.is_there), None)

    def note(self, path: Path, mark: Path, *, step: int, samples: int = 0, is_due: bool = False) -> None:
        """A checkpoint is there, whole. By the first worker; of a disk that takes nothing more only the script hears."""
        if not self._writes:
            return
        with suppress(OSError):
            found = mark.stat()
            saved = Saved(str(path.absolute()), str(mark.absolute()), found.st_size, found.st_mtime_ns, step, samples, is_due)
            self._known[:] = [*(each for each in self._known if each.mark != saved.mark), saved][-MOST_SAVED:]
            text = json.dumps([asdict(each) for each in self._known]).encode()
            durable.write(self._path, lambda file: file.write(text))

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
        self._results = Path(environment["RESULT_DIR"])
        self._writes = environment.get("RANK", "0") == "0"
        self._begun = 0

    def begin(self) -> Training:
        self._begun += 1
        return Training(self._begun, self._results / FILE.format(self._begun), writes=self._writes)


def _read(path: Path) -> list[Saved]:
    """Nothing of a file that is not as it was written: then the training begins at its start."""
    try:
        found = [Saved(**each) for each in json.loads(path.read_bytes())]
    except (OSError, ValueError, TypeError, RecursionError):
        return []
    kinds = {each.name: type(getattr(EXAMPLE, each.name)) for each in fields(Saved)}
    return found if all(type(getattr(one, name)) is kind for one in found for name, kind in kinds.items()) else []


EXAMPLE = Saved("", "", 0, 0, 0)
