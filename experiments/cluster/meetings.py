"""Where machines that have joined reach the drivers of runs on others: they share no folder in which they would find it. A driver's machine
says it, and it is told to those where the run has remote agents. The only writer of DriverMeeting.
"""

from __future__ import annotations

import dataclasses
import json

from django.db import transaction
from django.db.models import F

from experiments.accounts import sealed
from experiments.live import notify
from experiments.models import DriverMeeting, Grant, Node, TrainingRun
from training_runtime.meeting import Meeting
from training_runtime.records import build

PURPOSE = "where drivers are met"


def store_meeting(run: TrainingRun, meeting: Meeting, *, on: Node) -> None:
    """Store where the run's driver can be reached."""
    known = DriverMeeting.objects.filter(run=run).first()
    if known is not None and known.node_id == on.pk and _unsealed(known) == meeting:
        return
    with transaction.atomic():
        text = sealed.seal(json.dumps(dataclasses.asdict(meeting)), purpose=PURPOSE)
        DriverMeeting.objects.update_or_create(run=run, defaults={"node": on, "sealed": text})
        guests = Grant.objects.filter(run=run, released_at__isnull=True).exclude(slot__node=on)
        for name in guests.values_list("slot__node__name", flat=True).distinct():
            notify.nudge_node(name)
        notify.nudge_schedule()


def meeting_of(run: TrainingRun) -> Meeting | None:
    """Where the run's driver can be reached; None if unknown yet."""
    known = DriverMeeting.objects.filter(run=run, node=run.head_node_id).first()
    return _unsealed(known) if known is not None else None


def met() -> frozenset[int]:
    """The runs whose drivers can be reached."""
    return frozenset(DriverMeeting.objects.filter(node=F("run__head_node")).values_list("run", flat=True))


def forget_meetings() -> None:
    """Runs may not use several machines any more: drivers that begin from now on are reached by nobody."""
    DriverMeeting.objects.all().delete()


def _unsealed(known: DriverMeeting) -> Meeting | None:
    """None where the studio's key is another now: until the driver's machine has said it again."""
    try:
        return build(Meeting, json.loads(sealed.unseal(known.sealed, purpose=PURPOSE)))
    except sealed.Unreadable:
        return None
