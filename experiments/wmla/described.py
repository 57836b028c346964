"""A run in WMLA's words: its id, its state and the flat object that clients put into one row of a table."""

from __future__ import annotations

import datetime as dt
import re
import shlex
import uuid

from django.http import Http404, HttpRequest

from experiments import access
from experiments.files import bundles, runfiles
from experiments.models import RunState, Submission, TrainingRun, User
from experiments.wmla import answers, frameworks

NAMESPACE = "wmla"
_GROUPS = uuid.UUID("1b0c44a5-5b8a-4a52-8f7e-0c7d6b0a7e01")
_NUMBER = re.compile(r"(?:wmla-)?([0-9]{1,18})\Z")
S = RunState
# Clients poll while a job is PENDING_CRD_SCHEDULER, SUBMITTED or RUNNING, and take any other word for its end. So a run that waits for
# slots, suspended or new, is pending, and one that has a driver is running until it has ended.
STATES: dict[str, str] = {
    S.QUEUED: "PENDING_CRD_SCHEDULER",
    S.SUSPENDED: "PENDING_CRD_SCHEDULER",
    S.STARTING: "RUNNING",
    S.RUNNING: "RUNNING",
    S.STOPPING: "RUNNING",
    S.COMPLETED: "FINISHED",
    S.FAILED: "ERROR",
    S.STOPPED: "KILLED",
}


def exec_id(run: TrainingRun) -> str:
    return f"{NAMESPACE}-{run.pk}"


def group_id(name: str) -> str:
    """Of an instance group. Every name is one: there are no groups here but the cluster, and scripts name the one they had."""
    return str(uuid.uuid5(_GROUPS, name))


def state(run: TrainingRun) -> str:
    return STATES[run.state]


def states(words: str) -> list[str]:
    """Our states behind WMLA's, which are separated by commas."""
    wanted = {word.strip().upper() for word in words.split(",")}
    wanted |= {"ERROR"} if "FAILED" in wanted else set()
    wanted |= {"KILLED"} if "STOPPED" in wanted else set()
    return [ours for ours, theirs in STATES.items() if theirs in wanted]


def as_number(said: str) -> int | None:
    """The run's number in the id of a job; None for what is none."""
    number = _NUMBER.match(said)
    return int(number[1]) if number else None


def run_of(user: User, said: str, *, control: bool = False) -> TrainingRun:
    """The run with this id, for who may see it; `control`: for who may stop it. A stranger is told the same as when there is none."""
    number = as_number(said)
    try:
        if number is None:
            raise Http404
        fetch = access.run_control if control else access.run
        return fetch(user, number)
    except Http404:
        answers.refuse(f"Cannot find task {said[:80]}.")


def stamp(at: dt.datetime | None) -> str:
    return at.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if at else ""


def submission(run: TrainingRun) -> Submission:
    """What was submitted; for a run of the pages what it would have been."""
    found = Submission.objects.filter(run=run).first() if not hasattr(run, "submission") else run.submission
    if found is not None:
        return found
    framework = frameworks.of(run.version.distributed)
    command = shlex.join(bundles.parse_command(run.command)) if run.command else ""  # one that is logged from outside has none
    args = f"--exec-start {framework.name} --model-main {command}" if command else ""
    return Submission(run=run, args=args, framework=framework.name)


def described(run: TrainingRun, request: HttpRequest) -> dict[str, object]:
    """Scalars only: notebooks make a table of it with one row; what is not known is 0 or empty. `run` comes with its experiment,
    version and submitter."""
    said, name = submission(run), exec_id(run)
    framework = frameworks.submitted(said.framework, run.version.distributed)
    here = request.build_absolute_uri("/").rstrip("/")
    return {
        "id": name,
        "args": said.args,
        "submissionId": name,
        "creator": run.submitted_by.username,
        "state": state(run),
        "appId": name,
        "schedulerUrl": here,
        "modelFileOwnerName": run.submitted_by.username,
        "workDir": str(runfiles.folder(run) / "_submitted_code"),
        "appName": framework.app_name,
        "createTime": stamp(run.submitted_at),
        "elastic": run.version.is_elastic,
        "nameSpace": NAMESPACE,
        "numWorker": run.max_slots,
        "framework": said.framework,
        "userName": run.submitted_by.username,
        "executionUserName": run.submitted_by.username,
        "sigName": said.instance_group,
        "sigId": group_id(said.instance_group),
        "masterURL": here,
        "reason": run.plan_reason or run.state_reason if run.is_live() else run.state_reason or run.plan_reason,
        "runState": run.state,
        "step": run.step,
        "steps": run.total_steps() or 0,
        "epoch": run.epoch,
        "epochs": run.epochs or 0,
        "workers": run.workers,
        "rate": run.step_rate or 0.0,
        "url": f"{here}/runs/{run.pk}/",
    }
