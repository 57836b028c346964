"""What MLflow's client on somebody's own machine writes: projects (its experiments), runs that the studio did not start, their figures,
parameters, tags and files. A run of the studio itself takes parameters and tags from here, and no more."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from typing import Any, BinaryIO, TypeVar, cast

from django.http import Http404
from django.utils import timezone

from experiments import access, services
from experiments.errors import DomainError
from experiments.metrics import ingest
from experiments.mlflow import described
from experiments.models import MetricSeries, TrainingRun, User
from experiments.models.runs import RUN_NAME_LIMIT
from experiments.services import outside
from experiments.services.outside import Outcome
from training_runtime.noted import Noted
from training_runtime.tracking import answers
from training_runtime.tracking.answers import ARTIFACTS, Group, Refused, refuse

INSIDE = (
    "The studio started this run: its metrics and files are logged from inside, where mlflow needs no settings; from here tags and "
    "parameters can be."
)
CHOOSE = "Choose a project of the studio first: mlflow.set_experiment(NAME)."
NO_ROOM = "The studio cannot write to its disk now: try again later."
OUTCOMES: dict[str, Outcome] = {"FINISHED": "completed", "FAILED": "failed", "KILLED": "stopped"}
Body = Mapping[str, Any]
T = TypeVar("T")


def number(text: object) -> int:
    """0, which nothing has, where it is none."""
    said = str(text)
    return int(said) if said.isascii() and said.isdigit() and len(said) <= 18 else 0


def create_experiment(user: User, said: Body) -> dict[str, Any]:
    """A project, whose admin is who asks."""
    project = _checked(lambda: services.create_project(by=user, name=answers.text(said, "name")))
    return {"experiment_id": str(project.pk)}


def create(user: User, said: Body) -> dict[str, Any]:
    try:
        project = access.project(user, number(said.get("experiment_id")), need="write")
    except Http404:
        raise Http404(CHOOSE) from None
    now = timezone.now()
    tags = {answers.name(each): answers.value(each) for each in answers.records(said, "tags")}
    if len(tags) > answers.MOST_NAMES:
        refuse(f"A run has at most {answers.MOST_NAMES} tags.")
    asked = answers.text(said, "run_name", default="") or tags.get("mlflow.runName", "") or "run"
    name = "".join(each if each.isprintable() else "?" for each in asked)[:RUN_NAME_LIMIT]
    began_at = _moment(answers.whole(said, "start_time"), now)
    run = _checked(lambda: outside.begin_run(project, by=user, name=name, began_at=began_at, now=now))
    note(run, {}, tags)
    return {"run": described.runs([run])[0].answer()}


def update(user: User, run: TrainingRun, said: Body) -> dict[str, Any]:
    """What `start_run(run_id=...)` and the end of a run say. The state of a run that the studio started is the studio's to say."""
    outcome = OUTCOMES.get(str(said.get("status", "")))
    if run.outside and outcome is not None:
        _check_stored(lambda: outside.end_run(run, outcome, by=user, at=timezone.now(), now=timezone.now()))
    return {"run_info": described.runs([access.run(user, run.pk)])[0].info()}


def log(run: TrainingRun, said: Iterable[Body]) -> None:
    """Figures. All of it is read before any of it counts."""
    points = [(answers.name(each), answers.point(each)) for each in said]
    if not points:
        return
    written(run)
    known = {one.name: one.last_step for one in MetricSeries.objects.filter(run=run, name__in={name for name, _ in points})}
    figures: dict[tuple[Group, int, float], dict[str, float]] = {}
    for name, point in points:
        if point.step <= 0:  # logged without a step: counted by its calls
            point.step = known[name] + 1 if name in known else 0
        known[name] = max(point.step, known.get(name, 0))
        figures.setdefault((answers.group_of(name), point.step, point.at_ms / 1000), {})[name] = point.value
    now = timezone.now()
    _check_stored(lambda: outside.log(run, list(outside.lines(figures, now=now.timestamp())), now=now))


def note(run: TrainingRun, parameters: dict[str, str], tags: dict[str, str], dropped: tuple[str, ...] = ()) -> None:
    if (parameters or tags or dropped) and not ingest.note(run, Noted(parameters, tags, dropped)):
        refuse(f"A run has at most {answers.MOST_NAMES} parameters, and as many tags.")


def receive(run: TrainingRun, path: str, body: BinaryIO) -> None:
    written(run)
    try:
        _check_stored(lambda: outside.receive_file(run, f"{ARTIFACTS}/{path}", cast(Any, body)))
    except FileNotFoundError:
        refuse(f"{path[:200]!r} can be no file of the run: choose another name.")


def written(run: TrainingRun) -> None:
    """Raises Refused where nothing is written to the run from here."""
    if not run.outside:
        raise Refused("NOT_IMPLEMENTED", INSIDE)
    if run.stop_requested_at is not None:
        refuse(outside.STOPPED)


def _check_stored(do: Callable[[], object]) -> None:
    try:
        _checked(do)
    except FileNotFoundError:
        raise
    except OSError:
        raise Refused("TEMPORARILY_UNAVAILABLE", NO_ROOM) from None


def _checked(do: Callable[[], T]) -> T:
    try:
        return do()
    except DomainError as error:
        refuse(str(error))


def _moment(at_ms: int, now: dt.datetime) -> dt.datetime:
    if not outside.EARLIEST.timestamp() < at_ms / 1000 <= now.timestamp():
        return now
    return dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC)
