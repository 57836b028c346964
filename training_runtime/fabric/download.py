"""What a training has made, as one zip."""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from training_runtime.errors import UserError

MODEL = "model"


def save(results: Path, out_dir: str | os.PathLike[str] | None) -> Path:
    """The folder `model` of the results folder as a zip in `out_dir`; its path. Weights do not shrink, so nothing is compressed."""
    files = sorted(path for path in (results / MODEL).rglob("*") if path.is_file())
    if not files:
        raise UserError(f"download: the training has left no model in {results / MODEL}")
    target = path_of(results, out_dir)
    target.parent.mkdir(parents=True, exist_ok=True)

    def write(beside: Path) -> None:
        with zipfile.ZipFile(beside, "w") as archive:
            for path in files:
                archive.write(path, path.relative_to(results))

    beside(target, write)
    return target


def beside(target: Path, write: Callable[[Path], object]) -> None:
    """What `write` writes to the path that it is given, at `target` once it is whole; nothing else is left where it fails."""
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    os.close(handle)
    try:
        write(Path(name))
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def path_of(results: Path, out_dir: str | os.PathLike[str] | None) -> Path:
    """Under the number of the run, or the name of the results folder where there is no studio."""
    name = os.environ.get("DLI_EXECID") or results.name
    return Path(out_dir or tempfile.gettempdir(), f"{name}.zip").absolute()
