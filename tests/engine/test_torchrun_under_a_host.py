"""A script for torchrun under a real node host, boxed in: its slots, its driver's death, its end."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.engine.harness import DEADLINE_S
from tests.engine.scripts import TORCHELASTIC
from tests.host.conftest import HostUnderTest, has_ended, make_host, until  # noqa: F401 - a fixture
from training_runtime import journal

SAMPLES = 480


def generations(host: HostUnderTest) -> list[journal.Generation]:
    lines = journal.follow(host.result(7) / journal.FILE_NAME)
    return [line.event for line in lines if isinstance(line.event, journal.Generation)]


def shown(host: HostUnderTest) -> int:
    path = host.result(7) / "checkpoint.pt.count"
    return int(path.read_text() or 0) if path.exists() else 0


def go_on(host: HostUnderTest, samples: int, *, starts: int = 0) -> None:
    """Until the script has come so far, after so many starts."""
    said = f"{samples} samples: {host.log()[-2000:]}{host.console(7)}"
    until(lambda: len(generations(host)) >= starts, deadline_s=DEADLINE_S, what=said)
    path = host.result(7) / "allowed"
    beside = host.home / "allowed.new"
    beside.write_text(str(samples))
    beside.chmod(0o644)
    beside.replace(path)
    until(lambda: shown(host) >= samples, deadline_s=DEADLINE_S, what=said)


def test_its_slots_come_and_go_and_its_driver_dies_and_every_sample_is_shown_once(
    tmp_path: Path,
    make_host: Callable[[Path], HostUnderTest],  # noqa: F811
) -> None:
    import torch

    host = make_host(tmp_path)
    host.start(driver="training_runtime.elastic.driver.main:main", preload="torch,numpy", environment={"EDT_STOP_GRACE_S": "10"})
    spec = dataclasses.replace(host.spec(7, "main.py", code={"main.py": TORCHELASTIC}), torchrun="elastic", max_restarts=1)
    host.want(spec, 1)
    host.apply()
    go_on(host, 16, starts=1)
    host.want(spec, 1, 2, reason="one more is free")
    host.apply()
    go_on(host, 40, starts=2)
    assert host.run(7).holding == (1, 2)

    os.kill(host.pid(7), signal.SIGKILL)
    host.until_run(7, lambda run: run.attempt == 2 and run.holding == (1, 2), deadline_s=DEADLINE_S)
    go_on(host, 80, starts=3)

    (kept, leaving) = (member.pid for member in generations(host)[-1].members)
    host.want(spec, 1, reason="bob needs one")
    host.apply()
    host.until_run(7, lambda run: run.holding == (1,), deadline_s=DEADLINE_S)
    assert has_ended(leaving), "the slot was free while its process was there"
    go_on(host, 100, starts=4)

    host.want(spec, reason="carol needs it")
    host.apply()
    host.until_run(7, lambda run: run.holding == (), deadline_s=DEADLINE_S)
    assert has_ended(generations(host)[-1].members[0].pid)
    assert host.run(7).state == "running", "it waits for slots"

    host.want(spec, 1, 2, reason="two are free")
    host.apply()
    go_on(host, SAMPLES, starts=5)
    ended = host.until_run(7, lambda run: run.state == "exited", deadline_s=DEADLINE_S)
    assert (ended.exit_code, ended.holding) == (0, ()), host.console(7)
    assert Counter(torch.load(host.result(7) / "checkpoint.pt")["shown"]) == Counter(range(SAMPLES))
    assert (host.result(7) / "final.pt").exists()
    assert [(each.generation, len(each.members)) for each in generations(host)] == [(1, 1), (2, 2), (3, 2), (4, 1), (5, 2)]
    assert kept != leaving
