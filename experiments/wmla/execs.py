"""Jobs (execs): frameworks, submit, list, look, stop, delete."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse

from experiments import access, services
from experiments.models import TrainingRun, User
from experiments.models.runs import ENDED
from experiments.views.responses import number, person
from experiments.wmla import answers, frameworks, sent_code, submissions
from experiments.wmla.answers import api
from experiments.wmla.arguments import read_json
from experiments.wmla.described import described, run_of, states

MOST_LISTED = 1000
MOST_SPEC = 64_000  # characters of the form's field `data`


def _frameworks(request: HttpRequest) -> HttpResponse:  # noqa: ARG001
    return answers.json_response([each.described() for each in frameworks.ALL])


def _submit(request: HttpRequest) -> HttpResponse:
    """?args= in the address, or "args" in the JSON of the form's field `data`. Files may be called anything."""
    spec = data_field(request)
    args = request.GET.get("args") or request.POST.get("args") or spec.get("args", "")
    if not isinstance(args, str):
        answers.refuse("args is no text: write it as dlicmd.py's options.")
    files, group = sent_code.in_form(request, args), request.GET.get("sigName", "")
    run = submissions.submit(by=person(request), args=args, spec=spec, files=files, instance_group=group)
    return answers.json_response(described(run, request))


def data_field(request: HttpRequest) -> dict[str, Any]:
    """The JSON object in the form's field `data`; empty where there is none. Raises Refused."""
    text = request.POST.get("data", "")
    if not text:
        return {}
    try:
        found = read_json(text) if len(text) <= MOST_SPEC else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        answers.refuse("The form's field data is no JSON object.")
    return found


def _list(request: HttpRequest) -> HttpResponse:
    """?limit=10&state=FINISHED&sort_by=id:desc"""
    found = execs_of(person(request))
    if wanted := request.GET.get("state", ""):
        found = found.filter(state__in=states(wanted))
    key, _, order = request.GET.get("sort_by", "id:asc").partition(":")
    column = {"createTime": "submitted_at", "state": "state"}.get(key, "pk")
    down = order.lower() == "desc"
    limit = number(request, "limit", MOST_LISTED, least=1, most=MOST_LISTED)
    if "sort_by" in request.GET:
        runs = list(found.order_by(f"{'-' if down else ''}{column}", "-pk" if down else "pk")[:limit])
    else:
        runs = list(found.order_by("-pk")[:limit])[::-1]  # the latest, in the order in which they came
    return answers.json_response([described(run, request) for run in runs])


def execs_of(user: User) -> QuerySet[TrainingRun]:
    """The runs that the person started, by whatever way, in projects that they are in."""
    found = TrainingRun.objects.filter(submitted_by=user, experiment__project__in=access.projects_for(user).values("pk"))
    return found.select_related("submission", "experiment", "version__definition", "submitted_by")


def _delete_all(request: HttpRequest) -> HttpResponse:
    """What the person submitted by this interface and has ended. What runs is left, and so is what was started on the pages."""
    user = person(request)
    projects = [project.pk for project in access.projects_for(user) if access.may(project, "write")]
    mine = execs_of(user).filter(submission__isnull=False, trial__isnull=True)  # trials go with their search
    for run in mine.filter(state__in=ENDED, experiment__project__in=projects):
        submissions.withdraw(run, by=user)
    return answers.nothing()


def _get(request: HttpRequest, exec_id: str) -> HttpResponse:
    return answers.json_response(described(run_of(person(request), exec_id), request))


def _delete(request: HttpRequest, exec_id: str) -> HttpResponse:
    run = access.run(person(request), run_of(person(request), exec_id).pk, need="write")
    if run.is_live():
        answers.refuse(f"{exec_id} has not ended: stop it, and delete it when it has ended.")
    submissions.withdraw(run, by=person(request))
    return answers.nothing()


def _stop(request: HttpRequest, exec_id: str) -> HttpResponse:
    run = run_of(person(request), exec_id, control=True)
    services.stop_run(run, by=person(request))
    return answers.nothing()


all_frameworks = api(GET=_frameworks)
execs = api(GET=_list, POST=_submit, DELETE=_delete_all)
one = api(GET=_get, DELETE=_delete)
stop = api(POST=_stop, PUT=_stop)
