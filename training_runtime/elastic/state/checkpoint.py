"""The engine checkpoint, which a run goes on from. Model files for people are in `model_files`.

An engine checkpoint is a packed state (see `state`) with a line of JSON behind it: which position it is, of what job, and digests of all
that is in the file. It is read back before it takes the place of the last one, which is kept as long as the new one is the newest: where
that is damaged later, the run goes on from the one before. A state that another run has left is taken too, but nothing in it is called (see
`pickling`).
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from training_runtime.elastic.data.order import MOST_LISTED
from training_runtime.elastic.data.sampler import RunPlan
from training_runtime.elastic.job import Job
from training_runtime.elastic.state import capture, digest, transfer
from training_runtime.elastic.state.durable import write
from training_runtime.elastic.state.model_files import on_cpu, stopped_path, without_numpy
from training_runtime.errors import UserError

VERSION = 2
_MAGIC = b"EDTSTATE"
_LENGTH = 8  # bytes of the length of the line at the end
_LINE_BYTES = 1 << 16  # at most


CANNOT_CONTINUE = "the checkpoint of the run to continue cannot be used: {} {}. Run it again from the start instead"


class Damaged(Exception):
    """The file is not what was written. Says what is wrong with it."""


@dataclass(frozen=True)
class CheckpointFile:
    """A state on the disk: `foreign` where another run has left it."""

    path: Path
    position: int
    foreign: bool


@dataclass(frozen=True)
class CheckpointLookup:
    """The newest state that is whole, None where there is none. `damaged`: what is wrong with those that are newer, in words."""

    newest: CheckpointFile | None
    damaged: tuple[str, ...] = ()


def engine_path(result_dir: Path) -> Path:
    return result_dir / "checkpoint" / "engine.pt"


def previous_path(result_dir: Path) -> Path:
    return result_dir / "checkpoint" / "engine.previous.pt"


def inherited_path(result_dir: Path) -> Path:
    """Where the node host puts the state of the run that this one continues."""
    return result_dir / "checkpoint" / "inherited.pt"


def damaged_path(result_dir: Path) -> Path:
    return result_dir / "checkpoint" / "engine.damaged.pt"


def _candidates(result_dir: Path) -> list[tuple[Path, bool]]:
    """The newest first, and whether it is another run's."""
    found = [(engine_path(result_dir), False), (previous_path(result_dir), False), (inherited_path(result_dir), True)]
    return [(path, foreign) for path, foreign in found if path.exists()]


def age_s(result_dir: Path) -> float:
    """How long ago the engine checkpoint was written, by the clock of this machine; 0 where there is none."""
    try:
        return max(0.0, time.time() - engine_path(result_dir).stat().st_mtime)
    except OSError:
        return 0.0


def save_engine(job: Job, shape: RunPlan, position: int) -> tuple[tuple[str, ...], int]:
    """All that is needed to go on with the unit after `position`, bit for bit. By one process at a time (see
    `emergency_checkpoint.one_at_a_time`)."""
    live = job.live
    tree = capture.capture(live)

    def save(file: Any) -> None:
        transfer.pack(file.fileno(), tree, 0, 1)
        _seal(file, {"version": VERSION, "tick": position, "shape": vars_of(shape, wide_sums=job.config.wide_sums)})

    def check(file: Any) -> None:
        _verify(file.fileno(), _read_line(file.fileno()))
        capture.read_back(file.fileno(), tree, live)

    path = engine_path(job.result_dir)
    keep_previous(job.result_dir)
    size = write(path, save, check=check)
    return (str(path.relative_to(job.result_dir)),), size


def write_snapshot(result_dir: Path, position: int, shape: dict[str, int], state: memoryview) -> tuple[tuple[str, ...], int]:
    """The same of a packed state that was read back when it was taken: what is on the disk is compared with it bit by bit. One that is
    further stays."""
    path = engine_path(result_dir)
    paths = (str(path.relative_to(result_dir)),)
    if (position_of(path) or 0) > position:
        return paths, path.stat().st_size

    def save(file: Any) -> None:
        file.write(state)
        file.flush()
        _seal(file, {"version": VERSION, "tick": position, "shape": shape})

    keep_previous(result_dir)
    return paths, write(path, save, check=lambda file: _verify(file.fileno(), _read_line(file.fileno())))


def position_of(path: Path) -> int | None:
    """Of a state on the disk; None where there is none that is whole, as far as its end and its index show."""
    if not path.exists() or _trouble(path) is not None:
        return None
    with _opened(path) as fd:
        return _position(fd)


def keep_previous(result_dir: Path) -> None:
    """The last state will be the one before. It has two names until the next one takes its first; where there are no such links, none is
    kept. One that is damaged is not worth the place of the one before it."""
    path, previous = engine_path(result_dir), previous_path(result_dir)
    if path.exists() and _trouble(path) is None:
        previous.unlink(missing_ok=True)
        with suppress(OSError):
            os.link(path, previous)


def load_engine(job: Job, shape: RunPlan, position: int, warn: Callable[[str], None]) -> bool:
    """Restore the engine checkpoint of `position` into the job's objects; False where there is none, or none that is whole. UserError where
    it belongs to another job, or holds what is not taken from another run."""
    for path, foreign in _candidates(job.result_dir):
        with _opened(path) as fd:
            if _position(fd) != position:
                continue
            line = _read_line(fd)
            check(line, shape)
            try:
                _verify(fd, line)
            except Damaged as damaged:
                if foreign:
                    raise UserError(CANNOT_CONTINUE.format(path.name, damaged)) from None
                aside = damaged_path(job.result_dir)
                path.replace(aside)  # nobody begins with it any more
                warn(f"{path.relative_to(job.result_dir)} {damaged}; it is {aside.name} now, the run goes on from the state before it")
                continue
            capture.restore(transfer.index_of(fd), transfer.Landing(fd, 0), job.live, foreign=foreign)
            return True
    return False


def load_last(job: Job, position: int) -> None:
    """Make the job's objects what a training that is over, at `position`, has left: the optimizer, and what has learnt beside the model.
    Raises what reading it raises; FileNotFoundError where there is no such state."""
    with _opened(engine_path(job.result_dir)) as fd:
        line = _read_line(fd)
        if int(line["tick"]) < position - 1:  # that of the last epoch's end is of before the position is counted on
            raise FileNotFoundError("the state that is on the disk is an earlier one")
        _verify(fd, line)
        capture.restore(transfer.index_of(fd), transfer.Landing(fd, 0), job.live)


def _position(fd: int) -> int | None:
    """None where the file does not tell; who looked for the newest state has said so."""
    try:
        return int(_read_line(fd)["tick"])
    except Damaged:
        return None


def find(job: Job, shape: RunPlan) -> CheckpointLookup:
    """The newest engine checkpoint. Reads no tensor. UserError where it belongs to another job, or where the state of the run to continue
    is damaged and there is no other."""
    damaged: list[str] = []
    for path, foreign in _candidates(job.result_dir):
        trouble = _trouble(path)
        if trouble is None:
            with _opened(path) as fd:
                line = _read_line(fd)
            check(line, shape)
            return CheckpointLookup(CheckpointFile(path, int(line["tick"]), foreign), tuple(damaged))
        damaged.append(f"{path.relative_to(job.result_dir)} {trouble}")
        if foreign:
            raise UserError(CANNOT_CONTINUE.format(path.name, trouble))
    return CheckpointLookup(None, tuple(damaged))


def peek(job: Job, shape: RunPlan) -> int | None:
    """The position of the newest engine checkpoint, None where there is none."""
    kept = find(job, shape).newest
    return kept.position if kept is not None else None


def exists(result_dir: Path) -> bool:
    """Whether there is any engine checkpoint."""
    return bool(_candidates(result_dir))


def check(line: dict[str, Any], shape: RunPlan) -> None:
    """UserError where it belongs to another job."""
    saved, now = line["shape"], vars_of(shape)
    for name in ("samples", "batch_size", "engines", "seed"):
        if saved[name] != now[name]:
            raise UserError(
                f"the checkpoint in this result folder was made with {name} {saved[name]}, not {now[name]}: start a new run instead"
            )
    if saved.get("order", 0) != now["order"]:
        raise UserError(
            "the checkpoint in this result folder was made by an earlier release, which went through so many samples in another order: "
            "start a new run instead, or let that release finish this one"
        )


def vars_of(shape: RunPlan, *, wide_sums: bool = True) -> dict[str, int]:
    """What a state belongs to. `order`: whether that of the samples is listed (0), or computed place by place (1). `wide_sums`: see
    `TrainConfig`."""
    names = ("samples", "test_samples", "batch_size", "engines", "epochs", "seed")
    return {name: int(getattr(shape, name)) for name in names} | {"order": int(shape.samples > MOST_LISTED), "wide_sums": int(wide_sums)}


def has_wide_sums(result_dir: Path) -> bool:
    """Whether a training that goes on from what is here adds gradients of half precision in float32: as the one did that left it, since
    its bits must not change on the way. A state that does not say so is of a release that did not. True where there is none."""
    for path, _ in _candidates(result_dir):
        if _trouble(path) is None:
            with _opened(path) as fd:
                return bool(_read_line(fd)["shape"].get("wide_sums"))
    return True


# -- what is behind a packed state


def _seal(file: Any, line: dict[str, Any]) -> None:
    """Write the line with the digests at the end."""
    fd = file.fileno()
    size = os.fstat(fd).st_size
    text = json.dumps({**line, "bytes": size, **_digests(fd, size)}).encode()
    transfer.write_all(fd, memoryview(text + len(text).to_bytes(_LENGTH, "little") + _MAGIC), size)


def _digests(fd: int, size: int) -> dict[str, str]:
    """Of the index, which is read as Python's objects, and of everything."""
    index = hashlib.blake2b(transfer.index_bytes(fd, size), digest_size=16).hexdigest()
    with mmap.mmap(fd, size, access=mmap.ACCESS_COPY) as mapped:  # torch wants memory that could be written
        held = torch.frombuffer(mapped, dtype=torch.uint8)
        whole = f"{digest.of([held]) & (1 << 64) - 1:016x}"
        del held  # before what it stands on is closed
    return {"index": index, "whole": whole}


def _read_line(fd: int) -> dict[str, Any]:
    """Raises Damaged where there is none."""
    size = os.fstat(fd).st_size
    end = os.pread(fd, _LENGTH + len(_MAGIC), max(0, size - _LENGTH - len(_MAGIC)))
    if not end.endswith(_MAGIC):
        raise Damaged("ends too early, or is no checkpoint of this version")
    length = int.from_bytes(end[:_LENGTH], "little")
    try:
        line: Any = json.loads(os.pread(fd, min(length, _LINE_BYTES), max(0, size - len(end) - length)))
        found = {name: line[name] for name in ("version", "tick", "shape", "bytes", "index", "whole")}
    except (ValueError, TypeError, KeyError, OSError):
        raise Damaged("does not say what it is") from None
    if found["version"] != VERSION or found["bytes"] != size - len(end) - length:
        raise Damaged("is of another version, or not as long as it was")
    return found


def _verify(fd: int, line: dict[str, Any]) -> None:
    """Raises Damaged where a bit of it has changed. One pass over the file."""
    if _digests(fd, line["bytes"]) != {name: line[name] for name in ("index", "whole")}:
        raise Damaged("has changed since it was written")


def _trouble(path: Path) -> str | None:
    """What is wrong with a file, as far as its end and its index show."""
    try:
        with _opened(path) as fd:
            line = _read_line(fd)
            if hashlib.blake2b(transfer.index_bytes(fd, line["bytes"]), digest_size=16).hexdigest() != line["index"]:
                return "has changed since it was written"
    except Damaged as damaged:
        return str(damaged)
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return None


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def save_stopped(job: Job) -> None:
    """The weights of the newest engine checkpoint, which nobody writes any more, as a file for people. Nothing where there is none."""
    if not engine_path(job.result_dir).exists():
        return
    live = job.live
    with _opened(engine_path(job.result_dir)) as fd, torch.no_grad():
        _verify(fd, _read_line(fd))
        tree, source = transfer.index_of(fd), transfer.Landing(fd, 0)
        for target, leaf in zip([*live.parameters(), *live.buffers()], [*tree["parameters"], *tree["buffers"]], strict=True):
            source.fill(target, leaf)
    held = without_numpy(transfer.replace(job.model.state_dict(), on_cpu))
    write(stopped_path(job.result_dir), lambda file: torch.save(held, file))
