"""What people can do, as verbs: one transaction each, keyword-only. Who may is access's business; that the facts are right is checked here.

What a form must show is a django ValidationError({field: [message]}). A `request_id` (of the form) makes a form that is sent twice do one thing.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterable
from typing import BinaryIO

from experiments.models import DefinitionVersion, Experiment, Membership, Node, Project, Slot, TrainingDefinition, TrainingRun, User


def create_project(*, by: User, name: str, description: str = "", request_id: uuid.UUID | None = None) -> Project:
    """A project whose admin is `by`. Fields of errors: name, description."""
    raise NotImplementedError


def update_project(project: Project, *, by: User, name: str, description: str) -> Project:
    raise NotImplementedError


def delete_project(project: Project, *, by: User) -> None:
    """Delete it with all it owns, results included. Refused while a run of it is live."""
    raise NotImplementedError


def add_member(project: Project, *, by: User, username: str, role: str) -> Membership:
    """Fields: username, role. Adding someone who is in already sets their role."""
    raise NotImplementedError


def set_role(project: Project, *, by: User, username: str, role: str) -> Membership:
    """Never takes the last admin's right away."""
    raise NotImplementedError


def remove_member(project: Project, *, by: User, username: str) -> None:
    """Never the last admin."""
    raise NotImplementedError


def create_definition(
    project: Project,
    *,
    by: User,
    name: str,
    description: str = "",
    upload: BinaryIO,
    file_name: str,
    framework: str = "pytorch",
    command: str = "",
    device: str = "any",
    distributed: str = "elastic",
    max_slots: int = 4,
    request_id: uuid.UUID | None = None,
) -> DefinitionVersion:
    """A training definition with its version 1. Fields: name, description, upload, framework, command, device, distributed, max_slots."""
    raise NotImplementedError


def add_version(
    definition: TrainingDefinition,
    *,
    by: User,
    upload: BinaryIO | None = None,
    file_name: str = "",
    framework: str = "pytorch",
    command: str = "",
    device: str = "any",
    distributed: str = "elastic",
    max_slots: int = 4,
    request_id: uuid.UUID | None = None,
) -> DefinitionVersion:
    """The next version; without an upload it keeps the newest one's code. Fields as in `create_definition`."""
    raise NotImplementedError


def update_definition(definition: TrainingDefinition, *, by: User, name: str, description: str) -> TrainingDefinition:
    raise NotImplementedError


def delete_definition(definition: TrainingDefinition, *, by: User) -> None:
    """Refused while an experiment uses one of its versions."""
    raise NotImplementedError


def create_experiment(
    project: Project,
    *,
    by: User,
    name: str,
    description: str = "",
    source_folder: str = "",
    global_command: str = "",
    versions: Iterable[DefinitionVersion],
    request_id: uuid.UUID | None = None,
) -> Experiment:
    """Fields: name, description, source_folder, global_command, versions."""
    raise NotImplementedError


def run_experiment(experiment: Experiment, *, by: User, request_id: uuid.UUID | None = None, now: dt.datetime | None = None) -> list[TrainingRun]:
    """One queued run for each definition of the experiment, in its order."""
    raise NotImplementedError


def stop_run(run: TrainingRun, *, by: User, reason: str = "") -> TrainingRun:
    """Ask the run to end at its next step boundary; one that has no driver yet ends at once. Harmless on one that has ended."""
    raise NotImplementedError


def pause_run(run: TrainingRun, *, by: User, reason: str = "") -> TrainingRun:
    """Take its slots away, keep its state. Harmless when paused."""
    raise NotImplementedError


def resume_run(run: TrainingRun, *, by: User, reason: str = "") -> TrainingRun:
    raise NotImplementedError


def set_priority(run: TrainingRun, *, by: User, priority: int) -> TrainingRun:
    """1-10000, higher first. Field: priority."""
    raise NotImplementedError


def set_slots(run: TrainingRun, *, by: User, min_slots: int, max_slots: int) -> TrainingRun:
    """Fields: min_slots, max_slots."""
    raise NotImplementedError


def delete_run(run: TrainingRun, *, by: User) -> None:
    """An ended run, with its files. Refused while it is live."""
    raise NotImplementedError


def delete_experiment(experiment: Experiment, *, by: User) -> None:
    """With its runs and their files. Refused while one is live."""
    raise NotImplementedError


def set_node_draining(node: Node, *, by: User, draining: bool) -> Node:
    """A draining node gets its runs moved off and takes no new ones."""
    raise NotImplementedError


def set_slot_draining(slot: Slot, *, by: User, draining: bool) -> Slot:
    raise NotImplementedError


def set_policy(
    *,
    by: User,
    policy: str,
    person_quota: dict[str, int] | None = None,
    project_quota: dict[str, int] | None = None,
) -> None:
    """Fields: policy, person_quota, project_quota. None leaves the quotas as they are."""
    raise NotImplementedError


def set_weight(user: User, *, by: User, weight: float) -> User:
    """The person's share under fair share. Field: weight."""
    raise NotImplementedError
