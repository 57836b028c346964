"""A fork server that has the packages of the script as well: between two starts it imports what the first worker has imported, so that the
workers of the next one find it done.

Workers must not be able to tell. Where an import reads what differs between workers or starts (`workers.VARYING`), starts a thread, opens a
file, or changes what a script may depend on, there is no such fork server, and workers import by themselves.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training_runtime.as_module import folder_of_imports
from training_runtime.elastic.driver import imported_modules
from training_runtime.elastic.processes.script import module_paths, why_not_fork
from training_runtime.elastic.trainers import finder
from training_runtime.imported import Imported
from training_runtime.importing import CannotImport, import_all

ALL = "all variables"


class Unfit(Exception):
    """Why workers are not forked from here, in words."""


@dataclass(frozen=True)
class Inside:
    """What a worker has been told of its script, as `fork_server_process.Work` has it."""

    argv: tuple[str, ...]
    folder: str
    module: str = ""


def prepare(imported: Imported, work: Inside, environment: Mapping[str, str], varying: frozenset[str]) -> dict[str, str]:
    """Imports; the variables that packages have set. `environment` is that of workers, but for those of `varying`. Raises Unfit."""
    os.environ.clear()
    os.environ.update({name: value for name, value in environment.items() if name not in varying})
    os.chdir(work.folder)
    before = _Before()
    sys.argv = list(work.argv)
    sys.path[0:0] = [str(folder_of_imports(work.argv[0], work.folder, work.module)), *module_paths()]
    finder.install()
    imported_modules.end()
    inside = list(sys.path)
    try:
        with _noted_reads(varying) as read:
            import_all(imported.modules, imported.variables)
    except CannotImport as error:
        raise Unfit(str(error)) from None
    if read:
        raise Unfit(f"an import reads {', '.join(sorted(read))}")
    if (sys.path, sys.argv, Path.cwd()) != (inside, list(work.argv), Path(work.folder)):
        raise Unfit("an import changes sys.path, sys.argv or the working folder")
    sys.path[:], sys.argv = before.path, before.argv
    if why := before.changed() or why_not_fork():
        raise Unfit(why)
    return {name: value for name, value in os.environ.items() if name not in before.variables}


class _Before:
    def __init__(self) -> None:
        self.path, self.argv, self.variables = list(sys.path), sys.argv, dict(os.environ)
        self._handlers, self._open, self._children = _handlers(), _open(), _children()

    def changed(self) -> str:
        if any(os.environ.get(name) != value for name, value in self.variables.items()):
            return "an import changes environment variables"
        if self._handlers != _handlers():
            return "an import handles a signal"
        if self._open != _open():
            return "an import leaves a file open"
        return "" if self._children == _children() else "an import starts a process"


def _handlers() -> dict[int, Any]:
    return {number: signal.getsignal(number) for number in signal.valid_signals()}


def _open() -> set[str]:
    return {each.name for each in os.scandir("/proc/self/fd") if os.path.lexists(each.path)}


def _children() -> str:
    return Path("/proc/self/task", str(os.getpid()), "children").read_text()


@contextmanager
def _noted_reads(names: frozenset[str]) -> Iterator[set[str]]:
    """Those of these variables that were asked for meanwhile, whether they are there or not."""
    read = set[str]()
    usual = type(os.environ)

    class Noting(usual):  # type: ignore[misc, valid-type]
        def __getitem__(self, name: str) -> str:
            if name in names:
                read.add(name)
            return str(super().__getitem__(name))

        def __iter__(self) -> Iterator[str]:
            read.add(ALL)
            return iter(super().__iter__())

    os.environ.__class__ = Noting
    try:
        yield read
    finally:
        os.environ.__class__ = usual
