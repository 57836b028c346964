"""The addresses: who calls is known first; every answer and refusal is JSON in the shapes of MLflow's own server.

Runs are read here, and noted on (tags, parameters). Those that the studio started log from inside what they measure; others are begun and
logged from here (`outside`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, BinaryIO, cast

from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, JsonResponse
from django.http.response import HttpResponseBase
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt

from experiments import access, selectors
from experiments.files import runfiles
from experiments.mlflow import described, outside, registry
from experiments.models import Project, TrainingRun, User
from experiments.ops import full_disk
from experiments.views import downloads
from experiments.wmla import callers
from training_runtime.tracking import answers
from training_runtime.tracking.answers import ARTIFACTS, PREFIX, Refused, refuse

MODELS = "models/"  # of the artifact store, beside runs/
MOST_RUNS = 2000  # that a search looks at, the newest
MOST_SHOWN = 1000
MOST_PROJECTS = 1000
MOST_FILES = 10_000  # of one folder
log = logging.getLogger(__name__)
RequestBody = Mapping[str, Any]
Do = Callable[[User, RequestBody], dict[str, Any]]


def _answering(do: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Of a view: who calls is `request.user` from then on. Never by a cookie, so no form's token is wanted."""

    @csrf_exempt
    @login_not_required
    def view(request: HttpRequest, **about: Any) -> HttpResponseBase:
        try:
            headers = {"authorization": request.headers.get("Authorization", ""), "token": ""}
            request.user = callers.who(**headers, address=request.META.get("REMOTE_ADDR", ""), now=timezone.now())
            answer = do(request, **about)
        except callers.Refused as refused:
            code = "UNAUTHENTICATED" if refused.status == 401 else "REQUEST_LIMIT_EXCEEDED"
            answer = JsonResponse({"error_code": code, "message": str(refused)}, status=refused.status)
        except Refused as refused:
            answer = JsonResponse(answers.error(refused), status=answers.STATUS[refused.code])
        except Http404 as missing:
            answer = JsonResponse({"error_code": "RESOURCE_DOES_NOT_EXIST", "message": str(missing)}, status=404)
        except PermissionDenied as denied:
            answer = JsonResponse({"error_code": "PERMISSION_DENIED", "message": str(denied)}, status=403)
        except Exception as failed:
            if not (no_room := full_disk.says(failed)):
                raise
            log.warning("No room for a request to %s", request.path, exc_info=failed)
            answer = JsonResponse({"error_code": "RESOURCE_EXHAUSTED", "message": no_room}, status=full_disk.STATUS)
        answer.headers.setdefault("Cache-Control", "no-store")
        return answer

    return view


@_answering
def call(request: HttpRequest, what: str) -> HttpResponseBase:
    do = BY_METHOD.get(request.method or "", {}).get(what)
    if do is None:
        raise Refused("ENDPOINT_NOT_FOUND", f"The studio does not answer {request.method} {PREFIX}{what[:100]}: see docs/mlflow.md.")
    assert isinstance(request.user, User)
    return JsonResponse(do(request.user, _parse_body(request)))


def _parse_body(request: HttpRequest) -> RequestBody:
    if request.method in ("GET", "HEAD") or not request.body:
        return request.GET.dict()
    try:
        said = json.loads(request.body or b"{}")
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        refuse("The body is no JSON object.")
    return said


@_answering
def artifacts(request: HttpRequest) -> HttpResponseBase:
    """The files of a folder, as the client asks of an artifact store."""
    if request.method not in ("GET", "HEAD"):
        raise Refused("ENDPOINT_NOT_FOUND", "A folder is read here.")
    asked = request.GET.get("path", "").strip("/")
    if asked.startswith(MODELS):
        assert isinstance(request.user, User)
        return JsonResponse({"files": registry.files(request.user, asked.removeprefix(MODELS))})
    run, path = _parse_artifact_path(request, asked)
    return JsonResponse({"files": _files(run, path)})


@_answering
def artifact(request: HttpRequest, path: str) -> HttpResponseBase:
    if request.method not in ("GET", "HEAD", "PUT"):
        raise Refused("ENDPOINT_NOT_FOUND", "An artifact is read and written here.")
    if path.startswith(MODELS) and request.method != "PUT":
        assert isinstance(request.user, User)
        return registry.file(request, request.user, path.removeprefix(MODELS))
    run, below = _parse_artifact_path(request, path, need="write" if request.method == "PUT" else "read")
    if request.method == "PUT":
        outside.receive(run, below, cast(BinaryIO, request))
        return JsonResponse({})
    try:
        opened, _ = selectors.open_file(run, f"{ARTIFACTS}/{below}")
    except FileNotFoundError:
        raise Http404("The run has no such artifact.") from None
    return downloads.attachment(request, opened, name=below.rpartition("/")[2])


def _parse_artifact_path(request: HttpRequest, path: str, *, need: access.Need = "read") -> tuple[TrainingRun, str]:
    """The run of a path below the artifact store (runs/7/...), and what follows."""
    top, _, rest = path.strip("/").partition("/")
    number, _, below = rest.partition("/")
    if top != "runs":
        raise Http404("Artifacts are below runs/, by the run's number.")
    assert isinstance(request.user, User)
    return access.run(request.user, outside.number(number), need=need), below


def _files(run: TrainingRun, path: str) -> list[dict[str, Any]]:
    """`path`: below the run's artifacts."""
    found = runfiles.entries(run, "/".join(filter(None, (ARTIFACTS, path))), limit=MOST_FILES)
    return [{"path": one.name, "is_dir": one.size_bytes is None, "file_size": one.size_bytes or 0} for one in found]


def _experiment(user: User, said: RequestBody) -> dict[str, Any]:
    return {"experiment": described.experiment(access.project(user, outside.number(said.get("experiment_id"))))}


def _experiment_by_name(user: User, said: RequestBody) -> dict[str, Any]:
    name = answers.text(said, "experiment_name")
    found = access.projects_for(user).filter(name=name).order_by("-created_at", "-pk").first()
    if found is None:
        raise Http404(f"You are in no project that is called {name[:100]!r}: MLflow's experiments are the studio's projects.")
    return {"experiment": described.experiment(found)}


def _experiments(user: User, said: RequestBody) -> dict[str, Any]:
    if said.get("filter"):
        refuse("Projects are not searched by a filter here: leave it out.")
    some: list[Project] = list(access.projects_for(user).order_by("-created_at", "-pk")[:MOST_PROJECTS])
    return {"experiments": [described.experiment(project) for project in some]}


def _run_of(user: User, said: RequestBody, *, need: access.Need = "read") -> TrainingRun:
    return access.run(user, outside.number(said.get("run_id") or said.get("run_uuid")), need=need)


def _run(user: User, said: RequestBody) -> dict[str, Any]:
    return {"run": described.runs([_run_of(user, said)])[0].answer()}


def _runs(user: User, said: RequestBody) -> dict[str, Any]:
    """The newest first, or as asked."""
    wanted = said.get("experiment_ids")
    if not isinstance(wanted, list):
        refuse("experiment_ids is no list: name the projects to search.")
    mine = access.projects_for(user).filter(pk__in=[outside.number(each) for each in wanted[:MOST_PROJECTS]]).values("pk")
    newest = TrainingRun.objects.filter(experiment__project__in=mine).order_by("-submitted_at", "-pk")
    related = newest.select_related("experiment", "version__definition", "submitted_by")
    found = answers.matching(described.runs(related[:MOST_RUNS]), answers.text(said, "filter", default=""))
    found = answers.ordered(found, said.get("order_by") or [])
    first = outside.number(said.get("page_token"))
    most = min(answers.whole(said, "max_results", default=MOST_SHOWN), MOST_SHOWN)
    after = {"next_page_token": str(first + most)} if len(found) > first + most else {}
    return {"runs": [run.answer() for run in found[first : first + max(most, 0)]], **after}


def _history(user: User, said: RequestBody) -> dict[str, Any]:
    run, key = _run_of(user, said), answers.text(said, "metric_key")
    return {"metrics": [answers.metric(key, point) for point in described.history(run, key)]}


def _list(user: User, said: RequestBody) -> dict[str, Any]:
    run, path = _run_of(user, said), answers.text(said, "path", default="")
    files = [{**one, "path": "/".join(filter(None, (path, one["path"])))} for one in _files(run, path)]
    return {"root_uri": f"{described.ROOT}/{run.pk}", "files": files}


def _log(
    user: User,
    said: RequestBody,
    *,
    metrics: Iterable[RequestBody] = (),
    parameters: Iterable[RequestBody] = (),
    tags: Iterable[RequestBody] = (),
) -> dict[str, Any]:
    run = _run_of(user, said, need="write")
    named, tagged = ({answers.name(each): answers.value(each) for each in some} for some in (parameters, tags))
    outside.log(run, metrics)
    outside.note(run, named, tagged)
    return {}


def _log_batch(user: User, said: RequestBody) -> dict[str, Any]:
    metrics, parameters, tags = (answers.records(said, key) for key in ("metrics", "params", "tags"))
    return _log(user, said, metrics=metrics, parameters=parameters, tags=tags)


def _log_inputs(user: User, said: RequestBody) -> dict[str, Any]:
    """Data sets that the script names: kept as a tag each, for people to read, as inside a run."""
    named = [each["dataset"] for each in answers.records(said, "datasets") if isinstance(each.get("dataset"), dict)]
    tags = [{"key": f"dataset.{answers.text(one, 'name')[:200]}", "value": answers.text(one, "digest", default="")} for one in named]
    return _log(user, said, tags=tags)


def _drop_tag(user: User, said: RequestBody) -> dict[str, Any]:
    outside.note(_run_of(user, said, need="write"), {}, {}, (answers.name(said),))
    return {}


GETS: dict[str, Do] = {
    "experiments/get": _experiment,
    "experiments/get-by-name": _experiment_by_name,
    "experiments/search": _experiments,
    "runs/get": _run,
    "metrics/get-history": _history,
    "artifacts/list": _list,
    **registry.GETS,
}
POSTS: dict[str, Do] = {
    "experiments/search": _experiments,
    "logged-models/search": lambda _, __: {"models": []},  # their files are among the artifacts
    "experiments/create": outside.create_experiment,
    "runs/search": _runs,
    "runs/create": outside.create,
    "runs/update": lambda user, said: outside.update(user, _run_of(user, said, need="write"), said),
    "runs/log-metric": lambda user, said: _log(user, said, metrics=[said]),
    "runs/log-batch": _log_batch,
    "runs/log-inputs": _log_inputs,
    "runs/log-parameter": lambda user, said: _log(user, said, parameters=[said]),
    "runs/set-tag": lambda user, said: _log(user, said, tags=[said]),
    "runs/delete-tag": _drop_tag,
    **registry.POSTS,
}
BY_METHOD: dict[str, dict[str, Do]] = {"GET": GETS, "HEAD": GETS, "POST": POSTS, "DELETE": {**registry.DELETES}}
