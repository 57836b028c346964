"""What a fit of Keras has saved: one file of arrays and JSON, which is there whole or not at all, and never the architecture of a model, so
that any model can be saved.
"""

from __future__ import annotations

import json
import re
import sys
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from training_runtime.elastic.state import durable
from training_runtime.elastic.trainers import plain
from training_runtime.elastic.trainers.keras_data import Position

FOLDER = "checkpoint/keras-{}"  # in RESULT_DIR, by the number of the fit
_WRITTEN = re.compile(r"epoch-\d+-batch-\d+(?:-end)?\.npz")
MOST_FITS, MOST_BYTES = 20, 1 << 30  # of a script with more fits those before count as long as they are no larger together


@dataclass
class FitState:
    """epoch: which it is in, or comes next; is_complete: nothing is left to be done; step: batches in all; position: in the data; logs: of
    the last batch; stops: a callback has ended the training with it; callbacks: the name of each class, and what has changed in it;
    variables: of the model, its optimizer and Keras' own generator; metrics: theirs, in the midst of an epoch; fit: what it was called
    with, by which another one in its place is told from it."""

    epoch: int
    is_complete: bool
    step: int
    position: Position
    logs: dict[str, Any]
    stops: bool
    callbacks: list[tuple[str, dict[str, Any]]]
    variables: list[Any]
    metrics: list[Any]
    fit: str


def write(path: Path, state: FitState) -> None:
    arrays = list[Any]()
    text = json.dumps(plain.encode(vars(state) | {"position": vars(state.position)}, arrays))
    named = {f"array-{number}": each for number, each in enumerate(arrays)}
    durable.write(path, lambda file: np.savez(file, text=np.frombuffer(text.encode(), np.uint8), **named))


def read(path: Path) -> FitState:
    """ValueError, OSError and the like of a file that is not as it was written."""
    with np.load(path, allow_pickle=False) as file:
        arrays = [file[f"array-{number}"] for number in range(len(file.files) - 1)]
        values = plain.decode(json.loads(file["text"].tobytes()), arrays)
    if set(values) != {each.name for each in fields(FitState)}:
        raise ValueError("it is of another version")
    return FitState(**values | {"position": Position(**values["position"])})


def keep_newest(own: Path, number: int) -> None:
    """Of the fits before this one, as far as their ends are worth the room."""
    if number <= MOST_FITS:
        return
    size = 0
    for place, earlier in enumerate(range(number, 0, -1)):
        with suppress(OSError):
            each = own.parent / Path(FOLDER.format(earlier)).name
            files = [file for file in each.iterdir() if _WRITTEN.fullmatch(file.name)]
            size += sum(file.stat().st_size for file in files)
            if place >= MOST_FITS and size > MOST_BYTES:
                for file in files:
                    file.unlink()
                each.rmdir()  # unless a script has something of its own in there


def variables_of(model: Any) -> list[Any]:
    """All that a training changes: of the model with its random layers, of its optimizer, and of what draws without a seed."""
    keras = sys.modules["keras"]
    own = [*model.variables, *getattr(model.optimizer, "variables", [])]
    drawing = keras.src.backend.common.global_state.get_global_attribute("global_seed_generator")
    return [*own, *([drawing.state] if drawing is not None else []), *_buffers(model)]


def _buffers(model: Any) -> list[Any]:
    """Of torch's modules within a model of Keras' torch backend."""
    return [each for _, each in model.named_buffers()] if isinstance(model, torch.nn.Module) else []


def values_of(variables: list[Any]) -> list[Any]:
    return [_value(each) for each in variables]


def _value(variable: Any) -> Any:
    if isinstance(variable, torch.Tensor):
        tensor = variable.detach().cpu()
        return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy().copy()
    value = np.array(variable.numpy())
    return value.astype(np.float32) if value.dtype.kind == "V" else value  # of types that numpy does not know: all of them are in that


def set_values(variables: list[Any], values: list[Any]) -> None:
    """ValueError, and nothing is changed, where these are other variables."""
    if [tuple(each.shape) for each in variables] != [each.shape for each in values]:
        raise ValueError("the model has other variables")
    for variable, value in zip(variables, values, strict=True):
        if isinstance(variable, torch.Tensor):
            variable.detach().copy_(torch.from_numpy(value))
        else:
            variable.assign(value)


def build(model: Any, iterator: Any) -> None:
    """What Keras leaves to the first step with TensorFlow: then a model has its variables only when it has seen its data."""
    if not hasattr(model, "_maybe_symbolic_build"):
        return
    with model.distribute_strategy.scope():
        model._symbolic_build(data_batch=iterator._distributed_dataset.element_spec)


def continue_table(logger: Any, epoch: int) -> bool:
    """Keras' CSVLogger goes on with the file that it has written, of which the rows from this epoch on are to be written again."""
    path = Path(logger.filename)
    if not path.is_file():
        return False
    lines = path.read_text().splitlines(keepends=True)
    first = [line.partition(logger.sep)[0].strip() for line in lines]
    whole = [line for line, number in zip(lines, first, strict=True) if not number.isdecimal() or int(number) < epoch]
    path.write_text("".join(whole))
    logger.append = True
    return True
