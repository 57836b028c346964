"""From the fork to the first line of user code: what happens in the process that becomes a run's driver.

The host hands the child one end of a socket pair, the gate. Over it the child says who it is and gets its launch request; it boxes itself
in, says that it is ready, and waits. Only when the host has written down which process this is does it open the gate: a host that dies in
between closes it, and the child goes without having run any user code, so that nothing is ever started twice.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from training_runtime import console, notebooks, storage
from training_runtime.as_module import folder_of_imports, name_of_upload
from training_runtime.errors import ProtocolError, SandboxRefused
from training_runtime.host import processes
from training_runtime.host.runs import data_beside_code, inheritance, workdir
from training_runtime.host.sandbox import enter, kernel, layer, rootfs
from training_runtime.host.sandbox.levels import Box
from training_runtime.host.spares import ahead
from training_runtime.host.spares.ahead import Ahead, Imported, Prepared
from training_runtime.protocol import RunSpec
from training_runtime.records import build
from training_runtime.variables import CONFIG_JSON

GO = b"go\n"
MAX_LAUNCH_BYTES = 4 << 20


@dataclass(frozen=True)
class Launch:
    """What one driver is launched with. `driver` is "package.module:function", called with (spec, listener, secret) and returning the exit
    code. `spec` names the working folder as that of the code, which is copied from `code` into it. `secret`: what the host says first on
    each connection to the listener. `environment_dir`: the folder of the run's own packages; empty: it has none. `groups`: see
    `cgroup.Groups.doors`."""

    spec: RunSpec
    driver: str
    box: Box
    environment: dict[str, str] = field(repr=False)
    python_path: tuple[str, ...]
    code: str
    work_dir: str
    log_dir: str
    temporary: str
    secret: str = field(default="", repr=False)
    environment_dir: str = ""
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Hello:
    """Child -> host, first: which process this is, and which one keeps it (see `shim`)."""

    pid: int
    start_ticks: int
    shim: int
    shim_ticks: int


@dataclass(frozen=True)
class Ready:
    """Child -> host, second: boxed in and waiting for the gate to open, or `refused` for the reason given."""

    refused: str = ""

    @property
    def problem(self) -> str:
        """For a person; empty where there is none."""
        return f"the run's process could not be boxed in or set up: {self.refused}" if self.refused else ""


def to_line(record: Launch | Hello | Ready | Ahead | Prepared) -> bytes:
    return json.dumps(dataclasses.asdict(record), separators=(",", ":")).encode() + b"\n"


def become_driver(gate: socket.socket, listener: socket.socket, shim: socket.socket) -> NoReturn:
    """Never returns: the process ends with the driver's exit code. `shim`: to its parent, which waits to be told of secrets."""
    code = 1
    try:
        os.setsid()
        _forget_the_parent(keep=(gate.fileno(), listener.fileno(), shim.fileno()))
        code = _driver_life(gate, listener, shim)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code & 0xFF or int(code != 0))


def _forget_the_parent(*, keep: tuple[int, ...]) -> None:
    """Signals as in a fresh process, no open file of the warm process but those named and the standard ones."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    first = 3
    for fd in sorted(keep):
        os.closerange(first, fd)
        first = fd + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))


def _driver_life(gate: socket.socket, listener: socket.socket, shim: socket.socket) -> int:
    gate.sendall(to_line(_hello()))
    lines = gate.makefile("rb")
    kernel.become_subreaper()  # processes that lose their parent stay under the driver, where the host finds them
    request = json.loads(lines.readline(MAX_LAUNCH_BYTES))
    imported: Imported | None = None
    if "modules" in request:
        shim.close()
        imported = _import_ahead(build(Ahead, request), gate)
        request = json.loads(lines.readline(MAX_LAUNCH_BYTES))  # for which it waits; the host closes the gate where there is no use for it
    launch = build(Launch, request)
    kernel.set_name(f"{kernel.DRIVER_NAME}{launch.spec.run}")
    try:
        if imported is not None:
            _settle_ahead(launch, imported)
        else:
            _hide_secrets(launch, shim)
            _settle_in(launch)
    except (OSError, SandboxRefused, ProtocolError) as error:
        gate.sendall(to_line(Ready(refused=str(error) or type(error).__name__)))
        return storage.EXIT_CODE if storage.cause(error) else 1
    gate.sendall(to_line(Ready()))
    if lines.readline(len(GO)) != GO:
        os.kill(os.getpid(), signal.SIGKILL)  # nobody will take this for the script's own failure
    lines.close()
    gate.close()
    module, function = launch.driver.split(":")
    main: Callable[[RunSpec, socket.socket, str], int] = getattr(importlib.import_module(module), function)
    return int(main(launch.spec, listener, launch.secret) or 0)


def _import_ahead(request: Ahead, gate: socket.socket) -> Imported:
    """It has no run yet. Ends the process where it is of no use."""
    kernel.set_name(kernel.SPARE_NAME)
    before = len(sys.modules)
    try:
        imported = ahead.prepare(request)
    except BaseException as error:  # code of packages has run
        gate.sendall(to_line(Prepared(0, problem=f"{type(error).__name__}: {error}"[:1000])))
        raise SystemExit(1) from None
    gate.sendall(to_line(Prepared(len(sys.modules) - before)))
    return imported


def _settle_ahead(launch: Launch, imported: Imported) -> None:
    """What `_settle_in` does, in a box that was entered before the run was known."""
    result = Path(launch.spec.result_dir)
    _make_folders(launch, result)
    _fill_work_dir(launch)
    _link_temporary(launch, result)
    _take_console(Path(launch.log_dir, "console.log"))
    code = folder_of_imports(launch.spec.argv[0], launch.work_dir, launch.spec.module)
    ahead.settle(imported, launch.environment, code=code, result=result)
    os.chdir(launch.work_dir)
    importlib.invalidate_caches()


def _hide_secrets(launch: Launch, shim: socket.socket) -> None:
    if launch.spec.secrets:
        console.hide(launch.spec.secrets.values(), shim)
    else:
        shim.close()


def _hello() -> Hello:
    own, parent = processes.look(os.getpid()), processes.look(os.getppid())
    assert own is not None
    # A shim that is gone already (pid 0 below) is one that the host will not find: it then goes by what else marks the run's processes.
    kept = parent is not None and parent.session != own.session
    return Hello(own.pid, own.start_ticks, parent.pid if parent and kept else 0, parent.start_ticks if parent and kept else 0)


def _settle_in(launch: Launch) -> None:
    """The box first: everything below is done with the run's own rights, so a link that an earlier attempt left behind leads nowhere. Only
    the checkpoint of another run is opened before, because the run itself may not read it."""
    result = Path(launch.spec.result_dir)
    inherited = inheritance.open_checkpoint(launch.spec, result)
    for door in launch.groups:
        Path(door).write_text("0")
    enter.enter(launch.box)
    _make_folders(launch, result)
    if inherited is not None:
        inheritance.copy_inherited(inherited, result)
    _fill_work_dir(launch)
    _link_temporary(launch, result)
    _take_console(Path(launch.log_dir, "console.log"))
    os.environ.clear()
    os.environ.update(launch.environment)
    os.chdir(launch.work_dir)
    # What stood first was the folder the warm process was started in; modules of the script must not be looked for there.
    sys.path[:] = [*sys.path[1:], *launch.python_path]
    if launch.environment_dir:
        layer.enter(Path(launch.environment_dir))
    importlib.invalidate_caches()


def _make_folders(launch: Launch, result: Path) -> None:
    for folder in (launch.log_dir, result / "model", result / "checkpoint", result / "tmp"):
        Path(folder).mkdir(parents=True, exist_ok=True)


def _fill_work_dir(launch: Launch) -> None:
    folder = Path(launch.work_dir)
    below = folder / name_of_upload(launch.spec.module, launch.spec.argv[0])  # which the script means by the name of its package
    below.parent.mkdir(parents=True, exist_ok=True)
    workdir.make(Path(launch.code), below)
    for notebook in filter(None, map(notebooks.notebook_name, launch.spec.argv[:1])):
        workdir.write_script(notebook, Path(launch.code), folder)
    if launch.spec.data_dir:
        data_beside_code.link(Path(launch.spec.data_dir), Path(launch.code), folder)
    if text := launch.environment.get(CONFIG_JSON):
        workdir.write_config(text, folder)


def _link_temporary(launch: Launch, result: Path) -> None:
    if launch.temporary.startswith(f"{rootfs.SHARED_MEMORY}/"):
        _link(Path(launch.temporary), str(result / "tmp"))


def _link(link: Path, target: str) -> None:
    """Where it is right already it stays: the run's driver and its remote agents on other machines may be using it."""
    with contextlib.suppress(OSError):
        if str(link.readlink()) == target:
            return
    beside = link.with_name(f".{link.name}.{os.getpid()}.{time.monotonic_ns()}")
    beside.symlink_to(target)
    beside.replace(link)


def _take_console(path: Path) -> None:
    """stdout and stderr into the run's console, appended; nothing to read from."""
    console.print_to(path)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    if null > 2:
        os.close(null)
