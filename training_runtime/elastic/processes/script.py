"""The user's script as something that can be run again, and whether that is needed: a process that is forked has one thread, whatever its
parent had, and what the other threads held at that moment stays held for ever.
"""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import inspect
import io
import os
import re
import runpy
import sys
import threading
import time
import traceback
import types
from contextlib import suppress
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path

import torch

from training_runtime import notebooks
from training_runtime.elastic.data.sampler import seed_everything
from training_runtime.elastic.keras import finder, kind
from training_runtime.tracking.endpoint import THREAD

START_METHOD = "EDT_START_METHOD"  # fork or spawn; without it whatever is safe
COST = (
    "each runs the script up to train() itself, starts later by as long as that takes, holds a copy of the datasets of its own, and loads "
    "its batches itself where the script runs threads. The weights are the same"
)
CUDA_DEVICE = "/dev/nvidia-uvm"
_OURS = ("host-link", THREAD)  # the one does not run when anything is forked, the other does nothing then
# Of pyarrow, and so of pandas: jemalloc holds its locks around a fork, and a child goes on without this thread (its background_thread.c).
_NATIVE_HARMLESS = ("jemalloc_bg_thd",)
_RELATIVE = re.compile(rb"^[ \t]*from[ \t]+\.", re.MULTILINE)
_HARMLESS = ("tqdm._monitor.TMonitor",)  # sleeps, and holds nothing that a worker might want


@dataclass(frozen=True)
class Script:
    """`python PATH ARGUMENTS` in `folder`; `module` where it was `python -m MODULE`. `python_path`: sys.path as the script left it."""

    path: str
    module: str
    arguments: tuple[str, ...]
    folder: str
    python_path: tuple[str, ...]

    def run(self, seed: int | None) -> None:
        """Run it in this process as the driver does: as `__main__`, generators seeded (None: as they come)."""
        os.chdir(self.folder)
        sys.argv = [self.path, *self.arguments]
        sys.dont_write_bytecode = True
        sys.path[:] = self.python_path
        finder.begin()
        if seed is not None:
            seed_everything(seed)
        if self.module:
            run_module_as_main(self.module)
        else:
            run_as_main(self.path)

    def outside_path(self) -> list[str]:
        """sys.path without what this script brings along: its own files may be called like modules that others import."""
        own = {self.folder if self.module else str(Path(self.path).parent), *module_paths(), ""}
        runtime = str(Path(__file__).resolve().parents[3])
        found = [path for path in self.python_path if path not in own or path == runtime]
        return found if runtime in found else [*found, runtime]


def run_module_as_main(name: str) -> None:
    """As `python -m NAME` does, what is imported before the module as well. Raises ImportError where there is none, or none in Python."""
    found = importlib.util.find_spec(name)
    if found is not None and found.submodule_search_locations is not None:
        found = importlib.util.find_spec(f"{name}.__main__")
        if found is None:
            raise ImportError(f"{name} is a package without a __main__.py, so it cannot be run: name one of its modules", name=name)
    if found is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    if found.origin is None or not found.origin.endswith(".py"):
        raise ImportError(f"{name} has no code in Python that could be run", name=name)
    run_as_main(found.origin, found)


def run_as_main(path: str, spec: ModuleSpec | None = None) -> None:
    """As `runpy.run_path` does, but it is `__main__` from here on: what it leaves to be done at its end may look for its classes there. A
    notebook's may say `await` outside of functions, and one that nbconvert has made of a notebook finds its kernel's names. A part of a
    package is run as `python -m` does. `spec`: of the module that it is."""
    with io.open_code(path) as file:
        text = file.read()
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT if notebooks.notebook_name(path) else 0
    code = compile(text, path, "exec", flags, dont_inherit=True)
    module = types.ModuleType("__main__")
    if spec is not None and spec.parent:
        vars(module).update(__package__=spec.parent, __spec__=spec)
    else:
        vars(module).update(__package__=_as_part_of_package(Path(path), text))
    vars(module).update(__file__=path, __cached__=None)
    sys.argv[0], sys.modules["__main__"] = path, module
    if notebooks.calls_a_kernel(text.decode(errors="replace")):
        from training_runtime import notebook_cells  # lets IPython be imported, which is not for other scripts

        vars(module).update(notebook_cells.names())
    awaited = eval(code, vars(module))  # noqa: S307 - the script
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(awaited)


def _as_part_of_package(path: Path, text: bytes) -> str:
    """Of a script that imports relatively, which Python runs by `-m` alone: the package that it is a part of, whose modules are found from
    here on by its name and no more beside the script. Empty for any other."""
    folder = path.absolute().parent
    top = folder
    while (top / "__init__.py").is_file():
        top = top.parent
    if top == folder and folder.is_relative_to(Path.cwd()):  # packages need no such file
        top = Path.cwd()
    if top == folder or not _RELATIVE.search(text):
        return ""
    sys.path[:] = [str(top), *(each for each in sys.path if each not in (str(folder), str(path.parent)))]
    return ".".join(folder.relative_to(top).parts)


def running() -> Script | None:
    """The script that this process runs; None where it is none that could be run again (a notebook, standard input)."""
    main = sys.modules["__main__"]
    path, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    if path is None or not Path(path).is_file():
        return None
    module = spec.name.removesuffix(".__main__") if spec is not None else ""
    return Script(str(Path(path).absolute()), module, tuple(sys.argv[1:]), str(Path.cwd()), tuple(sys.path))


def why_not_fork() -> str:
    """What makes it unsafe to fork this process, in words; empty where nothing does."""
    if kind.is_tensorflow_imported():
        return "it has imported TensorFlow, which runs threads"
    names = sorted(t.name for t in threading.enumerate() if t is not threading.main_thread() and not _is_harmless(t))
    if names:
        return f"it runs threads ({', '.join(names)[:200]})"
    if _has_touched_cuda():
        return "it has initialised CUDA, or asked for its devices in a way that does"
    pools = os.environ.get("OMP_NUM_THREADS") != "1" and int(os.environ.get("EDT_THREADS_PER_SLOT") or 1) == 1
    count = 0 if pools else native_threads()
    return f"compiled code in it runs {count} thread{'s' * (count != 1)} ({START_METHOD}=fork forks it all the same)" if count else ""


def native_threads() -> int:
    """Threads of this process that Python did not start: pools of compiled libraries. What they held stays held in a fork as well. (Where
    OpenMP and BLAS have pools by default, outside of the studio, they are no reason: a worker with one thread does not use them.)"""
    for _ in range(10):
        known = {os.getpid(), *(thread.native_id for thread in threading.enumerate())}  # after a fork the main thread says another
        if not (count := sum(int(task.name) not in known and not _sleeps(task) for task in Path("/proc/self/task").iterdir())):
            break
        time.sleep(0.01)  # a thread that was just joined is gone for Python a moment before it is for the kernel
    return count


def _sleeps(task: Path) -> bool:
    """Whether this thread (its folder in /proc) is one that a fork may do without; one that has just ended is gone."""
    try:
        return (task / "comm").read_text().strip() in _NATIVE_HARMLESS
    except OSError:
        return True


def _has_touched_cuda() -> bool:
    """Whether CUDA could not be used in a fork of this process. Even `torch.cuda.is_available()` may have that effect, of which the process
    knows nothing itself: torch tells it in the fork. Of a backward pass, which counts the GPUs for good, it does not tell: but that opens
    what CUDA alone opens."""
    if not torch.backends.cuda.is_built():  # type: ignore[no-untyped-call]
        return False
    if any(_leads_to(descriptor, CUDA_DEVICE) for descriptor in Path("/proc/self/fd").iterdir()):
        return True
    pid = os.fork()
    if not pid:
        os._exit(bool(torch.cuda._is_in_bad_fork()))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0


def _leads_to(descriptor: Path, path: str) -> bool:
    with suppress(OSError):  # of the listing itself
        return str(descriptor.readlink()) == path
    return False


def warning(why: str) -> str:
    """The warning that workers run the script."""
    return f"workers are not forked from the script's process, because {why}: {COST}"


def _is_harmless(thread: threading.Thread) -> bool:
    kind = type(thread)
    return thread.name in _OURS or f"{kind.__module__}.{kind.__qualname__}" in _HARMLESS


def module_paths() -> list[str]:
    """Folders that make `fabric_model`, `callbacks` and `pyedt` importable, and the helpers that a script may bring along itself:
    `emetrics`, `elog`, `edtcallback`, `pth_parameter_mgr`. They come after the script's own folder, so that its files win."""
    fabric = Path(__file__).resolve().parents[2] / "fabric"
    return [str(fabric / "path"), str(fabric / "helpers")]


def user_traceback(error: BaseException, runner: str) -> str:
    """The traceback from the user's script on, without the frames of the runtime above it; `runner`: the file that has run the script."""
    frames = error.__traceback__
    above = (runner, __file__, runpy.__file__, "<frozen runpy>", asyncio.runners.__file__, asyncio.base_events.__file__)
    while frames is not None and frames.tb_frame.f_code.co_filename in above:
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames))
