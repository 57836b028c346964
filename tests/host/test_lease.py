"""A machine that may be given up for lost stops by itself first: the decision, and a real host."""

from __future__ import annotations

from tests.host.conftest import HostUnderTest
from tests.host.test_reconcile import RULES, seen, slots, wish
from training_runtime.host.actions import AskToStop, TellMembers
from training_runtime.host.lease import Lease
from training_runtime.host.reconcile import decide

OVER = "the studio has not been heard of for 2 s, so it may give these slots up for lost"


def test_a_lease_is_over_so_long_after_the_studio_was_last_heard_of():
    lease = Lease(2, now=10.0)
    assert lease.problem(11.9) == ""
    assert lease.due(11.9) == 12.0
    assert lease.problem(12.0) == OVER
    assert lease.due(12.0) is None
    lease.renew(13.0)
    assert lease.problem(14.9) == ""


def test_without_a_limit_it_is_never_over():
    lease = Lease(0, now=0.0)
    assert (lease.problem(1e9), lease.due(0.0)) == ("", None)


def test_when_it_is_over_what_runs_holds_no_slot_and_nothing_begins():
    assert decide(wish(1), seen("alive", members=slots(1)), now=1, rules=RULES, lease=OVER).actions == (
        TellMembers(7, (), OVER, suspend=True),
    )
    assert decide(wish(1), {}, now=1, rules=RULES, lease=OVER).actions == ()
    assert decide(wish(1, stop=True), seen("alive", members=()), now=1, rules=RULES, lease=OVER).actions == (AskToStop(7, "alice asked"),)


def test_what_an_earlier_host_has_left_holds_none_either_before_the_studio_has_spoken():
    assert decide(None, seen("alive", members=slots(1)), now=1, rules=RULES, lease=OVER).actions == (
        TellMembers(7, (), OVER, suspend=True),
    )
    assert decide(None, seen("alive", members=slots(1)), now=1, rules=RULES).actions == ()


def test_who_does_not_leave_its_slots_is_made_to():
    late = seen("alive", members=(), holding=(1,), overdue_since=0.0, suspended=True)
    assert decide(wish(1), late, now=1000.0, rules=RULES, lease=OVER).actions
    assert decide(None, late, now=1000.0, rules=RULES, lease=OVER).actions


def test_a_host_suspends_its_runs_when_nobody_speaks_and_goes_on_when_somebody_does(idle_host: HostUnderTest):
    idle_host.start(arguments=("--lease", "1"))
    idle_host.want(idle_host.spec(1, "obey"), 1)
    idle_host.apply()
    idle_host.until_run(1, lambda run: run.holding == (1,))
    idle_host.until_run(1, lambda run: run.holding == () and run.state == "running")
    revision = idle_host.revision
    idle_host.send(revision=revision)
    assert idle_host.look().runs[0].holding == (), "what is repeated is no news of the studio"
    idle_host.apply()
    idle_host.until_run(1, lambda run: run.holding == (1,))
