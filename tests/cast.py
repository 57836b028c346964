"""The one cast of all tests, and factories for what they own: plain functions, the same services the pages use wherever there is one.

Alice owns the project, Bob edits, Victor views, Charlie is a stranger, Dora administers the cluster.
"""

from __future__ import annotations

import datetime as dt
import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from django.utils import timezone

from experiments import services
from experiments.cluster import desired, fleet, meetings
from experiments.files import pruning, runfiles
from experiments.models import ClusterRules, DefinitionVersion, Experiment, Node, Project, Role, Slot, TrainingRun, User
from experiments.ops import installation
from training_runtime import journal, journal_writer
from training_runtime.crashes import ended_how
from training_runtime.meeting import Meeting
from training_runtime.protocol import NodeFacts, Observation, RunObservation, WantedRun

PASSWORD = "a long enough secret"
MAIN_PY = "print('hello')\n"


def person(username: str, *, staff: bool = False) -> User:
    return User.objects.create_user(username, password=PASSWORD, is_staff=staff)


def choose_notifications(by: User, *, ways: Mapping[str, Sequence[str]], email: str) -> None:
    """Their choices, with an address that they have confirmed before."""
    by.confirmed_email = email
    by.save(update_fields=["confirmed_email"])
    services.choose_notifications(
        by, ways=ways, email=email, confirm_at=lambda token: f"https://studio.example.org/{token}", now=timezone.now()
    )


def zipped(files: Mapping[str, str | bytes] | None = None) -> io.BytesIO:
    """A zip of these files (default: one main.py), ready to be uploaded; its bytes are the same at any time of the day."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in (files or {"main.py": MAIN_PY}).items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    content.seek(0)
    return content


def shared_project(owner: User, *, editor: User, viewer: User, name: str = "Digits") -> Project:
    project = services.create_project(by=owner, name=name)
    services.add_member(project, by=owner, username=editor.username, role=Role.EDITOR)
    services.add_member(project, by=owner, username=viewer.username, role=Role.VIEWER)
    return project


def definition(
    project: Project,
    *,
    by: User,
    name: str = "lenet",
    files: Mapping[str, str | bytes] | None = None,
    command: str = "python main.py --epochs 2",
    max_slots: int = 4,
    device: str = "any",
    distributed: str = "elastic",
    network: str = "none",
) -> DefinitionVersion:
    return services.create_definition(
        project,
        by=by,
        name=name,
        upload=zipped(files),
        file_name="code.zip",
        command=command,
        max_slots=max_slots,
        device=device,
        distributed=distributed,
        network=network,
    )


def experiment(project: Project, *, by: User, versions: list[DefinitionVersion] | None = None, name: str = "first try") -> Experiment:
    chosen = versions if versions is not None else [definition(project, by=by)]
    return services.create_experiment(project, by=by, name=name, versions=chosen)


def run(
    project: Project,
    *,
    by: User,
    name: str = "first try",
    max_slots: int = 4,
    distributed: str = "elastic",
    now: dt.datetime | None = None,
) -> TrainingRun:
    """A queued run."""
    made = experiment(project, by=by, versions=[definition(project, by=by, max_slots=max_slots, distributed=distributed)], name=name)
    return services.run_experiment(made, by=by, now=now)[0]


XEON = "Xeon (6/207, avx2)"


def facts(name: str = "local", *, gpus: int = 0, address: str = "", level: str = "user+landlock", processor: str = XEON) -> NodeFacts:
    return NodeFacts(
        name=name,
        cpu_count=2,
        memory_bytes=4 << 30,
        gpus=("H200",) * gpus,
        torch_version="2.13.0",
        sandbox_level=level,
        sandbox_notes=(),
        address=address,
        processor=processor,
    )


def node(
    name: str = "local",
    *,
    slots: int = 4,
    gpus: int = 0,
    now: dt.datetime | None = None,
    address: str = "",
    level: str = "user+landlock",
    processor: str = XEON,
) -> Node:
    """A node that has just been heard of. `address`: it can share runs with others that have one. `level`: of its box."""
    return fleet.register(facts(name, gpus=gpus, address=address, level=level, processor=processor), now=now or timezone.now(), slots=slots)


def slots_of(run: TrainingRun) -> set[int]:
    """Ids of the slots that the run was granted and has not given back."""
    return set(run.grants.filter(released_at__isnull=True).values_list("slot_id", flat=True))


@dataclass
class Host:
    """Stands where the node host does: takes in what is wanted and says what it sees. It obeys at once, unless told to hold on.

    `agents`: what it says of the run's remote agent instead, by run, once that is wanted. `is_met`: drivers there are reached by others,
    while the rule lets runs use several machines. `slots`: how many it offers; None: as a machine that does not say.
    """

    node: Node
    revision: int = 0
    agents: dict[int, RunObservation] = field(default_factory=dict)
    is_met: bool = True
    slots: int | None = None

    def apply(
        self,
        now: dt.datetime,
        *,
        keeps: Mapping[int, set[int]] | None = None,
        exits: Mapping[int, int] | None = None,
        knows: Mapping[int, int] | None = None,
        storage_problem: str = "",
    ) -> Observation:
        """It is told what is wanted, and says what it sees. `keeps`: slots that a run's processes have not left yet. `exits`: exit codes of
        runs that ended. `knows`: those of runs that are listed no more and have just been ended for it."""
        wanted = desired.desired_state(self.node, now=now)
        self.revision = wanted.revision
        runs = [
            self._see(each, {s.id for s in each.slots} | (keeps or {}).get(each.spec.run, set()), (exits or {}).get(each.spec.run))
            for each in wanted.runs
        ]
        runs += [_ended(run, code) for run, code in (knows or {}).items()]
        node = self.node
        about = facts(node.name, address=node.address, level=node.sandbox_level, processor=node.processor or XEON)
        observation = Observation(revision=self.revision, node=about, runs=tuple(runs), storage_problem=storage_problem)
        fleet.record(observation, now=now, slots=self.slots)
        return observation

    def _see(self, wish: WantedRun, holding: set[int], exit_code: int | None) -> RunObservation:
        run, remote = wish.spec.run, wish.spec.remote
        if remote and run in self.agents:
            return self.agents[run]
        if exit_code is not None:
            return _ended(run, exit_code, remote=remote, attempt=wish.spec.attempt)
        listens = self.is_met and not remote and self.node.address and ClusterRules.current().several_machines
        meeting = Meeting(self.node.address, 40_000 + run % 10_000, "secret of the run") if listens else None
        holds = tuple(sorted(holding))
        return RunObservation(run=run, attempt=wish.spec.attempt, state="running", holding=holds, remote=remote, meeting=meeting)


def _ended(run: int, exit_code: int, *, remote: bool = False, attempt: int = 1) -> RunObservation:
    detail = ended_how(exit_code, "remote agent" if remote else "driver")
    return RunObservation(run=run, attempt=attempt, state="exited", holding=(), exit_code=exit_code, remote=remote, detail=detail)


def is_met(run: TrainingRun, *, on: Node) -> None:
    """The machine has said where others reach the run's driver."""
    meetings.store_meeting(run, Meeting("10.0.0.1", 40_123, "secret of the run"), on=on)


def write_journal(run: TrainingRun, *events: journal.Event, t: float = 1_790_000_000.0) -> None:
    """Append events to the run's journal as its driver would, a second apart."""
    writer = journal_writer.Writer(runfiles.make(run) / journal.FILE_NAME, run.pk)
    for number, event in enumerate(events):
        writer.write(event, t=t + writer.seq + number)
    writer.close()


def started(*, engines: int = 4, epochs: int = 2, steps: int = 5) -> journal.Started:
    return journal.Started(
        attempt=1,
        engines=engines,
        batch_size=16,
        epochs=epochs,
        steps_per_epoch=steps,
        samples=16 * steps,
        seed=1,
        parameters=1000,
        state_bytes=4000,
    )


def step(number: int, *, loss: float = 1.0, workers: int = 4, epoch: int = 1) -> journal.Train:
    return journal.Train(step=number, epoch=epoch, metrics={"loss": loss}, samples=16, workers=workers, step_s=0.1)


def finished(outcome: str = "completed", *, last_step: int = 10) -> journal.Finished:
    return journal.Finished(outcome=outcome, step=last_step, epoch=2, metrics={"train loss": 0.5}, elapsed_s=1.0)  # type: ignore[arg-type]


def empty_trash(now: dt.datetime | None = None) -> None:
    """Remove what was deleted, as the studio does some days later."""
    installation.bind()
    while pruning.clear(now or timezone.now(), kept=dt.timedelta(0)):
        pass


def stored(*stores: Path) -> list[Path]:
    """What lies in these stores of EDT_HOME, without what the studio keeps beside it (the trash, which must be empty)."""
    assert [left for store in stores for left in (store / pruning.TRASH).glob("*")] == []
    return [path for store in stores for path in store.iterdir() if path.name not in pruning.OURS]


def slot_ids(node: Node) -> list[int]:
    return list(Slot.objects.filter(node=node, retired=False).order_by("index").values_list("pk", flat=True))
