"""How the training of a notebook went: what train() and attach() return there. Knows no studio, so that a script that is no notebook loads
none of its client."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from training_runtime.fabric import download


@dataclass(frozen=True)
class Training:
    """How it went. `history`: lists of (step, value) by "train loss", "test accuracy" and so on. `run`, `url`: of the studio; `folder`: the
    results on this machine. `fetch` writes the results of a run of the studio to a path. Holds no token: the studio is named anew when it
    is asked again."""

    state: str
    step: int
    epoch: int
    history: Mapping[str, list[tuple[int, float]]] = field(repr=False)
    run: str = ""
    url: str = ""
    folder: str = ""
    fetch: Callable[[Path], object] | None = field(default=None, repr=False, compare=False)

    def download(self, out_dir: str | os.PathLike[str] | None = None) -> Path:
        """The results' folder `model` as a zip in `out_dir`, or else in the folder for temporary files; its path. UserError where the
        training has left no model, or the studio cannot be asked."""
        if self.fetch is None:
            path = download.save(Path(self.folder), out_dir)
        else:
            path = download.path_of(Path(self.run), out_dir)
            path.parent.mkdir(parents=True, exist_ok=True)
            download.beside(path, self.fetch)
        print(f"Save model:  {path}", flush=True)
        return path
