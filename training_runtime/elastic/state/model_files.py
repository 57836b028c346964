"""Model files for people: the weights of an epoch and of the end, what parts of the job write besides, and an example for an export."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from training_runtime import storage
from training_runtime.elastic.job import Job
from training_runtime.elastic.state import transfer
from training_runtime.elastic.state.durable import write, write_by_path

EXAMPLES = 3  # samples in the example that an export of the model is made from


def on_cpu(t: torch.Tensor) -> torch.Tensor:
    """A copy on the CPU: torch.save writes whole storages, and a tensor may be a small part of a large one."""
    return t.detach().cpu().clone()


def without_numpy(value: Any) -> Any:
    """Its scalars as Python's: one that numpy has computed would keep torch.load from reading the file as it does by default."""
    if isinstance(value, dict):
        return type(value)((k, without_numpy(v)) for k, v in value.items())
    if type(value) in (list, tuple):
        return type(value)(without_numpy(v) for v in value)
    return value.item() if type(value).__module__ == "numpy" and getattr(value, "shape", None) == () else value


def contents(job: Job, name: str) -> dict[str, Any]:
    """What `model/train/NAME.pth` and `NAME_optimizer_state.pth` are to hold, by path relative to the result folder: state dicts."""
    path = f"model/train/{name}"
    return {f"{path}.pth": job.model.state_dict(), f"{path}_optimizer_state.pth": job.optimizer.state_dict()}


def save(result_dir: Path, relative: str, held: Any) -> int:
    """Write one of them, whose tensors are on the CPU and a storage of their own each; its size in bytes."""
    return write(result_dir / relative, lambda file: torch.save(held, file))


def save_others(job: Job, name: str, warn: Callable[[str], None]) -> tuple[tuple[str, ...], int]:
    """What files the parts of the job have besides, of which one that cannot be written is warned of. Relative paths, and bytes in all."""
    paths, size = [], 0
    for ending, save in job.components.files.items():
        relative = f"model/train/{name}{ending}"
        try:
            with job.components.sync_script_objects():
                size += write_by_path(job.result_dir / relative, save)
        except Exception as error:  # what becomes of the script's own classes there is not ours to know
            if (found := storage.cause(error)) is not None:
                raise OSError(found.errno, found.strerror, relative) from error
            warn(f"{relative} was not written: {type(error).__name__}: {error}. The .pth files are there all the same")
        else:
            paths.append(relative)
    return tuple(paths), size


def final_path(result_dir: Path) -> Path:
    return result_dir / "model" / "train" / "model_epoch_final.pth"


def stopped_path(result_dir: Path) -> Path:
    return final_path(result_dir).with_name("model_stopped.pth")


def onnx_path(result_dir: Path) -> Path:
    return final_path(result_dir).with_suffix(".onnx")


def example_path(result_dir: Path) -> Path:
    return result_dir / "checkpoint" / "example.pt"


def save_example(job: Job, inputs: Any) -> None:
    """Inputs of EXAMPLES samples, for who exports the model: the driver has no dataset."""
    held = transfer.replace(inputs, on_cpu)
    write(example_path(job.result_dir), lambda file: torch.save(held, file))


def load_final(model: nn.Module, result_dir: Path) -> None:
    """Put the final weights into the driver's model, so that a script can go on with it after train(). The run's own worker has written
    them, and what a module adds to its state may be anything."""
    model.load_state_dict(torch.load(final_path(result_dir), weights_only=False, map_location="cpu"))
