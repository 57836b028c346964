"""People, plans and a slow host in any order: what must always hold of the grants, and where everything ends up once it is quiet."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as rounds
from hypothesis import strategies as st

from experiments import services
from experiments.cluster import desired, fleet, scheduling
from experiments.models import ClusterRules, Experiment, Grant, RunState, TrainingRun, User
from experiments.models.runs import LIVE
from tests import cast
from training_runtime.meeting import Meeting
from training_runtime.protocol import Apply, Observation, RunObservation
from training_runtime.scheduling.sizes import next_size

NOW = dt.datetime(2026, 11, 20, 12, 0, tzinfo=dt.UTC)
SECOND = dt.timedelta(seconds=1)
SLOTS = 4
MOST_RUNS = 5


class SlowHost:
    """Hears of snapshots late, starts and ends processes when it likes, and tells the truth about what it saw last, maybe late too."""

    def __init__(self, name: str) -> None:
        self.node = cast.node(name, slots=SLOTS, now=NOW, address="10.0.0.1")
        self.sent: list[Apply] = []
        self.seen: list[Observation] = []
        self.processes: dict[int, set[int]] = {}
        self.revision = 0
        self.exits: dict[int, int] = {}
        self.attempts: dict[int, int] = {}  # of the runs that were ever here
        self.agents: set[int] = set()  # of the processes here, those of runs whose driver is elsewhere

    def ask(self, now: dt.datetime) -> None:
        self.sent.append(desired.desired_state(self.node, now=now))

    def obey(self, keep: int) -> None:
        """Carry out the oldest snapshot that is on its way; `keep` of the processes that should go are still there afterwards."""
        if not self.sent:
            return
        apply = self.sent.pop(0)
        if apply.revision < self.revision:
            return
        self.revision = apply.revision
        wanted = {each.spec.run: {slot.id for slot in each.slots} for each in apply.runs}
        for run in [*self.processes]:
            leaving = sorted(self.processes[run] - wanted.get(run, set()))
            self.processes[run] -= set(leaving[keep:])
            if run not in wanted and not self.processes[run]:
                del self.processes[run]
        self.exits = {run: code for run, code in self.exits.items() if run in wanted}  # the studio knows, or wants the run elsewhere
        for spec in (each.spec for each in apply.runs):
            if spec.remote or spec.attempt > self.attempts.get(spec.run, 0):
                self.exits.pop(spec.run, None)  # of a driver of before: another role, or the next attempt, begins
        roles = {each.spec.run for each in apply.runs if each.spec.remote}
        self.attempts |= {each.spec.run: each.spec.attempt for each in apply.runs if each.spec.run not in self.exits}
        for run, slots in wanted.items():
            if (run in roles) != (run in self.agents) and not self.processes.get(run):
                self.agents ^= {run}  # the other role begins once nothing of this one is left
            if run not in self.exits and (run in roles) == (run in self.agents):
                self.processes.setdefault(run, set()).update(slots)
        self.look()

    def look(self) -> None:
        runs = [self._running(run, slots) for run, slots in self.processes.items()]
        ended = [
            RunObservation(run=run, attempt=self.attempts[run], state="exited", holding=(), exit_code=code)
            for run, code in self.exits.items()
        ]
        self.seen.append(Observation(revision=self.revision, node=cast.facts(self.node.name, address="10.0.0.1"), runs=(*runs, *ended)))

    def _running(self, run: int, slots: set[int]) -> RunObservation:
        remote = run in self.agents
        meeting = None if remote else Meeting("10.0.0.1", 40_000 + run, "secret of the run")
        return RunObservation(run, self.attempts[run], "running", tuple(sorted(slots)), remote=remote, meeting=meeting)

    def tell(self, now: dt.datetime) -> None:
        if self.seen:
            fleet.record(self.seen.pop(0), now=now)

    def end(self, run: int, code: int) -> None:
        """A remote agent that ends comes again with the next snapshot."""
        if run in self.agents:
            self.processes.pop(run, None)
            self.look()
        elif self.processes.pop(run, None) is not None:
            self.exits[run] = code
            self.look()

    def shared_slots(self) -> list[int]:
        """Slots on which processes of more than one run are."""
        everywhere = [slot for slots in self.processes.values() for slot in slots]
        return sorted(slot for slot in set(everywhere) if everywhere.count(slot) > 1)


KINDS = ["submit", "stop", "pause", "resume", "end", "obey", "obey", "look", "tell", "tell", "ask", "ask", "tick", "tick", "tick", "drain"]
ACTIONS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 2), st.integers(0, 6)), min_size=40, max_size=60)


def act(hosts: list[SlowHost], people: list[User], experiments: list[Experiment], action: tuple[str, int, int], now: dt.datetime) -> None:
    """One thing happens. There are few runs, so that things happen to the same ones again and again."""
    what, number, value = action
    host = hosts[value % len(hosts)]
    runs = list(TrainingRun.objects.order_by("pk"))
    run = runs[number % len(runs)] if runs else None
    if what == "submit" and len(runs) < MOST_RUNS:
        made = services.run_experiment(experiments[number % 2], by=people[number % 2], now=now)[0]
        services.set_slots(made, by=people[0], min_slots=1 + (value == 6), max_slots=max(2, value))
        TrainingRun.objects.filter(pk=made.pk).update(engines=12)  # it comes to train() at once; every size up to 4 is useful
    elif what == "tick":
        scheduling.tick(now)
    elif what == "ask":
        host.ask(now)
    elif what == "obey":
        host.obey(number)
    elif what == "look":
        host.look()
    elif what == "tell":
        host.tell(now)
    elif what == "drain":
        fleet.drain_node(host.node, draining=not number)
    elif run is not None and what == "end":
        host.end(run.pk, (0, 1, -9)[value % 3])
    elif run is not None and what in ("stop", "pause", "resume"):
        verb = {"stop": services.stop_run, "pause": services.pause_run, "resume": services.resume_run}[what]
        verb(run, by=people[0])


def check(hosts: list[SlowHost], *, several: bool) -> None:
    for host in hosts:
        assert host.shared_slots() == []
        for run, slots in host.processes.items():
            held = cast.slots_of(TrainingRun.objects.get(pk=run))
            assert slots <= held, f"run {run} has processes on slots {slots - held} that are no longer granted to it"
    at_work = Counter(run for host in hosts for run, slots in host.processes.items() if slots)
    assert several or max(at_work.values(), default=0) <= 1, "a run is at work on one machine"
    drivers = Counter(run for host in hosts for run, slots in host.processes.items() if slots and run not in host.agents)
    assert max(drivers.values(), default=0) <= 1, "a run has one driver that holds slots"


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("said")
@pytest.mark.parametrize(("machines", "several"), [(1, False), (2, False), (2, True)])
@rounds(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(actions=ACTIONS)
def test_no_slot_is_ever_shared_and_everything_comes_to_rest(
    machines: int, several: bool, actions: list[tuple[str, int, int]], alice: User, bob: User, home: Path
) -> None:
    Grant.objects.all().delete()
    TrainingRun.objects.all().delete()
    ClusterRules.objects.update_or_create(pk=1, defaults={"several_machines": several})
    people = [alice, bob]
    experiments = [cast.experiment(services.create_project(by=person, name="any order"), by=person) for person in people]
    hosts = [SlowHost(f"machine-{number}") for number in range(machines)]
    act(hosts, people, experiments, ("submit", 0, 4), NOW)
    for second, action in enumerate(actions):
        act(hosts, people, experiments, action, NOW + second * SECOND)
        check(hosts, several=several)
    now = NOW + len(actions) * SECOND
    for host in hosts:
        fleet.drain_node(host.node, draining=False)
        host.look()
        host.tell(now)
    for _ in range(8):  # quiet: everything that is on its way arrives, and nothing new is asked for
        scheduling.tick(now)
        for host in hosts:
            host.ask(now)
            while host.sent or host.seen:
                host.obey(0)
                host.tell(now)
                check(hosts, several=several)
            for run in TrainingRun.objects.filter(state=RunState.STOPPING, head_node=host.node):
                host.end(run.pk, 0)
    summary = scheduling.tick(now)
    assert (summary.granted, summary.asked_back) == ((), ())
    at_rest(hosts, several=several)


def at_rest(hosts: list[SlowHost], *, several: bool) -> None:
    assert not Grant.objects.filter(released_at=None).exclude(run__state__in=LIVE).exists()
    for run in TrainingRun.objects.filter(state__in=LIVE):
        held = cast.slots_of(run)
        assert held == {slot for host in hosts for slot in host.processes.get(run.pk, set())}
        assert len(held) <= run.max_slots
        assert not (run.paused and held)
        assert run.leave_revision is None
    wanting = TrainingRun.objects.filter(state__in=LIVE, paused=False)
    if several:
        free = len(hosts) * SLOTS - Grant.objects.filter(released_at=None).count()
        for run in wanting:
            size = len(cast.slots_of(run))
            larger = next_size(size, engines=run.engines, most=run.max_slots) if size else run.min_slots
            assert larger is None or larger - size > free, "slots are free that a run could use"
        return
    for host in hosts:
        there = Grant.objects.filter(released_at=None, slot__node=host.node)
        wanted = sum(run.max_slots for run in wanting if run.head_node in (host.node, None))
        assert there.count() >= min(SLOTS - 1, wanted), "a machine has slots free that somebody there could use"
