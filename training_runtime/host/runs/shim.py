"""The shim of a run: the parent of its driver, outside the box. It collects every orphan of the run and writes down how the driver ended.

Being their subreaper, it is an ancestor of every process of the run until the last is gone, however they were started and even when driver,
host and warm process are dead; and it ends only when it has no child left. So its descendants are the run's processes, and its end is the
proof that there are none. Of a run with secrets it also writes the logs (`log_filter`). It does nothing else.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from pathlib import Path

from training_runtime.host.runs import launch, log_filter
from training_runtime.host.sandbox import kernel

_EXIT_BYTES = 8


def run_shim(gate: socket.socket, listener: socket.socket, exit_file: Path) -> None:
    """Forks the driver and returns when every process of the run is gone; `exit_file` then holds the driver's exit code (-N: signal N)."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    kernel.become_subreaper()
    kernel.set_name(kernel.SHIM_NAME)
    control, drivers_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    driver = os.fork()
    if driver == 0:
        control.close()
        launch.become_driver(gate, listener, drivers_end)
    gate.close()  # it must close for the host when the driver ends, and not be held open here
    listener.close()
    drivers_end.close()
    os.closerange(3, control.fileno())
    os.closerange(control.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
    # Its room is taken now: the disk may be full when the driver ends, and how it ended must not be lost for that.
    file = os.open(exit_file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with contextlib.suppress(OSError):
        os.write(file, b" " * _EXIT_BYTES)
    logs = log_filter.listen(control, driver)
    if logs is not None:
        logs.begin()
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.wait()
            if pid == driver:
                os.pwrite(file, str(os.waitstatus_to_exitcode(status)).ljust(_EXIT_BYTES).encode(), 0)
    if logs is not None:
        logs.end()
