"""How long slots were at work: measured on this very process, and through a real node host."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from tests.host.conftest import HostUnderTest
from training_runtime.host import processes
from training_runtime.host.meter import utilization
from training_runtime.host.meter.utilization import GpuUse, Meter, boot_s, nvidia
from training_runtime.host.runs.live import LiveRun
from training_runtime.protocol import Device, SlotRef, SlotSeen, Worker

SHARED_BYTES = 64 << 20


def myself_as_worker(device: Device) -> LiveRun:
    run = LiveRun(7, 1, "/nowhere", members=(SlotRef(3, "here", 0, device),))
    run.workers[Worker(3, os.getpid(), ticks(os.getpid()))] = -1
    return run


def seen_slots(run: LiveRun) -> tuple[SlotSeen, ...]:
    return run.observation().slots or ()


def ticks(pid: int) -> int:
    process = processes.look(pid)
    assert process is not None
    return process.start_ticks


def family() -> list[int]:
    """This process and all that it has started: servers that tests share may be among these."""
    return [os.getpid(), *processes.descendants({os.getpid()}, processes.table())]


def memory_of(pids: list[int]) -> int:
    return sum(processes.memory_bytes(pid) or 0 for pid in pids)


def used_by(pids: list[int]) -> float:
    found = processes.table()
    return sum(processes.processor_s(pid, found[pid].start_ticks) or 0.0 for pid in pids if pid in found)


def work(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_a_cpu_slot_is_as_busy_as_its_worker_and_never_more_than_it_is_held() -> None:
    began = boot_s()
    run, meter = myself_as_worker("cpu"), Meter(lambda _: None)
    meter.sample([run])
    assert run.busy_s == 0, "what was before the meter is not counted"
    work(0.2)
    meter.sample([run])
    assert run.busy_s is not None
    assert 0.15 <= run.busy_s <= run.counted_s <= boot_s() - began + 0.02


@pytest.mark.parametrize("has_ended", [False, True])
def test_what_a_worker_has_started_is_its_work_too(has_ended: bool) -> None:
    """A script that runs a program, or has its data loaded by processes of their own."""
    code = "import time; input(); end = time.process_time() + 0.4\nwhile time.process_time() < end: pass\nprint(flush=True); input()"
    run, meter = myself_as_worker("cpu"), Meter(lambda _: None)
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        meter.sample([run])
        program.stdin.write(b"\n")
        program.stdout.readline()
        if has_ended:
            program.communicate(b"\n")
        meter.sample([run])
        if not has_ended:
            program.communicate(b"\n")
    assert run.busy_s is not None
    assert 0.35 <= run.busy_s <= run.counted_s


def test_of_thousands_of_processes_some_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(utilization, "_MOST_BELOW", 1)
    with subprocess.Popen(["sleep", "60"]) as one, subprocess.Popen(["sleep", "60"]) as other:
        try:
            run, meter = myself_as_worker("cpu"), Meter(lambda _: None)
            looked_at: list[int] = []
            look = processes.processor_s
            monkeypatch.setattr(processes, "processor_s", lambda pid, ticks: looked_at.append(pid) or look(pid, ticks))
            meter.sample([run])
        finally:
            one.kill()
            other.kill()
    assert len(looked_at) == 2
    assert looked_at[0] == os.getpid()


def test_no_process_counts_for_two_workers() -> None:
    family = {number: processes.Kin(number, parent, 5) for number, parent in [(2, 1), (3, 2), (4, 3), (5, 2), (6, 4)]}
    found = processes.families({2, 4}, family)
    assert {root: {each.pid for each in below} for root, below in found.items()} == {2: {3, 5}, 4: {6}}


def test_a_process_on_several_slots_is_at_work_and_has_memory_once() -> None:
    run, meter = myself_as_worker("cpu"), Meter(lambda _: None)
    run.members = (SlotRef(3, "here", 0, "cpu"), SlotRef(4, "here", 1, "cpu"))
    run.workers[Worker(4, os.getpid(), ticks(os.getpid()))] = -1
    pids = family()
    meter.sample([run])
    before, used = run.measured, used_by(pids)
    work(0.2)
    meter.sample([run])
    assert run.busy_s == pytest.approx(used_by(pids) - used, abs=0.1)  # not twice
    assert sum(each.memory_bytes or 0 for each in before.values()) == pytest.approx(memory_of(pids), rel=0.2)


def test_memory_that_processes_share_is_counted_once() -> None:
    """What a driver has loaded is in its forked workers too: each has its part, and all of them together no more than there is."""
    data = b"x" * SHARED_BYTES
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writer)
        os.read(reader, 1)  # until its parent has looked
        os._exit(len(data) == 0)
    try:
        both = [processes.memory_bytes(pid) for pid in (os.getpid(), child)]
        whole = memory_of(family())
        run, meter = myself_as_worker("cpu"), Meter(lambda _: None)
        meter.sample([run])
    finally:
        os.close(writer)
        os.waitpid(child, 0)
        os.close(reader)
    alone = processes.memory_bytes(os.getpid())
    assert None not in (*both, alone)
    assert both[0] + SHARED_BYTES / 4 < alone, "half of the data was its child's"
    assert both[1] > SHARED_BYTES / 4
    assert run.measured[3].memory_bytes == pytest.approx(whole, rel=0.1)


def test_memory_is_looked_at_seldom_and_forgotten_with_its_worker() -> None:
    run, meter = myself_as_worker("cpu"), Meter(lambda _: None)
    meter.sample([run])
    before, more = run.measured[3].memory_bytes, b"y" * SHARED_BYTES
    meter.sample([run])
    assert run.measured[3].memory_bytes == before, f"{len(more)} bytes are not seen at once: looking costs"
    run.workers.clear()
    meter.sample([run])
    assert run.observation().slots == ()


def test_a_gpu_slot_is_as_busy_as_its_driver_says() -> None:
    run, meter = myself_as_worker("gpu"), Meter({0: GpuUse(0.5, 3 << 30, 80 << 30)}.get)
    meter.sample([run])
    began = boot_s()
    work(0.05)
    meter.sample([run])
    assert run.busy_s == pytest.approx((boot_s() - began) / 2, abs=0.02)
    assert run.counted_s == pytest.approx(2 * run.busy_s)
    (slot,) = seen_slots(run)
    assert (slot.slot, slot.memory_bytes, slot.device_bytes, slot.gpu) == (3, 3 << 30, 80 << 30, 0)
    assert (slot.busy_s, slot.counted_s) == (pytest.approx(run.busy_s, abs=0.001), pytest.approx(run.counted_s, abs=0.001))


def test_each_slot_has_its_own_count_which_begins_anew_with_its_worker(request: pytest.FixtureRequest) -> None:
    run, meter = myself_as_worker("cpu"), Meter(lambda _: None)
    run.members = (*(run.members or ()), SlotRef(4, "here", 1, "cpu"))
    run.workers[first := sleeper(request)] = -1
    meter.sample([run])
    work(0.1)
    meter.sample([run])
    busy, idle = seen_slots(run)
    assert (busy.slot, idle.slot) == (3, 4)
    assert (busy.busy_s or 0) > 0.08 > (idle.busy_s or 0)
    assert run.busy_s == pytest.approx((busy.busy_s or 0) + (idle.busy_s or 0), abs=0.002)
    del run.workers[first]
    run.workers[sleeper(request)] = -1
    meter.sample([run])
    assert run.measured[3].since_s == busy.since_s
    assert run.measured[4].since_s > idle.since_s + 0.05
    assert run.measured[4].counted_s < 0.1


def sleeper(request: pytest.FixtureRequest) -> Worker:
    process = subprocess.Popen(["/bin/sleep", "60"])
    request.addfinalizer(process.wait)
    request.addfinalizer(process.kill)
    return Worker(4, process.pid, ticks(process.pid))


def test_what_cannot_be_measured_is_unknown_and_stays_so() -> None:
    run, meter = myself_as_worker("gpu"), Meter(lambda _: None)
    meter.sample([run])
    seen = run.observation()
    assert (seen.busy_s, seen.counted_s) == (None, 0.0)
    assert [(slot.busy_s, slot.counted_s, slot.memory_bytes, slot.device_bytes) for slot in seen_slots(run)] == [(None, 0.0, None, None)]
    Meter({0: GpuUse(1.0, None)}.get).sample([run])
    assert run.busy_s is None


def test_a_worker_of_which_the_studio_has_not_spoken_yet_is_left_alone() -> None:
    run = myself_as_worker("cpu")
    run.members = None
    Meter(lambda _: None).sample([run])
    assert run.busy_s == 0


def test_without_a_driver_nothing_is_known_of_gpus() -> None:
    use, health = nvidia()
    assert all(each.gpu >= 0 for each in health())
    found = use(0)
    assert found is None or (0 <= found.share <= 1 and (found.memory_bytes is None or found.memory_bytes > 0))


def test_the_host_tells_work_from_waiting(host: HostUnderTest) -> None:
    began = time.monotonic()
    host.want(host.spec(7, "compute"), 1)
    host.want(host.spec(8, "obey"), 2)
    host.apply()
    host.until_run(7, lambda run: (run.busy_s or 0) > 0.5)
    found = {run.run: run.busy_s for run in host.look().runs}
    assert found[7] is not None
    assert found[8] is not None
    assert 0.5 < found[7] <= time.monotonic() - began
    assert found[8] < found[7] / 2


def test_the_memory_of_a_worker_grows_with_what_it_takes(host: HostUnderTest) -> None:
    host.want(host.spec(7, "hoard", str(SHARED_BYTES)), 1, 2)
    host.apply()
    began = host.until_run(7, lambda run: len(run.slots or ()) == 2)
    assert {each.slot for each in began.slots or ()} == {1, 2}
    (host.result(7) / "take").touch()
    before = [each.memory_bytes or 0 for each in began.slots]
    host.until_run(
        7, lambda run: all((now.memory_bytes or 0) >= was + SHARED_BYTES * 0.9 for now, was in zip(run.slots, before, strict=True))
    )


def test_what_was_counted_outlives_the_host(own_host: HostUnderTest) -> None:
    own_host.want(own_host.spec(7, "compute"), 1)
    own_host.apply()
    counted = own_host.until_run(7, lambda run: (run.busy_s or 0) > 0.2).busy_s
    own_host.want(own_host.spec(8, "obey"), 2)  # a change, so that the state is written down
    own_host.apply()
    own_host.until_holding(8, 2)
    own_host.kill()
    own_host.start()
    own_host.apply()
    assert counted is not None
    own_host.until_run(7, lambda run: (run.busy_s or 0) > counted + 0.2)
