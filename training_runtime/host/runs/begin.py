"""How a run begins: a record, a process forked by the warm one, its launch request through the gate (see `launch` for the child's side),
and letting it go."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import os
import secrets
import signal
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from training_runtime import journal, json_object, notebooks, processor, storage
from training_runtime.errors import ProtocolError, SandboxRefused
from training_runtime.host import sockets
from training_runtime.host.node import Node
from training_runtime.host.runs import ending, fabric, script_environment, talk
from training_runtime.host.runs.journals import journal_size
from training_runtime.host.runs.launch import GO, Hello, Launch, Ready, to_line
from training_runtime.host.runs.live import LiveRun, folder_of
from training_runtime.host.runs.script_environment import Places
from training_runtime.host.sandbox import levels, rootfs
from training_runtime.host.sandbox.levels import Abilities
from training_runtime.host.settings import Settings
from training_runtime.host.sockets import LineSocket
from training_runtime.protocol import RunSpec
from training_runtime.records import build
from training_runtime.variables import BEGUN_AGAIN, GPU_UUIDS

log = logging.getLogger(__name__)
_MAX_TRIES = 5
_NO_UUID = (
    "NVIDIA's driver tells no UUID of a GPU that it has not started, and by that a worker is told its own where EDT_SANDBOX_DEVICES is on: "
    "have the GPUs started for good (nvidia-persistenced, or nvidia-smi -pm 1)"
)
_LONG_PATH_BYTES = 60  # multiprocessing makes sockets some 32 bytes deeper in TMPDIR, and their addresses hold 107


def record(node: Node, spec: RunSpec, *, attempt: int, restarts: int, reason: str, losses: int = 0) -> LiveRun:
    """A run that waits for its launch; replaces the record of an earlier attempt."""
    run = LiveRun(spec.run, attempt, spec.result_dir, restarts=restarts, spec=spec, reason=reason, remote=spec.remote, losses=losses)
    run.journal_start = run.journal_bytes = 0 if spec.remote else journal_size(spec.result_dir)
    with contextlib.suppress(OSError):
        run.folder = folder_of(spec.result_dir)
    node.runs[spec.run] = run
    node.changed = True
    return run


def refuse(node: Node, run: LiveRun, why: str) -> None:
    """It cannot be started at all; trying again would not help."""
    run.phase, run.exit_code, run.problem, run.ended_at = "ended", 1, why, time.monotonic()
    node.changed = True
    log.error("a run cannot be started: %s run=%d", why, run.run)


def decline(node: Node, spec: RunSpec, *, attempt: int, reason: str) -> None:
    """It is to be stopped, and was not begun here."""
    run = record(node, spec, attempt=attempt, restarts=0, reason=reason)
    run.phase, run.exit_code, run.problem = "ended", -signal.SIGTERM, "stopped before it was started here"


def put_off(run: LiveRun, why: str) -> None:
    """Nothing of it has begun, for want of room or of a file system; that passes."""
    run.problem, run.retry_at = why, time.monotonic() + storage.RETRY_S


def driver_has_begun(spec: RunSpec) -> bool:
    """Whether the run's driver was ever at work, wherever that is: then its folder belongs to the run's user already. Two hosts that give
    it away at once, or one that does while user code writes in it, would be a race."""
    path = Path(spec.result_dir, journal.FILE_NAME)
    return path.is_file() and not path.is_symlink()


def launch(node: Node, run: LiveRun, request: Launch, fork: Callable[[socket.socket, socket.socket, Path], None]) -> None:
    """Have a driver forked and send it its request; the rest happens as it answers."""
    run.uid, run.retry_at, run.socket_token = request.box.uid, None, secrets.token_hex(16)
    node.exit_file(run).unlink(missing_ok=True)  # a remote agent's attempt is the run's, so it may have had this name before
    ours, theirs = socket.socketpair()
    try:
        node.groups.make(run.group)
        listener = sockets.listen(node.socket_file(run))
    except OSError as error:
        ours.close()
        theirs.close()
        _put_off_or_fail(node, run, error)
        return
    with theirs, listener:
        run.gate = LineSocket(ours)
        try:
            fork(theirs, listener, node.exit_file(run))
            run.gate.send(to_line(dataclasses.replace(request, secret=run.socket_token, groups=node.groups.doors(run.group))))
        except OSError as error:
            _put_off_or_fail(node, run, error)
            return
    node.watch(run.gate, functools.partial(on_gate, node, run))


def on_gate(node: Node, run: LiveRun, _mask: int) -> None:
    """The child speaks: who it is, then that it is boxed in."""
    if run.gate is None:
        return
    try:
        run.gate.flush()
        lines, is_open = run.gate.receive()
        for line in lines:
            raw = json_object.parse(line)
            if "pid" in raw and not run.pid:  # once, before any code of people runs in it
                met(node, run, build(Hello, raw))
            else:
                open_gate(node, run, build(Ready, raw))
    except (ProtocolError, OSError) as error:
        _failed(node, run, str(error))
        return
    if run.gate is None:
        return
    if is_open:
        node.watch(run.gate, functools.partial(on_gate, node, run))
    else:
        _failed(node, run, "the new process ended before it was ready")


def met(node: Node, run: LiveRun, hello: Hello) -> None:
    """Which process the run's is; its end is heard of from here on."""
    run.pid, run.start_ticks = hello.pid, hello.start_ticks
    run.shim, run.shim_ticks = hello.shim, hello.shim_ticks
    node.save()
    ending.watch(node, run)


def open_gate(node: Node, run: LiveRun, ready: Ready) -> None:
    """The child is boxed in: from here on the run is alive."""
    if ready.refused:
        run.problem = ready.problem
        talk.close(node, run)
        return
    if run.gate is None:
        return  # it has ended already: its end was seen between its first word and this one
    run.phase, run.began_at = "alive", time.monotonic()
    run.interrupted = run.interrupted and not run.spare  # see `spares`: that held until now
    node.changed = True
    if not node.save():  # before the gate opens: a host that dies after it must be able to find this process again
        run.phase, run.interrupted = "launching", True
        talk.close(node, run)  # so it goes by itself, and the next attempt begins when there is room
        return
    gate, run.gate = run.gate, None
    node.unwatch(gate)
    gate.send(GO)
    gate.close()
    what = "remote agent" if run.remote else "driver"
    log.info("a %s runs run=%d attempt=%d pid=%d uid=%s", what, run.run, run.attempt, run.pid, run.uid)
    talk.connect(node, run)


def _put_off_or_fail(node: Node, run: LiveRun, error: OSError) -> None:
    if error.errno in storage.UNAVAILABLE:
        talk.close(node, run)
        put_off(run, str(error))
    else:
        _failed(node, run, str(error))


def _failed(node: Node, run: LiveRun, why: str) -> None:
    """Nothing of the user's has run. Tried again after a pause, unless the child is known: then its end tells the rest."""
    talk.close(node, run)
    if run.pid:
        return
    run.launch_failures += 1
    log.warning("a driver could not be started: %s run=%d try=%d", why, run.run, run.launch_failures)
    if run.launch_failures >= _MAX_TRIES:
        refuse(node, run, f"its process could not be started: {why}")
    else:
        run.retry_at = time.monotonic() + 0.1 * 2**run.launch_failures


def compose(run: LiveRun, *, settings: Settings, abilities: Abilities, warm: Mapping[str, str], packages: Path | None = None) -> Launch:
    """What a run's driver or remote agent is launched with; `packages`: the folder of its environment. Raises SandboxRefused or OSError
    with a sentence when it cannot be started."""
    spec = run.spec
    assert spec is not None
    _check_places(spec)
    address = spec.address or settings.address
    if spec.remote and not address:
        raise SandboxRefused(f"{settings.node} has no address under which other machines reach it (EDT_NODE_ADDRESS)")
    home = fabric.folder(settings.folder)
    layer = str(packages or "")
    several = bool(address) and spec.elastic and not spec.torchrun
    box = levels.box_for(spec, abilities, policy=settings.policy, fabric_home=str(home), environment=layer, several=several)
    places = Places(
        work_dir=f"{spec.result_dir}/_submitted_code/{script_environment.folder_name(spec.name)}",
        log_dir=f"{spec.result_dir}/log/{script_environment.log_folder(settings.node, remote=spec.remote)}",
        temporary=_temporary(spec, box),
        fabric_home=str(home),
        packages=str(fabric.packages(home)),
        modules=(str(fabric.archive(home)), str(fabric.helpers(home))),
    )
    variables = script_environment.run_environment(spec, places=places, warm=warm) | {"EDT_NETWORK": box.reach}
    if several:
        variables["EDT_ADDRESS"] = address
    if layer:
        variables |= {"VIRTUAL_ENV": layer, "PATH": f"{layer}/bin:{variables.get('PATH', '')}"}
    _add_settings(variables, spec, settings)
    variables |= {BEGUN_AGAIN: run.reason} if run.restarts else {}
    return Launch(
        spec=dataclasses.replace(spec, argv=_of_script(spec.argv), attempt=run.attempt, code_dir=places.work_dir),
        driver=settings.driver,
        box=box,
        environment=variables,
        python_path=(places.packages, *places.modules),
        code=spec.code_dir,
        work_dir=places.work_dir,
        log_dir=places.log_dir,
        temporary=places.temporary,
        environment_dir=layer,
    )


def _of_script(argv: tuple[str, ...]) -> tuple[str, ...]:
    return (*map(notebooks.script_name, argv[:1]), *argv[1:])


def _temporary(spec: RunSpec, box: levels.Box) -> str:
    path = str(Path(spec.result_dir, "tmp"))
    if box.private and len(os.fsencode(path)) > _LONG_PATH_BYTES:
        return rootfs.TEMPORARY if box.own_tmp else str(Path(rootfs.SHARED_MEMORY, "tmp"))  # the same under a shorter name
    return path


def _add_settings(variables: dict[str, str], spec: RunSpec, settings: Settings) -> None:
    """What the run's driver must know of the settings of its machine. Raises SandboxRefused."""
    if settings.slots is not None:
        variables["EDT_NODE_SLOTS"] = str(settings.slots)
    if spec.release_grace_s:
        variables["EDT_RELEASE_GRACE_S"] = f"{spec.release_grace_s:g}"
    if settings.policy.devices and (uuids := _uuids()):
        variables[GPU_UUIDS] = uuids
    variables["EDT_DISK_LOW_BYTES"] = str(settings.marks.low)
    variables.setdefault("EDT_CHECKPOINT_MINUTES", f"{settings.checkpoint_minutes:g}")


def _uuids() -> str:
    """Of this machine's GPUs: CUDA numbers only those that it can open, so a worker is told its own by a name that nobody else's opening
    changes. Raises SandboxRefused."""
    found = [gpu.uuid for gpu in processor.gpu_list()]
    if any(not uuid or "?" in uuid for uuid in found):
        raise SandboxRefused(_NO_UUID)
    return ",".join(found)


def _check_places(spec: RunSpec) -> None:
    for what, path in (("code", spec.code_dir), ("result", spec.result_dir)):
        folder = Path(path)
        if not folder.is_absolute() or not folder.is_dir() or folder.is_symlink():
            raise SandboxRefused(f"the run's {what} folder {path} is not there")
    if spec.continue_from and Path(spec.continue_from).parent != Path(spec.result_dir).parent:
        raise SandboxRefused(f"{spec.continue_from}, to continue from, is not the folder of a run beside this one")
    if spec.data_dir and not Path(spec.data_dir).exists():
        raise SandboxRefused(f"the run's data folder {spec.data_dir} is not there")
