"""What is done with the deliveries of triggers that wait: with the rights, at that moment, of who made the trigger."""

from __future__ import annotations

import datetime as dt
import logging

from django.core.exceptions import PermissionDenied
from django.db import InterfaceError, OperationalError
from django.db.models import Q
from django.http import Http404

from experiments import access, services
from experiments.errors import DomainError
from experiments.models import Experiment, Trigger, TriggerDelivery
from experiments.models.projects import ARCHIVED
from experiments.services import triggers as verbs

log = logging.getLogger(__name__)
AGAIN_AFTER = dt.timedelta(minutes=10)  # where who began it was killed: longer than fetching code may take
NOT_ANY_MORE = "{0} may not run experiments of this project any more: somebody who may takes the trigger over, on its page."


def pull_all(now: dt.datetime) -> None:
    """All that wait, oldest first."""
    waiting = TriggerDelivery.objects.filter(Q(begun_at=None) | Q(begun_at__lt=now - AGAIN_AFTER), done_at=None)
    for number in list(waiting.order_by("pk").values_list("pk", flat=True)[:100]):
        if waiting.filter(pk=number).update(begun_at=now):  # nobody else has begun it
            _pull(TriggerDelivery.objects.select_related("trigger__experiment__project", "trigger__created_by").get(pk=number), now)


def _pull(delivery: TriggerDelivery, now: dt.datetime) -> None:
    made = None
    try:
        made, outcome = _done(delivery)
    except (Http404, PermissionDenied):
        outcome = NOT_ANY_MORE.format(delivery.trigger.created_by.username)
    except DomainError as refused:
        outcome = str(refused)
    except (OperationalError, InterfaceError):  # the database is away, or locked: whoever pulls later finds it begun and not done
        raise
    except Exception:  # a delivery that breaks must not hold up the others
        log.exception("delivery %s of trigger %s broke down", delivery.pk, delivery.trigger.pk)
        outcome = "Something broke; the error is in the studio's log."
    verbs.close(delivery, outcome=outcome, made=made, now=now)


def _done(delivery: TriggerDelivery) -> tuple[Experiment | None, str]:
    """What was made, and what to say of it."""
    trigger, by = delivery.trigger, delivery.trigger.created_by
    if not by.is_active:
        raise PermissionDenied
    if trigger.experiment.project.archived_at is not None:
        raise DomainError(ARCHIVED)
    access.experiment(by, trigger.experiment_id, need="write")
    if trigger.event == Trigger.Event.PUSH:
        return _pushed(delivery)
    data = None
    because = f"call {delivery.pk}"
    if trigger.event == Trigger.Event.DATA:
        data = access.data_asset(by, int(str(delivery.facts.get("data", 0))))
        because = f"{data.name[:40]} v{data.version}"
    return _ran(services.triggers.run_again(delivery, by=by, data=data, because=because))


def _pushed(delivery: TriggerDelivery) -> tuple[Experiment | None, str]:
    trigger, by = delivery.trigger, delivery.trigger.created_by
    branch = str(delivery.facts.get("branch", ""))
    if trigger.branch and branch != trigger.branch:
        return None, f"It was a push to {branch}, not to {trigger.branch}."
    definition = access.definition(by, trigger.definition_id or 0, need="write")
    version = services.fetch_again(definition, by=by)
    if version is None:
        return None, "The repository has no newer commit than the newest version."
    return _ran(services.triggers.run_again(delivery, by=by, version=version, because=version.git_commit[:8]))


def _ran(made: Experiment) -> tuple[Experiment, str]:
    return made, f"{made.name} is run."
