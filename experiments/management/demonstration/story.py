"""The story: Alice's experiment takes every slot, Bob's comes and gets its half, and who is left grows back.

It is told with the browser's services. `Story.turn` looks and, when the time has come, does the next thing; it never waits. Safe to tell
again on the same data: people, projects and definitions are found again, and runs that an earlier telling left are stopped first.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import io
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from django.conf import settings

from experiments import services
from experiments.accounts.passwords import give_password
from experiments.cluster import isolation
from experiments.models import ClusterRules, DefinitionVersion, Project, RunState, Slot, TrainingRun, User
from experiments.models.runs import ENDED, LIVE
from experiments.services.sample import EXAMPLE, bundle

DATA_FOLDER = "digits"
PEOPLE = ("alice", "bob")
SLOTS_WITHIN_S = 60.0
TRUST = "alice and bob trust each other here: the box of {} does not keep their code apart (Scheduling policy take that back)."
OTHERS = "the box of {} does not keep people's code apart, and {} can run code here too: use an empty EDT_HOME."
BOB_COMES_AT = 0.12  # of Alice's steps


class DemonstrationFailed(Exception):
    """The story cannot go on; the message says why."""


def cast() -> dict[str, str]:
    """Username -> new password, for Alice and Bob."""
    return {name: give_password(name) for name in PEOPLE}


def put_data() -> None:
    """The digits, in the shared data root, where an experiment's source files folder is looked for."""
    folder = Path(settings.EDT_DATA_ROOT) / DATA_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for file in sorted((EXAMPLE / "data").iterdir()):
        shutil.copyfile(file, folder / file.name)


@dataclass
class Story:
    """`slots` is known once the node has said what it has; `runs` holds Alice's run, then Bob's."""

    epochs: int | None = None
    slots: int = 0
    runs: list[TrainingRun] = field(default_factory=list)
    began_at: dt.datetime | None = None
    said: str = ""  # what somebody should know of how it is told

    def turn(self, now: dt.datetime) -> None:
        """Raises DemonstrationFailed where it cannot go on."""
        self.began_at = self.began_at or now
        for run in self.runs:
            run.refresh_from_db()
        if not self.slots:
            self._await_slots(now)
        elif not self.runs:
            if not self._leftovers():
                self.runs.append(self._run("alice"))
        elif len(self.runs) == 1 and self._alice_is_at_work():
            self.runs.append(self._run("bob"))
        self._fail_with_its_run()

    def over(self) -> bool:
        return len(self.runs) == len(PEOPLE) and all(run.state in ENDED for run in self.runs)

    def progress(self) -> str:
        """Where everybody is; the same as before if nothing has moved."""
        return ", ".join(f"{run.submitted_by} is {run.state} at step {run.step}" for run in self.runs)

    def _await_slots(self, now: dt.datetime) -> None:
        found = Slot.objects.filter(retired=False, draining=False, node__name=settings.EDT_NODE).count()
        assert self.began_at is not None
        if found == 1:
            raise DemonstrationFailed("There is one slot and nothing to share: start it with EDT_SLOTS=4.")
        if not found and (now - self.began_at).total_seconds() > SLOTS_WITHIN_S:
            raise DemonstrationFailed(f"The node has not said what it has within {SLOTS_WITHIN_S:.0f} s; see host.log and link.log.")
        if found:
            self.said = trust_each_other()
        self.slots = found

    def _leftovers(self) -> bool:
        """Stop what an earlier telling left; True while some of it is still there."""
        mine = TrainingRun.objects.filter(state__in=LIVE, submitted_by__username__in=PEOPLE)
        others = TrainingRun.objects.filter(state__in=LIVE).exclude(submitted_by__username__in=PEOPLE)
        if (other := others.first()) is not None:
            raise DemonstrationFailed(
                f"{other.submitted_by}'s run {other.name} is using the slots: wait for its end, or use an empty EDT_HOME."
            )
        for run in mine.exclude(state=RunState.STOPPING):
            services.stop_run(run, by=run.submitted_by, reason="a new demonstration begins")
        return mine.exists()

    def _alice_is_at_work(self) -> bool:
        """She steps on every slot, and has been for a while."""
        run = self.runs[0]
        total = run.total_steps()
        held = run.grants.filter(released_at=None).count()
        return bool(total) and held == self.slots and run.workers == self.slots and run.step >= BOB_COMES_AT * (total or 0)

    def _run(self, username: str) -> TrainingRun:
        person = User.objects.get(username=username)
        version = definition_of(person, slots=self.slots)
        command = f"main.py --engines {self.slots}" + (f" --epochs {self.epochs}" if self.epochs else "")
        experiment = services.create_experiment(
            version.definition.project,
            by=person,
            name="Digits in halves",
            description="Made by the demonstration.",
            source_folder=DATA_FOLDER,
            global_command=command,
            versions=[version],
        )
        (run,) = services.run_experiment(experiment, by=person)
        return run

    def _fail_with_its_run(self) -> None:
        for run in self.runs:
            if run.state in (RunState.FAILED, RunState.STOPPED):
                raise DemonstrationFailed(
                    f"{run.submitted_by}'s run {run.state}: {run.error_message or run.state_reason or 'no reason given'}"
                )


def trust_each_other() -> str:
    """Say it for Alice and Bob, where the machine would not run the code of both else; what was said. It is not said for others."""
    where = ", ".join(f"{node.name} ({node.sandbox_level})" for node in isolation.closed_machines())
    if not where:
        return ""
    others = User.objects.filter(is_active=True, is_staff=False).exclude(username__in=PEOPLE).order_by("username").first()
    if others is not None:
        raise DemonstrationFailed(OTHERS.format(where, others.username))
    reason = "manage.py demo, which somebody started on this machine, says so for its two people"
    alice = User.objects.get(username=PEOPLE[0])
    services.set_policy(by=alice, policy=ClusterRules.current().policy, people_trust_each_other=True, reason=reason)
    return TRUST.format(where)


def definition_of(person: User, *, slots: int) -> DefinitionVersion:
    """The example in the person's project, made where it is missing; a new version where the code or the slots have changed."""
    title = f"{person.username.capitalize()}'s digits"
    project = Project.objects.filter(name=title, memberships__user=person).first() or services.create_project(
        by=person, name=title, description="Handwritten digits, read by a small convolutional net."
    )
    content = bundle()
    definition = project.definitions.filter(name="Digits").first()
    if definition is None:
        return services.create_definition(
            project,
            by=person,
            name="Digits",
            description="A convolutional net for 8x8 digits, with FabricModel.",
            upload=io.BytesIO(content),
            file_name="digits.zip",
            command="main.py",
            max_slots=slots,
        )
    newest = definition.newest()
    if newest.bundle.sha256 == hashlib.sha256(content).hexdigest() and newest.max_slots == slots:
        return newest
    return services.add_version(
        definition, by=person, upload=io.BytesIO(content), file_name="digits.zip", command="main.py", max_slots=slots
    )
