"""Runs that the studio did not start: begun and ended by a call, and between the two given figures (`metrics.log_metrics`) and files
(`files.send_file`)."""

from __future__ import annotations

from typing import Literal

from django.http import HttpRequest
from django.utils import timezone
from ninja import Router
from ninja.responses import Status
from pydantic import AwareDatetime

from experiments import access
from experiments.api.auth import person
from experiments.api.requests import idempotency_key
from experiments.api.runs import Run, run_response
from experiments.api.schemas import Body
from experiments.services import outside

router = Router(tags=["runs"])


class OutsideRun(Body):
    """`started_at`: left out, now."""

    name: str
    started_at: AwareDatetime | None = None


class OutsideEnd(Body):
    """`ended_at`: left out, now."""

    state: Literal["completed", "failed", "stopped"]
    ended_at: AwareDatetime | None = None


@router.post("/projects/{int:project}/outside-runs", response={201: Run})
def begin_outside_run(request: HttpRequest, project: int, body: OutsideRun) -> Status[Run]:
    """A run on a machine that is not the studio's: it holds no slots, and is running until it is ended. It is in the project's experiment
    "Logged from outside"."""
    user, now = person(request), timezone.now()
    found = access.project(user, project, need="write")
    began_at = body.started_at or now
    run = outside.begin_run(found, by=user, name=body.name, began_at=began_at, now=now, idempotency_key=idempotency_key(request))
    return Status(201, run_response(request, access.run(user, run.pk)))


@router.post("/runs/{int:run}/end", response=Run)
def end_outside_run(request: HttpRequest, run: int, body: OutsideEnd) -> Run:
    """Of one that was begun by such a call, or by MLflow. One that has ended before stays as it is."""
    user, now = person(request), timezone.now()
    found = access.run(user, run, need="write")
    outside.check_outside(found)
    if found.is_live():
        outside.end_run(found, body.state, by=user, at=body.ended_at or now, now=now)
    return run_response(request, access.run(user, run))
