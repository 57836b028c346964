"""Before a script imports keras or tensorflow: Keras' backend is chosen, and where TensorFlow is not installed, `import tensorflow` in the
script's own files gives what stands in for it (see `standin`). Standard library only; does nothing before the first such import.
"""

from __future__ import annotations

import importlib.machinery
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

BACKEND = "KERAS_BACKEND"
_PACKAGES = frozenset({"site-packages", "dist-packages"})


class _BeforeKeras:
    def find_spec(self, fullname: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None) -> ModuleSpec | None:
        top = fullname.partition(".")[0]
        if fullname == "keras":
            _choose_backend()
        elif top == "tensorflow" and (fullname != top or (_is_asked_by_script() and not _is_there(top) and _is_there("keras"))):
            from training_runtime.elastic.keras import standin

            return standin.spec(fullname)
        return None


def begin() -> None:
    """In a process of a run: TensorFlow, should the script import it, computes on as many threads as a slot has, in one order."""
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", os.environ.get("EDT_THREADS_PER_SLOT") or "1")
    os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    install()


def install() -> None:
    """Once in an interpreter that runs a script."""
    if not any(isinstance(finder, _BeforeKeras) for finder in sys.meta_path):
        sys.meta_path.insert(0, _BeforeKeras())


def _choose_backend() -> None:
    """What KERAS_BACKEND says; TensorFlow for who has imported that, or says so with FABRIC_BACKEND where it is installed; else torch."""
    from training_runtime.elastic.keras import kind

    if os.environ.get(BACKEND):
        return
    wanted = os.environ.get("FABRIC_BACKEND") == "tensorflow" and _is_there("tensorflow")
    os.environ[BACKEND] = "tensorflow" if kind.is_tensorflow_imported() or wanted else "torch"


def _is_there(name: str) -> bool:
    return importlib.machinery.PathFinder.find_spec(name) is not None


def _is_asked_by_script() -> bool:
    """Not by a library, which looks whether it is there."""
    from pathlib import Path

    frame = sys._getframe()
    while frame.f_back is not None and (frame.f_code.co_filename == __file__ or frame.f_code.co_filename.startswith("<frozen importlib")):
        frame = frame.f_back
    path = Path(frame.f_code.co_filename).resolve()
    installed = not _PACKAGES.isdisjoint(path.parts)  # here, or in an environment of the run's own
    return not (installed or path.is_relative_to(Path(os.__file__).resolve().parent))
