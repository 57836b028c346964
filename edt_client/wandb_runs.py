"""Runs of Weights & Biases as they lie where they ran: `wandb/run-*` and `wandb/offline-run-*`, each with its log and its files.

The library reads its own logs no more (its core, a program, does), so they are read by what the studio has for runs that train."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

from edt_client.errors import ClientError
from edt_client.importing import MOST_FILE_BYTES, Files, Point, RecordedRun, point, span

HEAD = b":W&B"
QUIET = dt.timedelta(minutes=15)  # after which a log without an end is that of a run that was cut off


def wandb_runs(folder: Path) -> Iterator[RecordedRun]:
    """Below a folder, the oldest first. One that was resumed has a folder for each time, and is one run."""
    logs = sorted(path for path in folder.rglob("run-*.wandb") if path.is_file() and _beginning(path, len(HEAD)) == HEAD)
    if not logs:
        raise ClientError(f"{folder} has no logs of Weights & Biases (run-*.wandb): name the folder wandb beside the script.")
    pieces: dict[str, list[Path]] = {}
    for path in logs:
        pieces.setdefault(path.name, []).append(path)
    for name, paths in pieces.items():
        yield _one_run(name.removeprefix("run-").removesuffix(".wandb"), paths)


def _one_run(named: str, paths: list[Path]) -> RecordedRun:
    from training_runtime.elastic.script_logs import wandb_logs  # with this in one package; nobody else needs it

    points: list[Point] = []
    parameters: dict[str, str] = {}
    times: list[float] = []
    for path in paths:
        run, chunk = wandb_logs.read_whole(_beginning(path, MOST_FILE_BYTES))
        points += [point(each.tag, each.step, each.value, each.t) for each in chunk.scalars]
        for said in chunk.parameters:
            parameters |= said
        times += [run.started_at, *(each.t for each in chunk.scalars)]
    points.sort(key=lambda each: (each["name"], each["step"]))
    tags = {"wandb run": run.id or named, "wandb project": run.project, "wandb tags": ", ".join(run.tags), "wandb notes": run.notes}
    state = _state(run.exit_code, paths[-1])
    kept = {name: value for name, value in tags.items() if value}
    files = _files(paths)
    key = f"wandb {run.project} {run.id or named}"
    return RecordedRun(key, run.name or run.id or named, state, *span(times), points, parameters, kept, lambda: nullcontext(files))


def _beginning(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        return file.read(most)


def _state(exit_code: int | None, log: Path) -> str | None:
    if exit_code is not None:
        return "failed" if exit_code else "completed"
    written = dt.datetime.fromtimestamp(log.stat().st_mtime, dt.UTC)
    return "failed" if dt.datetime.now(dt.UTC) - written > QUIET else None


def _files(logs: list[Path]) -> Files:
    """What the run has saved, by its path; of one that was resumed the newest. Links lead to where the script had it."""
    found: dict[str, Path] = {}
    for log in logs:
        top = log.parent / "files"
        for at, _, names in os.walk(top):
            for name in sorted(names):
                path = Path(at, name)
                if path.is_file():
                    found[path.relative_to(top).as_posix()] = path
    return found
