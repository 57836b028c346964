"""What many joined machines cost the studio: `python -m benchmarks.nodes [--quick]`.

A whole studio in a folder of its own, and 50 machines of 8 slots that have joined it (the real stream, each as its link speaks it; what
stands in is the host: it obeys at once and trains nothing), with 200 runs of ten people among which slots change hands. Its own machine
is drained.

`handover_p95_s`: from when a slot was asked back until it was granted to the next run. `gateway_cpu_share`, `scheduler_cpu_share`: of one
processor, of the web process with all streams and of the control worker, while slots change hands; `idle_...`: while nothing does.
`gateway_restart_s`, `scheduler_restart_s`: from the end of that process (SIGKILL) until all machines have joined again, and until a run
that was submitted then has slots. `double_grants`: slots that a machine was told of for two runs at once; `lost`: runs that failed, and
machines that were refused.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from benchmarks.report import finish, table
from benchmarks.studio import DEADLINE_S, studio
from training_runtime.node.messages import STREAM, DesiredState, Hello, ObservedState, Refused, Welcome, decode, encode
from training_runtime.protocol import Apply, NodeFacts, Observation, RunObservation, SlotSeen, WantedRun

if TYPE_CHECKING:
    from experiments.models import Project, TrainingRun, User

MACHINES, SLOTS, RUNS, PEOPLE = 50, 8, 200, 10
CHANGE_EVERY_S = 0.5
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class StandIn:
    """A machine's link, and a host that obeys at once. `joined`: how often it was let in; `refused`: why it was not; `doubled`: how often
    it was told of one slot for two runs."""

    name: str
    secret: str
    joined: int = 0
    doubled: int = 0
    refused: list[str] = field(default_factory=list)
    counted: dict[int, tuple[float, float]] = field(default_factory=dict)  # of each run: when last, and its slots' seconds until then

    async def live(self, address: str, over: asyncio.Event) -> None:
        from websockets.asyncio.client import connect
        from websockets.exceptions import WebSocketException

        while not over.is_set():
            with contextlib.suppress(OSError, WebSocketException, TimeoutError):
                async with connect(
                    f"ws{address[4:]}{STREAM}",
                    additional_headers={"Authorization": f"Bearer {self.secret}"},
                    max_size=None,
                    open_timeout=DEADLINE_S,
                ) as stream:
                    await stream.send(encode(Hello(self.name, "boot", SLOTS)))
                    while not over.is_set():
                        message = decode(await asyncio.wait_for(stream.recv(), DEADLINE_S))
                        if isinstance(message, Welcome):
                            self.joined += 1
                        elif isinstance(message, Refused):
                            self.refused.append(message.reason)
                        elif isinstance(message, DesiredState):
                            await stream.send(encode(ObservedState(self.obey(message.apply))))
            await asyncio.sleep(0.2)

    def obey(self, apply: Apply) -> Observation:
        told = [slot.id for wish in apply.runs for slot in wish.slots]
        self.doubled += len(told) - len(set(told))
        facts = NodeFacts(self.name, 64, 256 << 30, (), "2.13.0", "user+landlock", processor="stand-in")
        return Observation(apply.revision, facts, tuple(self._run(wish, time.monotonic()) for wish in apply.runs))

    def _run(self, wish: WantedRun, now: float) -> RunObservation:
        """Its slots are always at work, as those of a run that trains."""
        run, attempt = wish.spec.run, wish.spec.attempt
        last, counted_s = self.counted.get(run, (now, 0.0))
        counted_s += (now - last) * len(wish.slots)
        self.counted[run] = (now, counted_s)
        if wish.stop:
            return RunObservation(run, attempt, "exited", (), exit_code=-15, busy_s=counted_s, counted_s=counted_s)
        held = tuple(slot.id for slot in wish.slots)
        slots = tuple(SlotSeen(slot, 1.0, now, now, 1 << 28) for slot in held)
        return RunObservation(run, attempt, "running", held, busy_s=counted_s, counted_s=counted_s, slots=slots)


class Machines(threading.Thread):
    """All of them, on a loop of their own."""

    def __init__(self, address: str, machines: list[StandIn]) -> None:
        super().__init__(daemon=True)
        self.address, self.machines = address, machines
        self._over = asyncio.Event()
        self._loop = asyncio.new_event_loop()

    def run(self) -> None:
        async def all_of_them() -> None:
            await asyncio.gather(*(machine.live(self.address, self._over) for machine in self.machines))

        self._loop.run_until_complete(all_of_them())

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self.join(DEADLINE_S)


def cpu_s(pid: int) -> float:
    """Processor seconds of a process so far."""
    words = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(words[11]) + int(words[12])) / TICKS


def pid_of(home: Path, name: str) -> int:
    return int((home / "run" / f"{name}.pid").read_text().split()[0])


def wait_for(condition: Callable[[], object], what: str) -> float:
    """Seconds until it held."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + 2 * DEADLINE_S, f"not within {2 * DEADLINE_S:g} s: {what}"
        time.sleep(0.05)
    return time.monotonic() - began


def seed() -> tuple[list[StandIn], Project, list[User]]:
    from experiments import services
    from experiments.accounts.passwords import give_password
    from experiments.models import ClusterRules, User

    for number in range(PEOPLE):
        give_password(f"person-{number}")
    give_password("dora", staff=True)
    people, dora = list(User.objects.filter(username__startswith="person-")), User.objects.get(username="dora")
    ClusterRules.current()
    services.set_policy(by=dora, policy="fair_share", people_trust_each_other=True)
    project = services.create_project(by=people[0], name="Nodes")
    for person in people[1:]:
        services.add_member(project, by=people[0], username=person.username, role="editor")
    machines = [StandIn(f"m{number:02}", services.add_node(by=dora, name=f"m{number:02}", slots=SLOTS)[1]) for number in range(MACHINES)]
    return machines, project, people


def submit(project: Project, person: User, *, count: int = 1) -> list[TrainingRun]:
    from experiments import services
    from tests import cast

    version = project.definitions.first()
    version = version.versions.first() if version else cast.definition(project, by=person, max_slots=SLOTS)
    experiment = services.create_experiment(project, by=person, name="Runs", versions=[version] * count)
    return list(services.run_experiment(experiment, by=person))


def change_hands(project: Project, people: list[User], *, seconds: float) -> None:
    """A run ends and another one is submitted, again and again."""
    from experiments import services
    from experiments.models import TrainingRun
    from experiments.models.runs import LIVE

    random, end = Random(0), time.monotonic() + seconds
    while time.monotonic() < end:
        live = list(TrainingRun.objects.filter(state__in=LIVE, stop_requested_at=None).order_by("pk").values_list("pk", flat=True))
        run = TrainingRun.objects.get(pk=random.choice(live))
        services.stop_run(run, by=run.submitted_by)
        submit(project, random.choice(people))
        time.sleep(CHANGE_EVERY_S)


def heard() -> int:
    from experiments.cluster.snapshot import is_silent
    from experiments.models import Node
    from experiments.ops import clock

    now = clock.now()
    return sum(not is_silent(node, now) for node in Node.objects.exclude(name="local"))


def handovers() -> list[float]:
    """Seconds from each request for a slot back until its next grant."""
    from experiments.models import Grant

    found, by_slot = [], {}
    for grant in Grant.objects.order_by("slot_id", "granted_at", "pk"):
        by_slot.setdefault(grant.slot_id, []).append(grant)
    for grants in by_slot.values():
        for before, after in pairwise(grants):
            if before.release_requested_at is not None:
                found.append((after.granted_at - before.release_requested_at).total_seconds())
    return sorted(found)


def shares(home: Path, *, seconds: float, act: Callable[[float], None]) -> dict[str, float]:
    """Of one processor: the web process and the control worker, while `act` runs."""
    names = {"gateway": "web", "scheduler": "control"}
    before, began = {name: cpu_s(pid_of(home, of)) for name, of in names.items()}, time.monotonic()
    act(seconds)
    taken = time.monotonic() - began
    return {name: (cpu_s(pid_of(home, of)) - before[name]) / taken for name, of in names.items()}


def measure(home: Path, address: str, *, seconds: float) -> dict[str, float]:
    from experiments import services
    from experiments.models import Grant, Node, RunState, TrainingRun, User

    machines, project, people = seed()
    link = Machines(address, machines)
    link.start()
    try:
        join_s = wait_for(lambda: heard() == MACHINES, "all machines are heard of")
        services.set_node_draining(Node.objects.get(name="local"), by=User.objects.get(username="dora"), draining=True)
        began = time.monotonic()
        for number in range(RUNS // PEOPLE):
            submit(project, people[number % PEOPLE], count=PEOPLE)
        wait_for(lambda: Grant.objects.filter(released_at=None).count() == MACHINES * SLOTS, "every slot is granted")
        fill_s = time.monotonic() - began
        idle = shares(home, seconds=seconds / 2, act=time.sleep)
        busy = shares(home, seconds=seconds, act=lambda s: change_hands(project, people, seconds=s))

        os.kill(pid_of(home, "web"), signal.SIGKILL)
        joined = sum(machine.joined for machine in machines)
        gateway_s = wait_for(lambda: sum(machine.joined for machine in machines) >= joined + MACHINES, "all machines have joined again")
        os.kill(pid_of(home, "control"), signal.SIGKILL)
        (late,) = submit(project, people[0])
        scheduler_s = wait_for(lambda: Grant.objects.filter(run=late).exists(), "a run gets slots again")
        found = handovers()
        failed = TrainingRun.objects.filter(state=RunState.FAILED).count()
        return {
            "join_s": join_s,
            "fill_s": fill_s,
            "handovers": len(found),
            "handover_p50_s": found[len(found) // 2],
            "handover_p95_s": found[int(len(found) * 0.95)],
            "gateway_cpu_share": busy["gateway"],
            "scheduler_cpu_share": busy["scheduler"],
            "idle_gateway_cpu_share": idle["gateway"],
            "idle_scheduler_cpu_share": idle["scheduler"],
            "gateway_restart_s": gateway_s,
            "scheduler_restart_s": scheduler_s,
            "double_grants": sum(machine.doubled for machine in machines),
            "lost": failed + sum(len(machine.refused) for machine in machines),
        }
    finally:
        link.end()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nodes", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="20 s of changes instead of 60")
    seconds = 20.0 if parser.parse_args().quick else 60.0
    home = Path(tempfile.mkdtemp(prefix="edt-benchmark-"))
    home.chmod(0o755)
    os.environ.update(EDT_HOME=str(home), DJANGO_SETTINGS_MODULE="webapp.settings")
    try:
        with studio(home) as (address, _, _):
            import django

            django.setup()
            figures = measure(home, address, seconds=seconds)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    figures = {name: round(value, 3) for name, value in figures.items()}
    table(f"{MACHINES} machines of {SLOTS} slots, {RUNS} runs", ["figure", "measured"], [[name, value] for name, value in figures.items()])
    finish("nodes", figures)


if __name__ == "__main__":
    main()
