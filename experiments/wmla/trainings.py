"""Trainings of the WML interface (v4): runs, each an experiment of its own, with their state and curves."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse

from experiments import access, selectors, services
from experiments.files import runfiles
from experiments.models import RunState, TrainingRun, User
from experiments.selectors.files import moment
from experiments.services import checks
from experiments.views.responses import number, person
from experiments.wmla import answers
from experiments.wmla.answers import api
from experiments.wmla.definitions import draft_of, project_of, space_of
from experiments.wmla.described import as_number, exec_id, stamp

MOST_LISTED = 200
MOST_POINTS = 200
S = RunState
STATES: dict[str, str] = {
    S.QUEUED: "pending",
    S.STARTING: "running",
    S.RUNNING: "running",
    S.SUSPENDED: "running",
    S.STOPPING: "running",
    S.COMPLETED: "completed",
    S.FAILED: "failed",
    S.STOPPED: "canceled",
}


def _make(request: HttpRequest) -> HttpResponse:
    said, user = answers.json_body(request), person(request)
    project = project_of(user, space_of(said), write=True)
    model = answers.dict_of(said, "model_definition")
    draft = draft_of(user, str(model.get("id", "")))
    if draft.project_id != project.pk:
        answers.refuse(f"The model definition {draft.name} is in another space: make it in this one.")
    if draft.version is None:
        answers.refuse(
            f"The model definition {draft.name} has no code yet: PUT its zip to /ml/v4/model_definitions/{draft.key}/model first."
        )
    command = answers.text_of(model, "command") or draft.command
    with transaction.atomic():
        experiment = services.create_and_run(
            project,
            by=user,
            name=answers.text_of(said, "name") or draft.name,
            description=answers.text_of(said, "description"),
            source_folder=_folder(said),
            versions=[draft.version],
            commands=[command],
        )
        run = experiment.runs.get()
        nodes = answers.dict_of(model, "hardware_spec").get("nodes")
        if nodes is not None:
            most = checks.whole(nodes, field="nodes", least=1, most=4096)
            services.set_slots(run, by=user, min_slots=most if run.version.is_fixed else 1, max_slots=most)
        tags = said.get("tags") or []
        if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
            answers.refuse("tags is no list of texts.")
        run = services.annotate_run(run, by=user, tags=tags, note="")
    return answers.json_response(_training(_full(run.pk), curves=False), status=201)


def _folder(said: dict[str, Any]) -> str:
    """Of the first data reference: scripts find one folder, DATA_DIR."""
    found = said.get("training_data_references") or []
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        answers.refuse("training_data_references is no list of objects.")
    if not found:
        return ""
    if found[0].get("type", "fs") != "fs":
        answers.refuse(f"Data of type {found[0]['type']} cannot be read here: put it below the shared data root, and name its folder (fs).")
    return answers.text_of(answers.dict_of(found[0], "location"), "path")


def _list(request: HttpRequest) -> HttpResponse:
    mine = access.projects_for(person(request)).values("pk")
    found = _runs().filter(experiment__project__in=mine)
    if space := request.GET.get("space_id") or request.GET.get("project_id"):
        found = found.filter(experiment__project=project_of(person(request), space))
    limit = number(request, "limit", MOST_LISTED, least=1, most=MOST_LISTED)
    runs = found.order_by("-submitted_at", "-pk")[:limit]
    return answers.json_response({"resources": [_training(run, curves=False) for run in runs], "limit": limit})


def _one(request: HttpRequest, key: str) -> HttpResponse:
    return answers.json_response(_training(_full(_run(person(request), key).pk), curves=True))


def _cancel(request: HttpRequest, key: str) -> HttpResponse:
    """?hard_delete=true deletes one that has ended."""
    user = person(request)
    run = _run(user, key)
    if request.GET.get("hard_delete") == "true":
        services.delete_run(access.run(user, run.pk, need="write"), by=user)
    else:
        services.stop_run(access.run_control(user, run.pk), by=user)
    return answers.nothing()


def _run(user: User, key: str) -> TrainingRun:
    """A training's id is the name of its folder; the job's that is the same run is taken too."""
    number = as_number(key)
    known = TrainingRun.objects.filter(**({"folder": key[:40].replace("\0", "")} if number is None else {"pk": number}))
    found = known.values_list("pk", flat=True).first()
    if found is None:
        raise Http404("There is no such training.")
    return access.run(user, found)


def _runs() -> Any:
    return TrainingRun.objects.select_related("experiment", "version__definition", "submitted_by")


def _full(pk: int) -> TrainingRun:
    found: TrainingRun = _runs().get(pk=pk)
    return found


def _training(run: TrainingRun, *, curves: bool) -> dict[str, object]:
    at, space = stamp(run.submitted_at), str(run.experiment.project_id)
    metadata = {"id": run.folder, "guid": run.folder, "name": run.name, "created_at": at, "modified_at": stamp(run.ended_at) or at}
    status: dict[str, object] = {"state": STATES[run.state], "running_at": stamp(run.started_at), "completed_at": stamp(run.ended_at)}
    status["message"] = {"text": f"WMLA execution ID is {exec_id(run)}", "level": "error" if run.state == S.FAILED else "info"}
    if run.state == S.FAILED:
        status["failure"] = {"errors": [{"code": "training_failed", "message": run.state_reason}]}
    if curves:
        status["metrics"], status["validation_metrics"] = _metrics(run, "train"), _metrics(run, "test")
    folder = str(runfiles.folder(run))
    location = {
        "path": folder,
        "model": f"{folder}/model",
        "training": folder,
        "training_status": f"{folder}/journal.jsonl",
        "logs": f"{folder}/log",
        "assets_path": folder,
    }
    entity = {
        "name": run.name,
        "space_id": space,
        "status": status,
        "model_definition": {"command": run.command, "hardware_spec": {"nodes": run.max_slots}},
        "training_data_references": [{"type": "fs", "location": {"path": run.data_folder}}],
        "results_reference": {"type": "fs", "location": location},
    }
    return {"metadata": {**metadata, "space_id": space, "tags": run.tags}, "entity": entity}


def _metrics(run: TrainingRun, group: str) -> list[dict[str, object]]:
    """The curves of a group as rows, an iteration each; long ones thinned out."""
    _, found = selectors.series(run, max_points=MOST_POINTS)
    rows: dict[int, tuple[float, dict[str, float]]] = {}
    for curve in found:
        for step, t, value in zip(curve.steps, curve.times, curve.values, strict=True):
            if curve.group == group and value is not None:
                rows.setdefault(step, (t, {}))[1][curve.name] = value
    return [{"iteration": step, "timestamp": stamp(moment(t)), "ml_metrics": values} for step, (t, values) in sorted(rows.items())]


trainings = api(GET=_list, POST=_make)
one = api(GET=_one, DELETE=_cancel)
