"""Lets torchaudio be imported over a torch without CUDA.

The index's build of torchaudio has its operators in libraries that need CUDA, and its import fails over the first of them. Where one cannot
be loaded, torchaudio is told that it has none: it goes on with filters in Python, and `rnnt_loss` and `forced_align` raise an error.
Nothing is done before a script imports torchaudio.
"""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

from training_runtime.fabric.when_loaded import when_loaded

LOADER = "torchaudio._extension.utils"


class _AfterLoader:
    """Finds what the others find, of torchaudio what loads its libraries."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return when_loaded(importlib.machinery.PathFinder.find_spec(fullname, path), _let_libraries_lack) if fullname == LOADER else None


def install() -> None:
    """At the start of an interpreter (see host.fabric)."""
    if not any(isinstance(finder, _AfterLoader) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterLoader())


def _let_libraries_lack(module: ModuleType) -> None:
    load = module._load_lib

    def is_loaded(name: str) -> bool:
        try:
            return bool(load(name))
        except OSError:
            if module.torch.version.cuda is not None:
                raise
            return False

    module._load_lib = is_loaded  # type: ignore[attr-defined]
