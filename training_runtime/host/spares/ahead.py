"""What a spare process does before it has a run: it goes into a box in which nothing of any run is, and imports there what the last run
of the same code had imported (see `spares` for the host's side, `own_folder` for how the box becomes the run's).

The names come from a run, so they are not trusted: there is nothing on its path but the environment, the base and the standard library.
What it finds in itself that a usual start would not have left (see `_Before.changed`) makes it of no use, and it says so.
"""

from __future__ import annotations

import importlib
import os
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from training_runtime.errors import SandboxRefused
from training_runtime.host.sandbox import enter, layer, own_folder, rootfs
from training_runtime.host.sandbox.levels import Box
from training_runtime.imported import SetBefore
from training_runtime.importing import CannotImport, import_all, set_variable

MOST_OUTPUT_BYTES = 1 << 20


@dataclass(frozen=True)
class Ahead:
    """What a spare process is launched with; fields as in `launch.Launch`, paths in its run's folder as they are called in the spare's box.
    `script`, `slots`, `said`: of its run, 0 slots where the script does not compute in this process, and the variables of its person."""

    modules: tuple[str, ...]
    variables: tuple[SetBefore, ...] = field(repr=False)
    driver: str
    box: Box
    environment: dict[str, str] = field(repr=False)
    python_path: tuple[str, ...]
    environment_dir: str
    work_dir: str
    log_dir: str
    temporary: str
    script: str
    slots: int
    said: dict[str, str] = field(repr=False)
    groups: tuple[str, ...]


@dataclass(frozen=True)
class Prepared:
    """Spare -> host: it has imported so many modules, or the `problem` for which it is of no use."""

    prepared: int
    problem: str = ""


@dataclass(frozen=True)
class Imported:
    """`output`: a file with what was printed meanwhile; `added`: to the environment variables; `tops`: of what names modules were."""

    output: int
    added: dict[str, str]
    tops: frozenset[str]


def prepare(request: Ahead) -> Imported:
    """Box this process in, for good, and import. Raises SandboxRefused or OSError with a sentence where it is of no use."""
    for door in request.groups:
        Path(door).write_text("0")
    enter.enter(request.box)
    for folder in (request.log_dir, own_folder.SCRATCH_TMP, request.work_dir):
        Path(folder).mkdir(parents=True, exist_ok=True)
    if request.temporary.startswith(f"{rootfs.SHARED_MEMORY}/"):
        Path(request.temporary).symlink_to(own_folder.SCRATCH_TMP)
    output = os.memfd_create("edt-output")
    for number in (1, 2):
        os.dup2(output, number)
    os.environ.clear()
    os.environ.update(request.environment)
    os.chdir(request.work_dir)
    sys.path[:] = [*sys.path[1:], *request.python_path]
    layer.enter(Path(request.environment_dir))
    importlib.invalidate_caches()
    sys.argv = [request.script]
    driver = importlib.import_module(request.driver.split(":")[0])
    before_imports: Callable[[int, dict[str, str]], None] | None = getattr(driver, "before_imports", None)
    if before_imports is not None:
        before_imports(request.slots, request.said)
    before = _Before()
    try:
        import_all(request.modules, request.variables)
    except CannotImport as error:
        raise SandboxRefused(str(error)) from None
    if problem := before.changed():
        raise SandboxRefused(problem)
    added = {name: value for name, value in os.environ.items() if name not in before.variables}
    return Imported(output, added, frozenset(name.partition(".")[0] for name in sys.modules.keys() - before.modules))


class _Before:
    """What there was before packages were imported, as far as a script may depend on it."""

    def __init__(self) -> None:
        self.modules = frozenset(sys.modules)
        self.variables = dict(os.environ)
        self._path, self._argv, self._folder = list(sys.path), list(sys.argv), Path.cwd()
        self._generators = _generators()

    def changed(self) -> str:
        """What imports have changed that a run sets itself, a moment before its script imports them; empty where that is nothing."""
        if any(os.environ.get(name) != value for name, value in self.variables.items()):
            return "an import changes environment variables of the run"
        if (self._path, self._argv, self._folder) != (list(sys.path), list(sys.argv), Path.cwd()):
            return "an import changes sys.path, sys.argv or the working folder"
        return "" if self._generators == _generators() else "an import draws random numbers, or seeds their generators"


def _generators() -> tuple[Any, ...]:
    """Where those stand that a run seeds before its script."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    _, keys, *rest = numpy.random.get_state() if numpy is not None else ("", None)
    return (
        random.getstate(),
        bytes(torch.get_rng_state().numpy()) if torch is not None else b"",
        (b"" if keys is None else keys.tobytes(), *rest),
    )


def settle(imported: Imported, environment: dict[str, str], *, code: Path, result: Path) -> None:
    """As the run's own process, in its folder: what it printed and wrote so far is there now. Raises SandboxRefused where the script would
    have imported something else, from beside itself."""
    mine = {path.name.partition(".")[0] for path in code.iterdir()} & imported.tops
    if mine:
        raise SandboxRefused(f"{min(mine)} lies beside the script, and packages import a module of that name")
    text = os.pread(imported.output, MOST_OUTPUT_BYTES, 0)
    os.close(imported.output)
    while text:
        text = text[os.write(2, text) :]
    _bring(Path(own_folder.BEFORE), result)
    wanted = imported.added | environment
    for name in os.environ.keys() | wanted.keys():
        if os.environ.get(name) != wanted.get(name):
            set_variable(name, wanted.get(name))


def _bring(before: Path, result: Path) -> None:
    """What imports wrote into the run's folder; what is there stays."""
    pending = [before]
    while pending:
        folder = pending.pop()
        for entry in os.scandir(folder):
            target = result / Path(entry.path).relative_to(before)
            if entry.is_dir(follow_symlinks=False):
                target.mkdir(exist_ok=True)
                pending.append(Path(entry.path))
            elif entry.is_symlink() and not os.path.lexists(target):
                target.symlink_to(Path(entry.path).readlink())
            elif entry.is_file(follow_symlinks=False) and not os.path.lexists(target):
                target.write_bytes(Path(entry.path).read_bytes())
