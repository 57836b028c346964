"""Where the payload of a notebook arrives: the process that trains reads it, and calls FabricModel and train() as the notebook did.

In a run of the studio that is the run's own boxed process, on a machine without one a process that the notebook has started. Nothing else
reads a payload.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from training_runtime.elastic.driver.outcome import TrainingFailed
from training_runtime.elastic.processes import fork_server_spawned, process_handles
from training_runtime.elastic.state import checkpoint
from training_runtime.errors import UserError
from training_runtime.fabric.model import FabricModel
from training_runtime.fabric.notebook.packing import ABOUT, PARENT, PAYLOAD, VERSION

OTHER_PYTHON = (
    "the notebook runs Python {} and this machine Python {}: functions travel as compiled code, which only the same version reads. Choose "
    "a kernel with Python {} for the notebook"
)
OTHER_VERSION = "the notebook's EDT Studio is of another version than this one: bring them to the same version"


def train(script: str) -> None:
    """Beside `script` lies the payload."""
    parent = int(os.environ.get(PARENT) or 0)
    if parent and fork_server_spawned.current() is None:
        process_handles.die_with_parent(parent)
    content = read(Path(script).parent)
    made, called = content["made"], content["called"]
    if parent and made["driver_logger_callback"] is None:
        made["driver_logger_callback"] = Silent()
    fabric = FabricModel(**made)
    fabric.when_stopped = checkpoint.save_stopped
    try:
        fabric.train(**called)
    except KeyboardInterrupt:
        sys.exit(130)
    except TrainingFailed as failed:
        if not parent:
            raise
        sys.exit(str(failed))


def read(folder: Path) -> dict[str, Any]:
    """What was packed, where this process can be what it was packed for. Runs code: that of the notebook's user."""
    about = json.loads((folder / ABOUT).read_bytes())
    check(about, python=platform.python_version())
    sys.path += [each for each in about["python_path"] if each not in sys.path]
    try:
        content: dict[str, Any] = torch.load(folder / PAYLOAD, map_location="cpu", weights_only=False)
    except AttributeError as error:
        raise UserError(f"the payload of the notebook cannot be read here: {error}. {versions(about)}") from error
    vars(sys.modules["__main__"]).update(content["definitions"])
    for scheduler in content["kept"]:
        count_steps(scheduler.optimizer)
    return content


def count_steps(optimizer: torch.optim.Optimizer) -> None:
    """As torch has it for an optimizer with a scheduler, which warns where it cannot see that this one has stepped."""
    if "step" in vars(optimizer):
        return
    inner = optimizer.step

    @functools.wraps(inner)
    def step(*arguments: Any, **named: Any) -> Any:
        optimizer._opt_called = True  # type: ignore[attr-defined]
        return inner(*arguments, **named)

    step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
    optimizer.step = step  # type: ignore[method-assign]


def check(about: Mapping[str, Any], *, python: str) -> None:
    """UserError where reading the payload cannot go well."""
    if about.get("version") != VERSION:
        raise UserError(OTHER_VERSION)
    theirs, ours = (".".join(each.split(".")[:2]) for each in (str(about["python"]), python))
    if theirs != ours:
        raise UserError(OTHER_PYTHON.format(theirs, ours, ours))


def versions(about: Mapping[str, Any]) -> str:
    """A sentence with torch and Python of the notebook (`about`) and of this machine."""
    ours = f"{torch.__version__} and {platform.python_version()}"
    return f"The notebook has torch {about['torch']} and Python {about['python']}, this machine {ours}"


class Silent:
    """A driver logger in place of the one that prints a line a second: the notebook has a plot."""

    def log_train_metrics(self, metrics: dict[str, float], iteration: int, epoch: int, workers: int) -> None:
        """Prints nothing."""
