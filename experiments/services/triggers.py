"""Verbs on triggers: make one, end it, take in what comes; and what is done then."""

from __future__ import annotations

import datetime as dt
import secrets
import uuid
from collections.abc import Mapping

from django.db import IntegrityError, transaction

from experiments.accounts import sealed
from experiments.errors import DomainError
from experiments.live import notify
from experiments.models import DataAsset, DefinitionVersion, Experiment, Project, TrainingDefinition, Trigger, TriggerDelivery, User
from experiments.services import checks
from experiments.services.experiments import create_and_run

MOST_TRIGGERS = 20  # of a project
MOST_AN_HOUR = 60  # deliveries of a trigger
KEPT = 50
PURPOSE = "secrets of triggers"
NAMESPACE = uuid.UUID("f5a3c0f0-5a0e-5d0e-8a55-3b6b8f0f7a11")
NO_GIT = "The code of this training definition was uploaded: choose one whose newest version came from a git repository."


def create_trigger(
    project: Project,
    *,
    by: User,
    event: str,
    experiment: Experiment,
    definition: TrainingDefinition | None = None,
    branch: str = "",
    data_name: str = "",
    now: dt.datetime,
) -> tuple[Trigger, str]:
    """The trigger, and its secret, which nobody is told again. Fields: event, experiment, definition, branch, data_name."""
    checks.choice(event, Trigger.Event, field="event")
    if experiment.project_id != project.pk:
        checks.refuse("experiment", "Choose an experiment of this project.")
    if event == Trigger.Event.PUSH:
        definition = _fetchable(experiment, definition)
    if event == Trigger.Event.DATA:
        data_name = checks.name(data_name, field="data_name")
    if Trigger.objects.filter(project=project).count() >= MOST_TRIGGERS:
        checks.refuse("event", f"There are {MOST_TRIGGERS} triggers already: delete one first.")
    secret = secrets.token_urlsafe(32)
    trigger = Trigger.objects.create(
        project=project,
        secret=sealed.seal(secret, purpose=PURPOSE),
        event=event,
        experiment=experiment,
        definition=definition if event == Trigger.Event.PUSH else None,
        branch=checks.text(branch, field="branch", limit=255) if event == Trigger.Event.PUSH else "",
        data_name=data_name if event == Trigger.Event.DATA else "",
        created_by=by,
        created_at=now,
    )
    checks.audit(by, "makes trigger %s of project %s", trigger.pk, project.pk)
    return trigger, secret


def _fetchable(experiment: Experiment, definition: TrainingDefinition | None) -> TrainingDefinition:
    """The definition whose code is fetched: the one that is named, else the only one of the experiment."""
    of_experiment = {version.definition_id: version.definition for version in experiment.versions.select_related("definition")}
    if definition is None and len(of_experiment) == 1:
        (definition,) = of_experiment.values()
    if definition is None or definition.pk not in of_experiment:
        checks.refuse("definition", "Choose the training definition of the experiment whose code is fetched.")
    if not definition.newest().git_address:
        checks.refuse("definition", NO_GIT)
    return definition


def take_over_trigger(trigger: Trigger, *, by: User) -> Trigger:
    """It acts in the name of `by` from now on. Address and secret stay: what sends to it need not know."""
    if trigger.created_by_id != by.pk:
        checks.audit(by, "takes over trigger %s of %s", trigger.pk, trigger.created_by.username)
        trigger.created_by = by
        trigger.save(update_fields=["created_by"])
        notify.changed(f"project-{trigger.project_id}", "triggers")
    return trigger


def delete_trigger(trigger: Trigger, *, by: User) -> None:
    checks.audit(by, "deletes trigger %s", trigger.pk)
    trigger.delete()


def secret_of(trigger: Trigger) -> str | None:
    """None where the studio's key is another than when it was made."""
    try:
        return sealed.unseal(trigger.secret, purpose=PURPOSE)
    except sealed.Unreadable:
        return None


def take_in(trigger: Trigger, *, number: str, facts: Mapping[str, object], now: dt.datetime) -> TriggerDelivery | None:
    """Kept, and acted on in a moment. The same number again is the same delivery; None: too many have come within the hour."""
    before = TriggerDelivery.objects.filter(trigger=trigger, number=number).first()
    if before is not None:
        return before
    if TriggerDelivery.objects.filter(trigger=trigger, at__gt=now - dt.timedelta(hours=1)).count() >= MOST_AN_HOUR:
        return None
    old = (
        TriggerDelivery.objects.filter(trigger=trigger)
        .exclude(done_at=None)
        .order_by("-id")
        .values_list("pk", flat=True)[KEPT + MOST_AN_HOUR :]
    )
    TriggerDelivery.objects.filter(pk__in=list(old)).delete()
    try:
        with transaction.atomic():
            made = TriggerDelivery.objects.create(trigger=trigger, number=number, at=now, facts=dict(facts))
            notify.nudge_triggers()
    except IntegrityError:  # sent twice at the same moment
        return TriggerDelivery.objects.get(trigger=trigger, number=number)
    return made


def data_arrived(asset: DataAsset, *, now: dt.datetime) -> None:
    """A data asset is new in its project, the first of its name or a new version: for the triggers that wait for that name."""
    for trigger in Trigger.objects.filter(project=asset.project_id, event=Trigger.Event.DATA, data_name=asset.name):
        take_in(trigger, number=f"data-{asset.pk}", facts={"data": asset.pk}, now=now)


def run_again(
    delivery: TriggerDelivery, *, by: User, version: DefinitionVersion | None = None, data: DataAsset | None = None, because: str
) -> Experiment:
    """The trigger's experiment as another one, with the new version of one of its definitions or with new data, and its runs."""
    like = delivery.trigger.experiment
    parts = list(like.parts.select_related("version__definition").order_by("position"))
    if not parts:
        raise DomainError(f"{like.name} has no training definitions to run.")
    chosen = [version if version is not None and part.version.definition_id == version.definition_id else part.version for part in parts]
    return create_and_run(
        like.project,
        by=by,
        name=f"{like.name[: checks.NAME_LIMIT - len(because) - 3]} ({because})",
        description=like.description,
        source_folder=like.source_folder,
        data_asset=data if data is not None else like.data_asset,
        global_command=like.global_command,
        versions=chosen,
        commands=[part.command for part in parts],
        environment=like.environment,
        idempotency_key=uuid.uuid5(NAMESPACE, f"delivery {delivery.pk}"),
    )


def close(delivery: TriggerDelivery, *, outcome: str, made: Experiment | None, now: dt.datetime) -> None:
    TriggerDelivery.objects.filter(pk=delivery.pk).update(done_at=now, outcome=outcome[:500], made=made)
    notify.changed(f"project-{delivery.trigger.project_id}", "triggers")
