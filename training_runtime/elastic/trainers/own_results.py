"""What an earlier process of a run has left where its script writes. Libraries refuse to write there once more, for the sake of somebody
else's results: these are the run's own, which goes on with them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from training_runtime.elastic.trainers import continuing
from training_runtime.protocol import UNCHANGED_CODE_NS


def are_own(path: Path, environment: Mapping[str, str]) -> bool:
    """Whether this run has written the file, or what the folder has; not what was uploaded with the code."""
    path, results = path.resolve(), environment.get("RESULT_DIR", "")
    if not results or not path.is_relative_to(Path(results).resolve()):
        return False
    with suppress(OSError):
        found = [path, *path.iterdir()][1:] if path.is_dir() else [path]
        return bool(found) and all(each.stat(follow_symlinks=False).st_mtime_ns != UNCHANGED_CODE_NS for each in found)
    return False


def change(module: ModuleType) -> None:
    """`transformers.training_args`. Up to its fourth release scripts look whether their `output_dir` is empty, as its examples do, unless
    they are told to overwrite, which overwrites nothing."""
    begin = getattr(module.TrainingArguments, "__post_init__", None)
    if begin is None:  # of releases before the examples asked
        return

    def begun(self: Any, *args: Any, **kwargs: Any) -> None:
        is_to_be_empty = getattr(self, "overwrite_output_dir", None) is False and self.output_dir
        if is_to_be_empty and continuing.is_on() and are_own(Path(self.output_dir), os.environ):
            self.overwrite_output_dir = True
        begin(self, *args, **kwargs)

    module.TrainingArguments.__post_init__ = begun


def let_config_be_saved(trainer: Any) -> None:
    """As the training is set up: LightningCLI's `SaveConfigCallback` writes in the place of the file that it has written there. All workers
    come here, and see the same: the first writes when all have been here."""
    saving = [each for each in trainer.callbacks if any(kind.__name__ == "SaveConfigCallback" for kind in type(each).__mro__)]
    for each in saving:
        if (
            getattr(each, "overwrite", None) is False
            and (folder := trainer.log_dir)
            and are_own(Path(folder, each.config_filename), os.environ)
        ):
            each.overwrite = True
