"""What notebooks import and a run has not: a kernel's displays and widgets. They are there and do nothing, so that what computes goes on;
where the real ones are installed, these are used. A progress bar of a notebook is one of a terminal here: a widget draws in a browser."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Iterator
from typing import Any

NAMES = ("IPython", "ipywidgets")


class Nothing:
    """Can be called, asked, changed and entered, and does nothing. What decorates a function leaves it as it is."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __call__(self, *given: object, **named: object) -> object:
        only = given[0] if len(given) == 1 and not named else None
        return only if isinstance(only, types.FunctionType) else Nothing()

    def __getattr__(self, name: str) -> Nothing:
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()

    def __enter__(self) -> Nothing:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __iter__(self) -> Iterator[object]:
        return iter(())

    def __bool__(self) -> bool:
        return False


class _StandIn(types.ModuleType):
    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing if name[:1].isupper() else Nothing()


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Behind all others: of what there is, nothing is hidden."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._given = given

    def find_spec(self, fullname: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        mine = fullname.partition(".")[0] in NAMES
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True) if mine else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        if module.__name__.partition(".")[0] == "IPython":
            module.__dict__.update(self._given)


def provide(given: dict[str, Any]) -> None:
    """From here on in this process. `given`: what IPython's modules have beside nothing."""
    if not any(isinstance(each, _Finder) for each in sys.meta_path):
        sys.meta_path.append(_Finder(given))
    if importlib.util.find_spec("tqdm") is not None and "tqdm.notebook" not in sys.modules:
        _bars_of_a_terminal()


def _bars_of_a_terminal() -> None:
    tqdm: Any = importlib.import_module("tqdm")

    class Bar(tqdm.std.tqdm):  # type: ignore[misc]
        """With the arguments of a notebook's."""

        def __init__(self, *given: object, **named: object) -> None:
            named.pop("display", None)  # whether it is drawn at once
            super().__init__(*given, **named)

    def trange(*given: int, **named: object) -> Bar:
        return Bar(range(*given), **named)

    module = types.ModuleType("tqdm.notebook")
    module.__dict__.update(tqdm=Bar, tqdm_notebook=Bar, trange=trange, tnrange=trange)
    sys.modules["tqdm.notebook"] = tqdm.notebook = module
