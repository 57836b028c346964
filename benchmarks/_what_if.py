"""Two hundred live runs of twelve people on 32 slots of four machines, and what is asked of their future."""

from __future__ import annotations

import datetime as dt
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from experiments.models import Experiment, User

RUNS, PEOPLE, MACHINES, SLOTS = 200, 12, 4, 8
ADDRESSES = {
    "what if, one more machine": "/cluster/what-if/?part=answer&more=1&like=rack-0",
    "what if, a machine drained": "/cluster/what-if/?part=answer&without=rack-3",
    "what if, another weight and one more run": "/cluster/what-if/?part=answer&person=person-3&weight=2&job_hours=3&job_slots=4",
    "as it is": "/cluster/what-if/?part=answer",
}


def seed(experiment: Experiment, alice: User) -> None:
    """All have trained before, so each has an end that can be told; they were suspended, and the planner gives them slots on machines that
    nobody is on: nothing is started there."""
    from django.utils import timezone

    from experiments.models import Node, RunState, Slot, TrainingRun, User

    now, draw, version = timezone.now(), random.Random(3), experiment.versions.get()
    for number in range(MACHINES):
        node = Node.objects.create(
            name=f"rack-{number}", last_seen_at=now + dt.timedelta(days=1), sandbox_level=level(), gpus=["GPU"] * SLOTS
        )
        Slot.objects.bulk_create(Slot(node=node, index=index, device="gpu") for index in range(SLOTS))
    people = [User.objects.create_user(f"person-{number}") for number in range(PEOPLE - 1)] + [alice]
    rows = []
    for number in range(RUNS):
        most = draw.choice((1, 2, 4, 8))
        rows.append(
            TrainingRun(
                experiment=experiment,
                version=version,
                submitted_by=draw.choice(people),
                submitted_at=now - dt.timedelta(minutes=number),
                name=f"trial {number}",
                command="python main.py",
                state=RunState.SUSPENDED,
                min_slots=draw.choice((1, 1, 1, 2)) if most > 1 else 1,
                max_slots=most,
                engines=8,
                epochs=20,
                steps_per_epoch=draw.randrange(100, 5000),
                step=draw.randrange(0, 1000),
                step_rate=draw.uniform(1, 20),
                workers=most,
            )
        )
    TrainingRun.objects.bulk_create(rows)


def level() -> str:
    """The box of the machine that is there, so that these are let in as it is."""
    from experiments.models import Node

    return Node.objects.values_list("sandbox_level", flat=True).first() or ""
