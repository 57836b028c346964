"""Lets torchvision be imported over a torch without CUDA, and detectors be trained with it.

The index's build of torchvision has its operators in a library that needs CUDA, and its import fails over a missing `torchvision::nms`.
Where that library cannot be loaded the two operators that the import asks for are declared, and what no detector does without, `nms` and
`roi_align`, is in `detection_ops`; the other operators and the image codecs of torchvision.io raise torchvision's error. Nothing is done
before a script imports torchvision, and next to nothing imported: every interpreter of an environment begins with this module.
"""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

from training_runtime.fabric.when_loaded import when_loaded

IN_PYTHON = {"torchvision.ops.boxes": "nms", "torchvision.ops.roi_align": "_roi_align"}  # by `detection_ops`, under the same names
DECLARED = tuple(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor" for name in ("nms", "qnms"))
_libraries: list[object] = []  # an operator is there as long as its library is


class _BeforeTorchvision:
    """Finds nothing; what it does comes before the others are asked. Not of importlib.abc, which is most of an interpreter's start."""

    def find_spec(self, fullname: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None) -> None:
        if fullname == "torchvision":
            sys.meta_path.remove(self)
            prepare()


def install() -> None:
    """At the start of an interpreter (see host.fabric)."""
    if not any(isinstance(finder, _BeforeTorchvision) for finder in sys.meta_path):
        sys.meta_path.insert(0, _BeforeTorchvision())


def prepare() -> None:
    """Load torchvision's library of operators, or declare those that its import asks for. Nothing where torchvision is not installed."""
    found = importlib.machinery.PathFinder.find_spec("torchvision")
    if found is None or found.origin is None:
        return
    from pathlib import Path

    import torch

    for library in Path(found.origin).parent.glob("_C*.so"):
        try:
            torch.ops.load_library(str(library))  # type: ignore[no-untyped-call]
        except OSError:
            continue
        return
    declared = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    for operator in DECLARED:
        declared.define(operator)  # type: ignore[no-untyped-call]
    _libraries.append(declared)
    sys.meta_path.insert(0, _AfterOperators())


class _AfterOperators:
    """Finds what the others find, of torchvision's operators those that need no library."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in IN_PYTHON:
            return None

        def replace(module: ModuleType) -> None:
            from training_runtime.fabric import detection_ops

            name = IN_PYTHON[fullname]
            setattr(module, name, getattr(detection_ops, name.lstrip("_")))

        return when_loaded(importlib.machinery.PathFinder.find_spec(fullname, path), replace)
