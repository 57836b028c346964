"""The addresses: who calls is known first; every answer and refusal is JSON in the shapes of MLflow's own server.

Runs are read here, and noted on (tags, parameters); they are begun in the studio, and what they measure they log from inside.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, JsonResponse
from django.http.response import HttpResponseBase
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt

from experiments import access, ingest, runfiles, selectors
from experiments.mlflow import described
from experiments.models import Project, TrainingRun, User
from experiments.views import downloads
from experiments.wmla import callers
from training_runtime.noted import Noted
from training_runtime.tracking import answers
from training_runtime.tracking.answers import ARTIFACTS, PREFIX, Refused, refuse

MOST_RUNS = 2000  # that a search looks at, the newest
MOST_SHOWN = 1000
MOST_PROJECTS = 1000
MOST_FILES = 10_000  # of one folder
BEGIN = (
    "Runs are begun in the studio: start one there and log to it from inside, where mlflow needs no settings. "
    "From here, mlflow.start_run(run_id=...) resumes one for tags and parameters."
)
INSIDE = "Metrics are logged from inside the run, where mlflow needs no settings; from here tags and parameters can be."
NO_FILES = "Files are kept from inside the run (mlflow.log_artifact); from here they can be read."
Said = Mapping[str, Any]
Do = Callable[[User, Said], dict[str, Any]]


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
        answer.headers.setdefault("Cache-Control", "no-store")
        return answer

    return view


@_answering
def call(request: HttpRequest, what: str) -> HttpResponseBase:
    do = (GETS if request.method in ("GET", "HEAD") else POSTS if request.method == "POST" else {}).get(what)
    if do is None:
        raise Refused("ENDPOINT_NOT_FOUND", f"The studio does not answer {request.method} {PREFIX}{what[:100]}: see docs/mlflow.md.")
    assert isinstance(request.user, User)
    return JsonResponse(do(request.user, _said(request)))


def _said(request: HttpRequest) -> Said:
    if request.method != "POST":
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
    _reads(request)
    run, path = _place(request, request.GET.get("path", ""))
    return JsonResponse({"files": _files(run, path)})


@_answering
def artifact(request: HttpRequest, path: str) -> HttpResponseBase:
    _reads(request)
    run, below = _place(request, path)
    try:
        opened, _ = selectors.open_file(run, f"{ARTIFACTS}/{below}")
    except FileNotFoundError:
        raise Http404("The run has no such artifact.") from None
    return downloads.attachment(request, opened, name=below.rpartition("/")[2])


def _reads(request: HttpRequest) -> None:
    if request.method not in ("GET", "HEAD"):
        raise Refused("NOT_IMPLEMENTED", NO_FILES)


def _place(request: HttpRequest, path: str) -> tuple[TrainingRun, str]:
    """The run of a path below the artifact store (runs/7/...), and what follows."""
    top, _, rest = path.strip("/").partition("/")
    number, _, below = rest.partition("/")
    if top != "runs":
        raise Http404("Artifacts are below runs/, by the run's number.")
    assert isinstance(request.user, User)
    return access.run(request.user, _number(number)), below


def _files(run: TrainingRun, path: str) -> list[dict[str, Any]]:
    """`path`: below the run's artifacts."""
    found = runfiles.entries(run, "/".join(filter(None, (ARTIFACTS, path))), limit=MOST_FILES)
    return [{"path": one.name, "is_dir": one.size_bytes is None, "file_size": one.size_bytes or 0} for one in found]


def _number(text: object) -> int:
    """0, which nothing has, where it is none."""
    said = str(text)
    return int(said) if said.isascii() and said.isdigit() and len(said) <= 18 else 0


def _experiment(user: User, said: Said) -> dict[str, Any]:
    return {"experiment": described.experiment(access.project(user, _number(said.get("experiment_id"))))}


def _experiment_by_name(user: User, said: Said) -> dict[str, Any]:
    name = answers.text(said, "experiment_name")
    found = access.projects_for(user).filter(name=name).order_by("-created_at", "-pk").first()
    if found is None:
        raise Http404(f"You are in no project that is called {name[:100]!r}: MLflow's experiments are the studio's projects.")
    return {"experiment": described.experiment(found)}


def _experiments(user: User, said: Said) -> dict[str, Any]:
    if said.get("filter"):
        refuse("Projects are not searched by a filter here: leave it out.")
    some: list[Project] = list(access.projects_for(user).order_by("-created_at", "-pk")[:MOST_PROJECTS])
    return {"experiments": [described.experiment(project) for project in some]}


def _run_of(user: User, said: Said, *, need: access.Need = "read") -> TrainingRun:
    return access.run(user, _number(said.get("run_id") or said.get("run_uuid")), need=need)


def _run(user: User, said: Said) -> dict[str, Any]:
    return {"run": described.runs([_run_of(user, said)])[0].answer()}


def _runs(user: User, said: Said) -> dict[str, Any]:
    """The newest first, or as asked."""
    wanted = said.get("experiment_ids")
    if not isinstance(wanted, list):
        refuse("experiment_ids is no list: name the projects to search.")
    mine = access.projects_for(user).filter(pk__in=[_number(each) for each in wanted[:MOST_PROJECTS]]).values("pk")
    newest = TrainingRun.objects.filter(experiment__project__in=mine).order_by("-submitted_at", "-pk")
    related = newest.select_related("experiment", "version__definition", "submitted_by")
    found = answers.found(described.runs(related[:MOST_RUNS]), answers.text(said, "filter", default=""))
    found = answers.ordered(found, said.get("order_by") or [])
    first = _number(said.get("page_token"))
    most = min(answers.whole(said, "max_results", default=MOST_SHOWN), MOST_SHOWN)
    after = {"next_page_token": str(first + most)} if len(found) > first + most else {}
    return {"runs": [run.answer() for run in found[first : first + max(most, 0)]], **after}


def _history(user: User, said: Said) -> dict[str, Any]:
    run, key = _run_of(user, said), answers.text(said, "metric_key")
    return {"metrics": [answers.metric(key, point) for point in described.history(run, key)]}


def _list(user: User, said: Said) -> dict[str, Any]:
    run, path = _run_of(user, said), answers.text(said, "path", default="")
    files = [{**one, "path": "/".join(filter(None, (path, one["path"])))} for one in _files(run, path)]
    return {"root_uri": f"{described.ROOT}/{run.pk}", "files": files}


def _update(user: User, said: Said) -> dict[str, Any]:
    """What `start_run(run_id=...)` and its end say. The run's state is the studio's to say."""
    return {"run_info": described.runs([_run_of(user, said, need="write")])[0].info()}


def _note(user: User, said: Said, *, parameters: list[Said], tags: list[Said]) -> dict[str, Any]:
    run = _run_of(user, said, need="write")
    named, tagged = ({answers.name(each): answers.value(each) for each in some} for some in (parameters, tags))
    if not ingest.note(run, Noted(named, tagged)):
        refuse(f"A run has at most {answers.MOST_NAMES} parameters, and as many tags.")
    return {}


def _log_batch(user: User, said: Said) -> dict[str, Any]:
    if said.get("metrics"):
        raise Refused("NOT_IMPLEMENTED", INSIDE)
    return _note(user, said, parameters=[*answers.records(said, "params")], tags=[*answers.records(said, "tags")])


def _drop_tag(user: User, said: Said) -> dict[str, Any]:
    ingest.note(_run_of(user, said, need="write"), Noted({}, {}, (answers.name(said),)))
    return {}


def _not_here(why: str) -> Do:
    def refused(_: User, __: Said) -> dict[str, Any]:
        raise Refused("NOT_IMPLEMENTED", why)

    return refused


GETS: dict[str, Do] = {
    "experiments/get": _experiment,
    "experiments/get-by-name": _experiment_by_name,
    "experiments/search": _experiments,
    "runs/get": _run,
    "metrics/get-history": _history,
    "artifacts/list": _list,
}
POSTS: dict[str, Do] = {
    "experiments/search": _experiments,
    "logged-models/search": lambda _, __: {"models": []},  # their files are among the artifacts
    "experiments/create": _not_here("MLflow's experiments are the studio's projects: create one there, and name it here."),
    "runs/search": _runs,
    "runs/create": _not_here(BEGIN),
    "runs/update": _update,
    "runs/log-metric": _not_here(INSIDE),
    "runs/log-batch": _log_batch,
    "runs/log-parameter": lambda user, said: _note(user, said, parameters=[said], tags=[]),
    "runs/set-tag": lambda user, said: _note(user, said, parameters=[], tags=[said]),
    "runs/delete-tag": _drop_tag,
}
