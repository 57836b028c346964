"""What FabricModel and train() are given, in the words of every release of the original. Older names and forms become today's; unknown ones
only warn. Knows nothing of a training."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

from training_runtime.errors import UserError

ALIASES = {
    "driver_logger": "driver_logger_callback",
    "worker_logger": "worker_logger_callback",
    "enable_onnx": "save_to_onnx",
    "getDatasets": "datasets_function",
    "get_datasets": "datasets_function",
    "user_callback": "user_callbacks",
}
TRAIN_ALIASES = {"epochs": "epoch_number", "engine_number": "engines_number"}
MEMORY = ("worker_memory", "driver_memory")
NO_MEMORY = "train: {} reserves no memory here: the run may use what its machine has"
HARDWARE_FORM = "{'nodes': {'num_nodes': 2, 'gpu': {'num_gpu': 1}}}"


def with_aliases(others: Mapping[str, Any], names: Mapping[str, str] = ALIASES) -> dict[str, Any]:
    """Arguments by today's names: `names` gives today's name of an older one; all others stay as they are."""
    return {names.get(name, name): value for name, value in others.items()}


def is_logger(value: object) -> bool:
    """Whether it is a driver logger, which the first release had where the later ones have `metrics`."""
    return hasattr(value, "log_train_metrics") or hasattr(value, "log_test_metrics")


def warn_of_unknown(function: str, names: Mapping[str, Any]) -> None:
    """A UserWarning for each of `names`, which `function` was given and does not know; it points at the script's line."""
    for name in names:
        warnings.warn(f"{function} does not know the argument {name!r} and ignores it", stacklevel=3)


def in_other_words(epochs: int, engines: int | None, others: Mapping[str, Any]) -> tuple[int, int | None]:
    """Epochs and engines, which the `others` of train()'s arguments may say instead. Those that are unknown are warned of."""
    given = with_aliases(others, TRAIN_ALIASES)
    epochs = given.pop("epoch_number", 0) if epochs == 0 else epochs
    engines = engines_asked(given.pop("engines_number", None) if engines is None else engines, given)
    warn_of_unknown("train()", given)
    return epochs, engines


def engines_asked(engines: int | None, others: dict[str, Any]) -> int | None:
    """`engines_number`, or what the other ways to say it come to; takes those out of `others`. The first of hardware_spec,
    engines_number, worker_num x worker_device_num counts, as there."""
    for name in MEMORY:
        if others.pop(name, None) is not None:
            warnings.warn(NO_MEMORY.format(name), stacklevel=4)
    by_hardware = _engines_of_hardware(others.pop("hardware_spec", None))
    workers, devices = others.pop("worker_num", None), others.pop("worker_device_num", None)
    check_whole({name: value for name, value in (("worker_num", workers), ("worker_device_num", devices)) if value is not None}, least=1)
    by_workers = None if workers is None else workers * (devices or 1)
    return next((found for found in (by_hardware, engines, by_workers) if found is not None), None)


def _engines_of_hardware(spec: object) -> int | None:
    """Nodes x GPUs of each; a node without a GPU is one engine. None where it does not say how many nodes."""
    if spec is None:
        return None
    nodes = spec.get("nodes") if isinstance(spec, Mapping) else None
    gpu = nodes.get("gpu") or {} if isinstance(nodes, Mapping) else None
    if not isinstance(nodes, Mapping) or not isinstance(gpu, Mapping):
        raise UserError(f"train: hardware_spec must look like {HARDWARE_FORM}, not {spec!r}")
    if "num_nodes" not in nodes:
        return None
    try:
        count, gpus = int(nodes["num_nodes"]), int(gpu.get("num_gpu") or 1)
    except (TypeError, ValueError):
        count = gpus = 0
    if count < 1 or gpus < 1:
        raise UserError(f"train: num_nodes and num_gpu of hardware_spec must be whole numbers of at least 1, as in {HARDWARE_FORM}")
    return count * gpus


def engines_of(batch_size: int, engines: int | None, effective: int | None, *, most: int) -> int:
    """V: how many engines a global batch has. UserError where the arguments give none."""
    sizes = {"engines_number": engines, "effective_batch_size": effective}
    check_whole({name: value for name, value in sizes.items() if value is not None}, least=1)
    given = [value for value in (engines, None if effective is None else math.ceil(effective / batch_size)) if value is not None]
    return max(given, default=most)


def check_whole(arguments: Mapping[str, object], *, least: int, of: str = "train") -> None:
    """UserError for the first of `arguments` (by name) that is no int, or a bool, or less than `least`. `of`: the function that was given
    them."""
    for name, value in arguments.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise UserError(f"{of}: {name} must be a whole number of at least {least}, not {value!r}")


def as_list(value: Any) -> list[Any]:
    """A list or tuple as a list, None as an empty one, anything else as a list of it alone."""
    return list(value) if isinstance(value, (list, tuple)) else [] if value is None else [value]
