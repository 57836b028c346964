"""What a worker process begins with: `python -m ... AGENT BEGINS SCRIPT ARGUMENTS` runs the script as `python SCRIPT ARGUMENTS` would, in
the folder of the code. An exception is written to torchrun's error file, for the agent; that the script came to its end, beside it. The
process ends with the agent."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from torch.distributed.elastic.multiprocessing.errors import get_error_handler

from training_runtime import console, storage
from training_runtime.elastic.driver import advice
from training_runtime.elastic.processes import process_handles
from training_runtime.elastic.processes.arguments import with_folders
from training_runtime.elastic.processes.script import module_paths, run_as_main, user_traceback
from training_runtime.elastic.processes.worker_context import OOM_SCORE
from training_runtime.elastic.torchrun.workers import end_file
from training_runtime.elastic.trainers import continuing, finder


def main() -> None:
    agent, begins, name, *arguments = sys.argv[1:]
    process_handles.die_with_parent(int(agent))
    with suppress(OSError):  # of a run's processes the kernel should kill a worker first
        Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE))
    console.forgive_full_disks()
    get_error_handler().initialize()
    script, end = Path.cwd() / name, end_file(Path(os.environ["TORCHELASTIC_ERROR_FILE"]))
    sys.argv = [name, *with_folders(arguments, os.environ)]
    sys.path[0:0] = [str(script.parent), *module_paths()]
    finder.install()
    continuing.begin_run()
    os.close(int(begins))  # the agent waits for that
    try:
        run_as_main(str(script))
    except SystemExit as stop:
        if stop.code in (None, 0):
            _came_to_its_end(end)
        sys.exit(1 if stop.code == storage.EXIT_CODE else stop.code)  # that one is ours to say
    except Exception as error:
        _tell(error)
        sys.exit(storage.EXIT_CODE if storage.lacks_room(error, Path(os.environ["RESULT_DIR"])) else 1)
    _came_to_its_end(end)


def _came_to_its_end(path: Path) -> None:
    """torch's threads have been seen to abort a process (SIGABRT, "terminate called without an active exception") while the interpreter of
    a script that had done all its work was being taken down."""
    with suppress(OSError):
        path.touch()


def _tell(error: Exception) -> None:
    """In torchrun's form. A script that is decorated with `record` has written it already."""
    text = user_traceback(error, __file__)
    sys.stderr.write(text)
    path = Path(os.environ["TORCHELASTIC_ERROR_FILE"])
    message = f"{type(error).__name__}: {error}{advice.after(error)}"
    extra = {"py_callstack": text, "timestamp": str(int(time.time()))}
    with suppress(OSError):
        if not path.exists():
            path.write_text(json.dumps({"message": {"message": message, "extraInfo": extra}}))


if __name__ == "__main__":
    main()
