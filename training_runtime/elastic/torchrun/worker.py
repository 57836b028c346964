"""What a worker process does once it is forked: it runs its script as `python SCRIPT ARGUMENTS` would, in the folder of the code.

An exception is written to torchrun's error file, for the agent; that the script came to its end, beside it. It ends with the agent.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

import torch
from torch.distributed.elastic.multiprocessing.errors import get_error_handler

from training_runtime import console, storage
from training_runtime.as_module import folder_of_imports
from training_runtime.elastic.driver import advice, imported_modules
from training_runtime.elastic.processes import script_end
from training_runtime.elastic.processes.arguments import with_folders
from training_runtime.elastic.processes.script import module_paths, run_as_main, run_module_as_main, user_traceback
from training_runtime.elastic.processes.worker_context import OOM_SCORE
from training_runtime.elastic.torchrun.process_groups import keep_destroyed
from training_runtime.elastic.trainers import continuing, finder

ERROR_FILE = "TORCHELASTIC_ERROR_FILE"


def main(
    argv: Sequence[str],
    folder: str,
    environment: Mapping[str, str],
    log: int,
    begins: int,
    tells: int = -1,
    *,
    module: str = "",
) -> NoReturn:
    """See `ForkServer.fork`."""
    _print_to(log)
    _be_fresh(environment)
    os.chdir(folder)
    get_error_handler().initialize()
    name, *arguments = argv
    ended = end_file(Path(environment[ERROR_FILE]))
    sys.argv = [name, *with_folders(arguments, os.environ)]
    sys.path[0:0] = [str(folder_of_imports(name, folder, module)), *module_paths()]
    finder.install()
    keep_destroyed()
    continuing.begin_run()
    imported_modules.begin(tells)
    os.close(begins)  # the agent waits for that
    status = _run(partial(run_module_as_main, module) if module else partial(run_as_main, str(Path(folder, name))))
    if not status:
        _came_to_its_end(ended)
    script_end.conclude()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def end_file(error_file: Path) -> Path:
    """What a worker makes when its script has come to its end, beside the file for its error."""
    return error_file.with_suffix(".ended")


def _print_to(log: int) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, fd in enumerate((nothing, log, log)):
        os.dup2(fd, number)
    os.close(nothing)
    os.close(log)
    console.forgive_full_disks()


def _be_fresh(environment: Mapping[str, str]) -> None:
    """As an interpreter that was started with this environment, whatever its fork server has done before."""
    with suppress(OSError):  # of a run's processes the kernel should kill a worker first
        Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE))
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL), (signal.SIGCHLD, signal.SIG_DFL)):
        signal.signal(number, usual)
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    for name, value in environment.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
    random.seed()
    torch.default_generator.seed()
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    with suppress(ValueError):
        torch.set_num_threads(max(1, int(environment["OMP_NUM_THREADS"])))


def _run(run: Callable[[], None]) -> int:
    """The exit status. Of one that ends by Ctrl-C it is the signal."""
    try:
        run()
    except SystemExit as stop:
        if stop.code is not None and not isinstance(stop.code, int):
            sys.stderr.write(f"{stop.code}\n")
        status = int(stop.code or 0) & 0xFF if stop.code is None or isinstance(stop.code, int) else 1
        return 1 if status == storage.EXIT_CODE else status  # that one is ours to say
    except KeyboardInterrupt:
        traceback.print_exc()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException as error:
        _tell(error)
        return storage.EXIT_CODE if storage.lacks_room(error, Path(os.environ["RESULT_DIR"])) else 1
    return 0


def _came_to_its_end(path: Path) -> None:
    """What is left to be done then, by libraries and their threads, has been seen to abort a process that had done all its work."""
    with suppress(OSError):
        path.touch()


def _tell(error: BaseException) -> None:
    """In torchrun's form. A script that is decorated with `record` has written it already."""
    text = user_traceback(error, __file__)
    sys.stderr.write(text)
    path = Path(os.environ[ERROR_FILE])
    message = f"{type(error).__name__}: {error}{advice.after(error)}"
    extra = {"py_callstack": text, "timestamp": str(int(time.time()))}
    with suppress(OSError):
        if not path.exists():
            path.write_text(json.dumps({"message": {"message": message, "extraInfo": extra}}))
