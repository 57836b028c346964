"""Files of a run: model files for people, the engine checkpoint to go on from. Written beside, fsynced, renamed: a reader never sees
half a file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from training_runtime import storage
from training_runtime.elastic import heartbeat, state
from training_runtime.elastic.job import Job
from training_runtime.elastic.sampler import Shape
from training_runtime.errors import UserError

VERSION = 1
EXAMPLES = 3  # samples in the example that an export of the model is made from


def engine_path(result_dir: Path) -> Path:
    return result_dir / "checkpoint" / "engine.pt"


def write(path: Path, save: Callable[[Any], None]) -> int:
    """Let `save` write a file object, then put it in place; its size in bytes. OSError where the storage does not take it: what was there
    before stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.uname().nodename}.{os.getpid()}")  # machines may share the folder
    try:
        with open(beside, "wb") as file:
            save(heartbeat.Beating(file))
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        beside.replace(path)
    except RuntimeError as error:
        if (found := storage.cause(error)) is None:
            raise
        raise OSError(found.errno, found.strerror, str(path)) from error  # torch.save makes one of its own of it
    finally:
        beside.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return size


def age_s(result_dir: Path) -> float:
    """How long ago the engine checkpoint was written, by the clock of this machine; 0 where there is none."""
    try:
        return max(0.0, time.time() - engine_path(result_dir).stat().st_mtime)
    except OSError:
        return 0.0


def _own(t: torch.Tensor) -> torch.Tensor:
    """A copy on the CPU: torch.save writes whole storages, and a tensor may be a small part of a large one."""
    return t.detach().cpu().clone()


def save_model(job: Job, name: str) -> tuple[tuple[str, ...], int]:
    """`model/train/NAME.pth` and `NAME_optimizer_state.pth`: state dicts on the CPU. Paths relative to the result folder, and bytes
    in all."""
    paths, size = [], 0
    for suffix, content in (("", job.model.state_dict()), ("_optimizer_state", job.optimizer.state_dict())):
        relative = f"model/train/{name}{suffix}.pth"
        held = state.replace(content, _own)
        size += write(job.result_dir / relative, lambda file, held=held: torch.save(held, file))  # type: ignore[misc]
        paths.append(relative)
    return tuple(paths), size


def save_engine(job: Job, shape: Shape, tick: int) -> tuple[tuple[str, ...], int]:
    """All that is needed to go on with the unit after `tick`, bit for bit."""
    tree = state.capture(job.model, job.optimizer, job.stateful)
    content = {"version": VERSION, "tick": tick, "shape": vars_of(shape), "state": state.replace(tree, _own)}
    path = engine_path(job.result_dir)
    size = write(path, lambda file: torch.save(content, file))
    return (str(path.relative_to(job.result_dir)),), size


def load_engine(job: Job, shape: Shape) -> int:
    """Restore the engine checkpoint into the job's objects; its tick. UserError where it belongs to another job."""
    content = torch.load(engine_path(job.result_dir), weights_only=True, map_location="cpu")
    check(content, shape)
    state.restore(content["state"], state.InMemory(), job.model, job.optimizer, job.stateful)
    return int(content["tick"])


def peek(job: Job, shape: Shape) -> int | None:
    """The tick of the engine checkpoint, None where there is none. Reads no tensor into memory."""
    path = engine_path(job.result_dir)
    if not path.exists():
        return None
    content = torch.load(path, weights_only=True, map_location="cpu", mmap=True)
    check(content, shape)
    return int(content["tick"])


def check(content: dict[str, Any], shape: Shape) -> None:
    saved, now = content["shape"], vars_of(shape)
    for name in ("samples", "batch_size", "engines", "seed"):
        if saved[name] != now[name]:
            raise UserError(
                f"the checkpoint in this result folder was made with {name} {saved[name]}, not {now[name]}: start a new run instead"
            )


def vars_of(shape: Shape) -> dict[str, int]:
    return {name: int(getattr(shape, name)) for name in ("samples", "test_samples", "batch_size", "engines", "epochs", "seed")}


def final_path(result_dir: Path) -> Path:
    return result_dir / "model" / "train" / "model_epoch_final.pth"


def onnx_path(result_dir: Path) -> Path:
    return final_path(result_dir).with_suffix(".onnx")


def example_path(result_dir: Path) -> Path:
    return result_dir / "checkpoint" / "example.pt"


def save_example(job: Job, inputs: Any) -> None:
    """Inputs of EXAMPLES samples, for who exports the model: the driver has no dataset."""
    held = state.replace(inputs, _own)
    write(example_path(job.result_dir), lambda file: torch.save(held, file))


def load_final(model: nn.Module, result_dir: Path) -> None:
    """Put the final weights into the driver's model, so that a script can go on with it after train()."""
    model.load_state_dict(torch.load(final_path(result_dir), weights_only=True, map_location="cpu"))
