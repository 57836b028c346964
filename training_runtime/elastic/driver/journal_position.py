"""How far a run's journal went when its engine checkpoint was written, and all that the lines before that place say, in a file beside the
checkpoint: whoever goes on from there need not read them again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

from training_runtime import journal

PLACE = ".journal.json"  # beside the engine checkpoint


@dataclass(frozen=True)
class JournalPosition:
    """`steps`: the last step, generation, step that was trained and step that was tested. `epoch`: its number, the sums of its metrics and
    the samples in them. `files_from`: files of steps before this one are in the journal, whoever says so again."""

    steps: tuple[int, int, int, int]
    metrics: dict[str, float]
    epoch: tuple[int, dict[str, float], float]
    files: set[journal.Checkpoint]
    files_from: int
    exactness: journal.Exactness
    digests: dict[int, str]


def path_of(journal_path: Path) -> Path:
    return journal_path.parent / "checkpoint" / PLACE


def write(journal_path: Path, offset: int, place: JournalPosition) -> None:
    """Of the journal up to `offset`. A convenience, so it costs nothing where the disk is full."""
    content = {
        "offset": offset,
        "mark": journal.mark_at(journal_path, offset),
        "steps": place.steps,
        "metrics": place.metrics,
        "epoch": place.epoch,
        "files": [dataclasses.asdict(file) for file in place.files],
        "exactness": dataclasses.asdict(place.exactness),
        "digests": list(place.digests.items()),
        "files_from": place.files_from,
    }
    beside = path_of(journal_path).with_name(f"{PLACE}.new")
    with contextlib.suppress(OSError):
        beside.write_text(json.dumps(content))
        beside.replace(path_of(journal_path))


def read(journal_path: Path) -> tuple[int, JournalPosition] | None:
    """The offset of the place that was kept, and what the lines before it say; None where none was, or of another journal."""
    try:
        raw = json.loads(path_of(journal_path).read_bytes())
        offset, mark = int(raw["offset"]), str(raw["mark"])
        if not mark or journal.mark_at(journal_path, offset) != mark:
            return None
        last_step, last_generation, trained_step, last_test = (int(number) for number in raw["steps"])
        epoch, sums, samples = raw["epoch"]
        return offset, JournalPosition(
            steps=(last_step, last_generation, trained_step, last_test),
            metrics=dict(raw["metrics"]),
            epoch=(int(epoch), dict(sums), float(samples)),
            files={journal.Checkpoint(**{**file, "paths": tuple(file["paths"])}) for file in raw["files"]},
            files_from=int(raw["files_from"]),
            exactness=journal.Exactness(tuple(raw["exactness"].pop("reasons")), **raw["exactness"]),
            digests={int(at): str(digest) for at, digest in raw["digests"]},
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
