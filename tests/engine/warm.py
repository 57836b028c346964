"""The test's stand-in for the node host's warm process: torch imported, one thread, forks a driver for each command it reads from its
socket.

Run as `python -m tests.engine.warm FD`. When the socket closes, every driver it forked is killed with its whole session.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
import traceback


def main() -> None:
    from training_runtime.elastic.driver import main as driver
    from training_runtime.elastic.processes.warm import warm_up

    warm_up()
    gc.collect()
    gc.freeze()  # as the host's warm process does
    channel = socket.socket(fileno=int(sys.argv[1]))
    alive: dict[int, int] = {}
    try:
        _serve(channel, alive, driver)
    except BrokenPipeError:
        pass  # whoever asked for runs was killed
    finally:
        for pid in alive.values():
            kill_session(pid)


def _serve(channel, alive, driver) -> None:
    poll = select.poll()
    poll.register(channel.fileno(), select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd in alive:
                pid = alive.pop(fd)
                poll.unregister(fd)
                os.close(fd)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                channel.send(json.dumps({"exited": pid, "code": code}).encode())
                continue
            raw = channel.recv(1 << 20)
            if not raw:
                return
            command = json.loads(raw)
            pid = os.fork()
            if pid == 0:
                channel.close()
                _become(driver, command)
            alive[fd := os.pidfd_open(pid)] = pid
            poll.register(fd, select.POLLIN)
            channel.send(json.dumps({"started": pid}).encode())


def _become(driver, command) -> None:
    code = 1
    try:
        code = _drive(driver, command)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _drive(driver, command) -> int:
    from training_runtime.protocol import RunSpec
    from training_runtime.records import build

    os.setsid()
    os.environ.update(command["env"])
    if os.environ.get("EDT_TEST_DEVICE") == "gpu":
        _share_a_gpu()
    log = os.open(command["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(command["socket"])
    listener.listen(4)
    return driver.main(build(RunSpec, command["spec"]), listener)


def _share_a_gpu() -> None:
    """NCCL refuses two members on one GPU, unless it takes them for two machines: then what they exchange goes by TCP."""
    os.environ.update({"NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"})
    os.register_at_fork(after_in_child=lambda: os.environ.update({"NCCL_HOSTID": str(os.getpid())}))


def kill_session(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
