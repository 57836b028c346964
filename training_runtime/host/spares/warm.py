"""The warm process: an interpreter with torch imported that does nothing but fork. `python -m training_runtime.host.spares.warm FD
MODULES`.

It runs no user code, never starts a thread, holds no secret (its environment is an allow-list, see `environment`), and reads no orders: on
each message from the host it forks a shim, and the shim the driver, which gets its orders from the host through the gate that came with
the message. Neither depends on this process afterwards.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import platform
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from training_runtime.host.runs import shim
from training_runtime.host.sandbox import seccomp

MAX_MESSAGE_BYTES = 4096


def main(arguments: list[str]) -> int:
    control = socket.socket(fileno=int(arguments[0]))
    control.set_inheritable(False)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps shims; what they have to say they write down
    gc.disable()  # what is imported stays: to look through it again and again takes a sixth of the time
    problems = _import_all([name for name in arguments[1].split(",") if name])
    with contextlib.suppress(seccomp.Unsupported):
        seccomp.program(platform.machine())
    gc.collect()
    gc.freeze()  # what is there now is never collected, so its pages stay shared with the children
    gc.enable()
    threads = sum(1 for _ in Path("/proc/self/task").iterdir())
    control.send(json.dumps({"problems": problems, "threads": threads}).encode())
    while True:
        message, fds, _, _ = socket.recv_fds(control, MAX_MESSAGE_BYTES, 2)
        if not message:
            return 0
        if len(fds) == 2:
            _fork(*fds, exit_file=os.fsdecode(message))
        for fd in fds:
            os.close(fd)


def _import_all(names: Sequence[str]) -> list[str]:
    """Imports what drivers will need, and calls `warm_up()` of the modules that have one.

    What cannot be imported is reported, and the driver's own import then fails with the full story.
    """
    problems = []
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            problems.append(f"{name}: {error}")
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    for name in names:
        if warm_up := getattr(sys.modules.get(name), "warm_up", None):
            warm_up()
    return problems


def _fork(gate: int, listener: int, *, exit_file: str) -> None:
    try:
        child = os.fork()
    except OSError:
        return  # the gate closes, by which the host learns that there is no driver
    if child == 0:
        try:
            shim.run_shim(socket.socket(fileno=gate), socket.socket(fileno=listener), Path(exit_file))
        finally:
            os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
