"""Does something to a module as soon as it is loaded. Imports next to nothing: interpreters begin with it."""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType


def when_loaded(spec: ModuleSpec | None, change: Callable[[ModuleType], None]) -> ModuleSpec | None:
    """`spec` of a module that `change` is called with when loaded, before whoever imports it has it. None of one that is not found."""
    if spec is not None and spec.loader is not None:
        load = spec.loader.exec_module

        def loaded(module: ModuleType) -> None:
            load(module)
            change(module)

        spec.loader.exec_module = loaded  # type: ignore[method-assign]
    return spec
