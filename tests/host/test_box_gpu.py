"""What CUDA needs of the box, as far as it shows without a GPU: the box is real, and what CUDA does at its start is done by hand."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.host.box import needs_landlock, needs_root
from training_runtime.host.sandbox import enter, levels, probe
from training_runtime.host.sandbox.levels import Box, Level
from training_runtime.protocol import RunSpec

pytestmark = [needs_landlock, needs_root]
PRESSURE = "/proc/pressure/"  # where the kernel lets everybody ask to be told when the machine is short of something
THREAD = b"cuda00001400006"  # as CUDA calls one of its own


@pytest.fixture
def box(reachable: Path) -> Callable[[Level], Box]:
    """Of a run with a user of its own, or of one that is the studio's user, which is root here."""
    reachable.chmod(0o755)
    for name in ("code", "result"):
        (reachable / name).mkdir()
    spec = RunSpec(7, "test", "alice", ("main.py",), str(reachable / "code"), str(reachable / "result"), "", 1)

    def make(level: Level) -> Box:
        can = levels.Abilities(level, private=level == "user+landlock", notes=())
        return levels.box_for(spec, can, policy=levels.Policy(), fabric_home=str(reachable / "code"))

    return make


@pytest.fixture
def a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(enter, "CUDA_DEVICE", "/dev/null")  # which is there
    yield


def within(box: Box, action: Callable[[], Any]) -> Any:
    """What it returns in a child that is in this box."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            enter.enter(box)
            said = action()
        except BaseException as error:
            said = repr(error)
        os.write(writer, json.dumps(said).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        found = json.loads(answer.read())
    os.waitpid(child, 0)
    return found


def name_a_thread() -> int:
    """0, or the number of the error."""
    enough = threading.Event()
    thread = threading.Thread(target=enough.wait)
    thread.start()
    try:
        return int(ctypes.CDLL(None).pthread_setname_np(ctypes.c_ulong(thread.ident or 0), THREAD))
    finally:
        enough.set()
        thread.join()


def test_on_a_machine_with_gpus_a_run_may_name_its_threads_without_which_cuda_does_not_start(box: Callable, a_gpu: None) -> None:
    assert within(box("user+landlock"), name_a_thread) == 0


def test_on_a_machine_without_it_may_not(box: Callable) -> None:
    assert within(box("user+landlock"), name_a_thread) == errno.EACCES


def test_root_without_rights_may_not_for_it_could_change_the_settings_of_the_machine(box: Callable, a_gpu: None) -> None:
    assert within(box("landlock"), name_a_thread) == errno.EACCES


def test_nothing_of_the_machine_or_of_other_processes_can_be_written_in_proc(box: Callable, a_gpu: None) -> None:
    parent = os.getpid()
    others = [f"/proc/{parent}/{name}" for name in ("comm", "mem", "oom_score_adj", "coredump_filter", f"task/{parent}/comm")]

    def try_all() -> list[str]:
        own = {Path("/proc", name) for name in (str(os.getpid()), "self", "thread-self")}
        machine = [path for path in Path("/proc").iterdir() if path not in own and not path.name.isdigit()]
        files = [str(each) for path in machine for each in ([path] if path.is_file() else path.rglob("*")) if each.is_file()]
        return [path for path in (*others, *files) if can_be_written(path)]

    found = within(box("user+landlock"), try_all)
    assert [path for path in found if not path.startswith(PRESSURE)] == []


def can_be_written(path: str) -> bool:
    try:
        descriptor = os.open(path, os.O_WRONLY)
    except OSError:
        return False
    try:
        return path.startswith(PRESSURE) or os.write(descriptor, b"1") > 0
    except OSError:
        return False
    finally:
        os.close(descriptor)


def test_where_cuda_starts_but_not_in_the_box_the_machine_says_so(box: Callable, monkeypatch: pytest.MonkeyPatch, reachable: Path) -> None:
    device = reachable / "nvidia-uvm"
    device.touch()
    monkeypatch.setattr(enter, "CUDA_DEVICE", str(device))
    monkeypatch.setattr(probe, "start_cuda", lambda: f"cuInit says {error}" if (error := name_a_thread()) else "")
    assert probe.NO_CUDA.format("cuInit says 13") in probe.strongest(reachable, levels.Policy()).notes
    found = enter.devices()
    monkeypatch.setattr(enter, "devices", lambda: (*found, str(device)))
    assert not any("CUDA" in note for note in probe.strongest(reachable, levels.Policy()).notes)


def test_without_its_library_it_does_not_start() -> None:
    assert "libcuda.so.1" in probe.start_cuda()
