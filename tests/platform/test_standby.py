"""Of two control sides one keeps time; whatever becomes of it, the other goes on in seconds, and no slot is granted twice."""

from __future__ import annotations

import contextlib
import re
import signal
import urllib.request
from collections.abc import Iterator

import pytest

from tests.domain import postgres
from tests.e2e.studio import free_port, printed_commands, wait_until
from tests.platform.control_sides import HANGS_WITH_THE_LOCK, SIDES, TWICE, ControlSides, running

HAS_NOTICED = re.compile("The database does not answer|The clock: connection")  # in a task, or, where none has come yet, by the clock
pytestmark = [
    pytest.mark.timeout(500),
    pytest.mark.skipif(postgres.programs() is None, reason="the PostgreSQL wheel is not installed"),
]


@pytest.fixture
def sides() -> Iterator[ControlSides]:
    with running() as sides:
        yield sides


def other(name: str) -> str:
    return SIDES[1 - SIDES.index(name)]


def takes_over(sides: ControlSides, name: str) -> None:
    wait_until(lambda: sides.holder() == name, lambda: f"{name} takes over\n{sides.words()}", every_s=0.05)


def gets_slots(sides: ControlSides, what: str) -> None:
    run = sides.submit()
    wait_until(
        lambda: sides.rows(f"SELECT 1 FROM experiments_grant WHERE run_id = {run}"), lambda: f"a run gets slots {what}\n{sides.words()}"
    )
    wait_until(
        lambda: sides.rows(f"SELECT 1 FROM experiments_trainingrun WHERE id = {run} AND state IN ('completed', 'failed')"),
        lambda: f"and ends {what}\n{sides.words()}",
    )


def serves_pages(sides: ControlSides) -> None:
    """With a web process of its own, as it is printed but for the port."""
    (command,) = [line for line in printed_commands("## A standby") if "webapp.studio.web" in line]
    port = free_port()
    sides.start("pages", command.replace("8000", str(port)))

    def is_ready() -> bool:
        with contextlib.suppress(OSError):
            return int(urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5).status) == 200
        return False

    wait_until(is_ready, lambda: f"its pages are there\n{sides.words()}")


def test_the_other_side_takes_over_when_the_one_with_the_clock_is_killed_or_stopped(sides: ControlSides) -> None:
    sides.plan_go_on("with both")
    serves_pages(sides)
    first = sides.holder()
    sides.kill(first)
    takes_over(sides, other(first))
    sides.plan_go_on("without the one that had the clock")
    gets_slots(sides, "by the other")

    sides.start_side(first)
    wait_until(lambda: (sides.home / "log" / f"{first}.log").read_text().count(" ready.") == 2, lambda: f"it is back\n{sides.words()}")
    sides.processes[other(first)].send_signal(signal.SIGSTOP)
    takes_over(sides, first)
    sides.plan_go_on("while the other is stopped", deadline_s=90)
    sides.processes[other(first)].send_signal(signal.SIGCONT)
    sides.plan_go_on("once it is back")
    assert sides.holder() == first, "who comes back takes nothing away"
    gets_slots(sides, "by both")
    assert sides.rows(TWICE) == []


def test_plans_go_on_when_the_database_was_away_and_when_somebody_hangs_with_their_lock(sides: ControlSides) -> None:
    sides.server.end(signal.SIGQUIT)
    wait_until(lambda: all(HAS_NOTICED.search((sides.home / "log" / f"{name}.log").read_text()) for name in SIDES), sides.words)
    assert all(sides.processes[name].poll() is None for name in SIDES)
    sides.server.start()
    wait_until(sides.holder, lambda: f"one has the clock\n{sides.words()}")
    sides.plan_go_on("after the database was away", deadline_s=90)
    gets_slots(sides, "after the database was away")

    sides.start("hangs", HANGS_WITH_THE_LOCK)
    waits = "SELECT 1 FROM pg_stat_activity WHERE state = 'idle in transaction' AND query LIKE '%clusterrules%FOR UPDATE%'"
    wait_until(lambda: sides.rows(waits), "somebody hangs with the lock that every plan takes")
    sides.plan_go_on("once the database has given it up", deadline_s=90)
    assert sides.holder()
    assert sides.rows(TWICE) == []
