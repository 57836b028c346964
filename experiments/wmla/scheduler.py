"""The scheduler's and the conductor's addresses: applications, the logs of drivers and executors, and how slots are shared (to look at)."""

from __future__ import annotations

from collections import Counter

from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils import timezone

from experiments import access, selectors, services
from experiments.models import Grant, RunTransition, TrainingRun
from experiments.selectors.sharing import sharers
from experiments.views.downloads import attachment
from experiments.views.responses import number, person
from experiments.wmla import answers, applications, logs
from experiments.wmla.answers import api
from experiments.wmla.described import STATES, exec_id, run_of, stamp, states

MOST_LISTED = 200
MOST_LINES, MOST_LINES_BYTES = 100_000, 4 << 20
ROOT = "cluster"


def _applications(request: HttpRequest, group: str = "") -> HttpResponse:  # noqa: ARG001
    """?applicationid= or driverid=, applicationname=, search=, state=, sort=, order=, start=, length=. A group is the cluster."""
    now, here = timezone.now(), request.build_absolute_uri("/").rstrip("/")
    return answers.json_response([applications.application(run, now=now, here=here) for run in _page(request)])


def _engine_applications(request: HttpRequest) -> HttpResponse:
    now = timezone.now()
    return answers.json_response([applications.engine_application(run, now=now) for run in _page(request)])


def _page(request: HttpRequest) -> list[TrainingRun]:
    found = _readable(request)
    if wanted := request.GET.get("state", ""):
        found = found.filter(state__in=states(wanted))
    for key in ("applicationid", "driverid"):
        if said := request.GET.get(key, ""):
            found = found.filter(pk=run_of(person(request), said).pk)
    for key in ("applicationname", "search"):
        if said := request.GET.get(key, "").replace("\0", "").strip():
            found = found.filter(Q(name__icontains=said) | Q(version__definition__name__icontains=said))
    sort = request.GET.get("sort", "-submit_time")
    up = request.GET.get("order", "").lower() == "asc" or not (sort.startswith("-") or request.GET.get("order"))
    found = found.order_by(*(("submitted_at", "pk") if up else ("-submitted_at", "-pk")))
    start = number(request, "start", 0, least=0, most=1 << 30)
    return list(found[start : start + number(request, "length", MOST_LISTED, least=1, most=MOST_LISTED)])


def _readable(request: HttpRequest) -> QuerySet[TrainingRun]:
    found = TrainingRun.objects.filter(experiment__project__in=access.projects_for(person(request)).values("pk"))
    return found.select_related("submission", "experiment", "version__definition", "submitted_by", "head_node")


def _application(request: HttpRequest, exec_id: str) -> HttpResponse:
    run = _readable(request).get(pk=run_of(person(request), exec_id).pk)
    return answers.json_response(applications.application(run, now=timezone.now(), here=request.build_absolute_uri("/").rstrip("/")))


def _engine_application(request: HttpRequest, exec_id: str) -> HttpResponse:
    run = _readable(request).get(pk=run_of(person(request), exec_id).pk)
    return answers.json_response(applications.engine_application(run, now=timezone.now()))


def _stop(request: HttpRequest, exec_id: str) -> HttpResponse:
    services.stop_run(run_of(person(request), exec_id, control=True), by=person(request))
    return answers.nothing()


def _statistic(request: HttpRequest) -> HttpResponse:
    counted = Counter(STATES[state] for state in _readable(request).values_list("state", flat=True))
    return answers.json_response({word: counted[word] for word in dict.fromkeys(STATES.values())})


def _instances(request: HttpRequest) -> HttpResponse:  # noqa: ARG001
    return answers.json_response([{"id": ROOT, "name": ROOT, "state": "STARTED"}])


def _objects(request: HttpRequest) -> HttpResponse:  # noqa: ARG001
    """There is no Kubernetes below."""
    return answers.json_response([])


def _tree(request: HttpRequest) -> HttpResponse:  # noqa: ARG001
    return answers.json_response(_plan(ROOT))


def _resource_plan(request: HttpRequest, name: str) -> HttpResponse:  # noqa: ARG001
    return answers.json_response(_plan(name))


def _plan(name: str) -> dict[str, object]:
    """The cluster, and below it each person with their weight: that is between whom slots are shared."""
    people = sharers()
    leaves: list[dict[str, object]] = [
        {"id": one, "pid": ROOT, "name": one, "shareRatio": weight, "childTreeDto": []} for one, weight in people.items()
    ]
    root: dict[str, object] = {"id": ROOT, "pid": "", "name": ROOT, "shareRatio": sum(people.values()), "childTreeDto": leaves}
    found = next((each for each in (root, *leaves) if each["id"] == name), None)
    if found is None:
        answers.refuse(f"There is no resource plan {name[:80]}.")
    return found


def _driver_log(request: HttpRequest, exec_id: str, kind: str, download: str | None = None, group: str = "") -> HttpResponseBase:  # noqa: ARG001
    run = run_of(person(request), exec_id)
    if kind == "launcherlog":
        return answers.text(_history(run))
    return _log(request, run, "driver", download=bool(download))


def _executor_log(
    request: HttpRequest,
    exec_id: str,
    kind: str,
    executor: str,
    download: str | None = None,
    group: str = "",  # noqa: ARG001
) -> HttpResponseBase:
    """`executor`: its number from 1, or (first generation) the id of the list, which begins with its number from 0."""
    run = run_of(person(request), exec_id)
    found = applications.executors(run)
    one = next((each for each in found if executor in (each.id, str(each.number))), None)
    if one is None:
        answers.refuse(f"{exec_id} has no executor {executor[:40]}: it has had {len(found)} so far.")
    if kind == "launcherlog":
        grants = Grant.objects.filter(run=run, slot=one.slot).order_by("granted_at", "pk")
        lines = [(each.granted_at, f"begins: {each.reason}") for each in grants]
        lines += [(each.released_at, f"ends: {each.release_reason}") for each in grants if each.released_at]
        return answers.text("".join(f"{stamp(at)} {said}\n" for at, said in sorted(lines)))
    return _log(request, run, one.log, download=bool(download))


def _log(request: HttpRequest, run: TrainingRun, name: str, *, download: bool) -> HttpResponseBase:
    path = f"log/{name}/console.log"
    lines = number(request, "lastlines", 0, least=0, most=MOST_LINES)
    if lines and not download:
        tail = selectors.log_tail(run, name, lines=lines, limit_bytes=MOST_LINES_BYTES)
        return answers.json_response(tail.text) if answers.wants_json(request) else answers.text(tail.text)
    if not download:
        return logs.log(request, run, path, name=f"{exec_id(run)}-{name}.log")
    try:
        opened, _ = selectors.open_file(run, path)
    except FileNotFoundError:
        return answers.text("")
    return attachment(request, opened, name=f"{exec_id(run)}-{name}.log", kind="text/plain; charset=utf-8")


def _history(run: TrainingRun) -> str:
    """What launched the driver, and what has become of it: the run's states with their reasons."""
    found = RunTransition.objects.filter(run=run).order_by("at", "pk")
    return "".join(f"{stamp(each.at)} {each.new}: {each.reason}\n" for each in found)


all_applications = api(GET=_applications)
engine_applications = api(GET=_engine_applications)
one_application = api(GET=_application)
engine_application = api(GET=_engine_application)
stop = api(PUT=_stop, POST=_stop)
statistic = api(GET=_statistic)
instances = api(GET=_instances)
objects = api(GET=_objects)
resource_tree = api(GET=_tree)
resource_plan = api(GET=_resource_plan)
driver_log = api(GET=_driver_log)
executor_log = api(GET=_executor_log)
