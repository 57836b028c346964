"""How long slots were at work: measured on this very process, and through a real node host."""

from __future__ import annotations

import os
import time

import pytest

from tests.host.conftest import HostUnderTest
from training_runtime.host import processes
from training_runtime.host.busy import Meter, boot_s, nvidia_share
from training_runtime.host.live import LiveRun
from training_runtime.protocol import Device, SlotRef, Worker


def myself_as_worker(device: Device) -> LiveRun:
    process = processes.look(os.getpid())
    assert process is not None
    run = LiveRun(7, 1, "/nowhere", members=(SlotRef(3, "here", 0, device),))
    run.workers[Worker(3, process.pid, process.start_ticks)] = -1
    return run


def work(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_a_cpu_slot_is_as_busy_as_its_worker_and_never_more_than_it_is_held() -> None:
    run, meter = myself_as_worker("cpu"), Meter(lambda _: None)
    meter.sample([run])
    assert run.busy_s == 0, "what was before the meter is not counted"
    began = boot_s()
    work(0.2)
    meter.sample([run])
    assert run.busy_s is not None
    assert 0.15 <= run.busy_s <= boot_s() - began + 0.02


def test_a_gpu_slot_is_as_busy_as_its_driver_says() -> None:
    run, meter = myself_as_worker("gpu"), Meter({0: 0.5}.get)
    meter.sample([run])
    began = boot_s()
    work(0.05)
    meter.sample([run])
    assert run.busy_s == pytest.approx((boot_s() - began) / 2, abs=0.02)


def test_what_cannot_be_measured_is_unknown_and_stays_so() -> None:
    run, meter = myself_as_worker("gpu"), Meter(lambda _: None)
    meter.sample([run])
    assert run.observation().busy_s is None
    Meter({0: 1.0}.get).sample([run])
    assert run.busy_s is None


def test_a_worker_of_which_the_studio_has_not_spoken_yet_is_left_alone() -> None:
    run = myself_as_worker("cpu")
    run.members = None
    Meter(lambda _: None).sample([run])
    assert run.busy_s == 0


def test_without_a_driver_nothing_is_known_of_gpus() -> None:
    share = nvidia_share()(0)
    assert share is None or 0 <= share <= 1


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
