"""Searches for hyperparameters (hypersearch): start, list, look, stop, delete, and which algorithms there are.

A search is an experiment of the person's project "WMLA submissions", and its trials are the runs. What each is given it finds in its
config.json; what it comes to is read from RESULT_DIR/val_dict_list.json.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import re
import secrets
from collections.abc import Mapping

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from experiments import access, services
from experiments.errors import DomainError
from experiments.models import RunState, Search, SearchTrial, TrainingRun, User
from experiments.searches import choosing, results, specs, wishes, wmla_spec
from experiments.services import searches as verbs
from experiments.views.responses import person
from experiments.wmla import answers, sent_code, submissions
from experiments.wmla.answers import api
from experiments.wmla.described import exec_id
from experiments.wmla.execs import data_field
from experiments.wmla.openapi import DL

S = RunState
_NUMBER = re.compile(r".*-hpo-([0-9]{1,18})\Z", re.DOTALL)
PARTS = ("algoDef", "hyperParams", "experiments")
NO_PLUGINS = "Search algorithms of one's own cannot be installed here: name one of {0}, or list your trials for ExperimentGridSearch."
NOT_STORABLE = "The search has a number that is none, an infinite one or a null character in it: leave it out."
NO_RESTART = "A search cannot be started again here: submit it anew; trials that have a result can be left out of its experiments."
# Clients of notebooks go on while a search is SUBMITTED or RUNNING.
STATES: dict[str, str] = {S.QUEUED: "SUBMITTED", S.SUSPENDED: "SUBMITTED", S.COMPLETED: "FINISHED", S.FAILED: "ERROR", S.STOPPED: "KILLED"}


def _start(request: HttpRequest) -> HttpResponse:
    """The first generation, with a password each time, is told the name as text, later ones get an object."""
    spec, by = data_field(request), person(request)
    model = answers.dict_of(spec, "modelSpec")
    args = answers.text_of(model, "args")
    kept = {key: spec[key] for key in PARTS if key in spec}
    seed = secrets.randbelow(2**62)
    if not _is_storable(kept):
        answers.refuse(NOT_STORABLE)
    try:
        wanted = wmla_spec.parse(kept)
        choosing.check(wanted)
        first = choosing.choose(wanted, [], seed)
    except wishes.WrongWishes as wrong:
        answers.refuse(str(wrong))
    values = first.values or {}

    def open_search(run: TrainingRun) -> None:
        verbs.open_search(run, spec=kept, seed=seed, number=first.number, values=values, now=timezone.now())

    run = submissions.submit(
        by=by,
        args=args,
        spec={key: model[key] for key in ("hardwareSpec", "dataSource") if key in model},
        files=sent_code.in_form(request, args),
        instance_group=answers.text_of(model, "sigName"),
        also=verbs.config(values),
        then=open_search,
    )
    name = name_of(Search.objects.select_related("experiment__created_by").get(experiment=run.experiment_id))
    if request.headers.get("Authorization", "").lower().startswith("basic"):
        return answers.json_response(name)
    return answers.json_response({"uid": name, "href": f"{DL}/hypersearch/{name}"})


def _is_storable(spec: Mapping[str, object]) -> bool:
    """As JSON in any database."""
    try:
        return "\\u0000" not in json.dumps(spec, allow_nan=False)
    except ValueError:
        return False


def _list(request: HttpRequest) -> HttpResponse:
    return answers.json_response([described(each, request) for each in searches_of(person(request))])


def searches_of(user: User) -> QuerySet[Search]:
    """Those that the person started so, in projects that they are in."""
    here = access.projects_for(user).values("pk")
    found = Search.objects.filter(spec__has_key="algoDef", experiment__created_by=user, experiment__project__in=here)
    return found.select_related("experiment__created_by").order_by("pk")


def _search(user: User, said: str) -> Search:
    """The search of this name, in a project of the person's. Raises Refused, also for a stranger."""
    number = _NUMBER.match(said)
    here = access.projects_for(user).values("pk")
    found = (
        Search.objects.filter(pk=int(number[1]), spec__has_key="algoDef", experiment__project__in=here).select_related(
            "experiment__created_by"
        )
        if number
        else None
    )
    search = found.first() if found is not None else None
    if search is None:
        answers.refuse(f"Cannot find hpo task {said[:80]}.")
    return search


def _get(request: HttpRequest, search: str) -> HttpResponse:
    return answers.json_response(described(_search(person(request), search), request))


def _stop(request: HttpRequest, search: str) -> HttpResponse:
    found = _search(person(request), search)
    access.experiment(person(request), found.experiment_id, need="write")
    verbs.stop_search(found, by=person(request), now=timezone.now())
    return answers.nothing()


def _delete(request: HttpRequest, search: str) -> HttpResponse:
    found = _search(person(request), search)
    if found.ended_at is None:
        answers.refuse(f"{name_of(found)} has not ended: stop it, and delete it when its trials have ended.")
    services.delete_experiment(access.experiment(person(request), found.experiment_id, need="write"), by=person(request))
    return answers.nothing()


def _delete_all(request: HttpRequest) -> HttpResponse:
    """The person's that are over. Those that run are left."""
    user = person(request)
    projects = [project.pk for project in access.projects_for(user) if access.may(project, "write")]
    for search in searches_of(user).filter(ended_at__isnull=False, experiment__project__in=projects):
        with contextlib.suppress(DomainError):  # a trial is being stopped
            services.delete_experiment(search.experiment, by=user)
    return answers.nothing()


def _restart(request: HttpRequest, search: str) -> HttpResponse:
    _search(person(request), search)
    answers.refuse(NO_RESTART)


def _algorithms(request: HttpRequest) -> HttpResponse:
    """?type=BUILD_IN or USER_PLUGIN, of which there is none."""
    plugins = request.GET.get("type", "").upper() == "USER_PLUGIN"
    return answers.json_response([] if plugins else [_algorithm(name) for name in wmla_spec.ALGORITHMS.values()])


def _one_algorithm(request: HttpRequest, algorithm: str) -> HttpResponse:  # noqa: ARG001
    name = wmla_spec.ALGORITHMS.get(algorithm.lower())
    if name is None:
        answers.refuse(NO_PLUGINS.format(", ".join(wmla_spec.ALGORITHMS.values())))
    return answers.json_response(_algorithm(name))


def _algorithm(name: str) -> dict[str, object]:
    return {"name": name, "type": "BUILD_IN", "remoteExec": False}


def _no_plugins(request: HttpRequest, **about: str) -> HttpResponse:  # noqa: ARG001
    answers.refuse(NO_PLUGINS.format(", ".join(wmla_spec.ALGORITHMS.values())))


def name_of(search: Search) -> str:
    return f"{search.experiment.created_by.username}-hpo-{search.pk}"


def described(search: Search, request: HttpRequest) -> dict[str, object]:
    """As WMLA describes one; beside that `reason` and `url`. `search` comes with its experiment and who made it."""
    wanted, trials = specs.parse(search.spec), list(search.trials.select_related("run"))
    rows = [_trial(each, wanted) for each in trials]
    states = [str(row["state"]) for row in rows]
    best = results.best(trials, wanted)
    ended = search.ended_at or timezone.now()
    said: dict[str, object] = {
        "hpoName": name_of(search),
        "creator": search.experiment.created_by.username,
        "state": _state(search, states),
        "createtime": _stamp(search.created_at),
        "duration": _duration(ended - search.created_at),
        "progress": f"{sum(each.settled for each in trials)}/{choosing.most_runs(wanted)}",
        "running": states.count("RUNNING"),
        "complete": states.count("FINISHED"),
        "failed": sum(state in ("ERROR", "FAILED", "KILLED") for state in states),
        "algoDef": search.spec.get("algoDef"),
        "hyperParams": search.spec.get("hyperParams", []),
        "experiments": rows,
        "reason": search.reason,
        "url": request.build_absolute_uri(f"/experiments/{search.experiment_id}/"),
    }
    return said if best is None else {**said, "best": rows[trials.index(best)]}


def _state(search: Search, states: list[str]) -> str:
    if search.ended_at is not None:
        return search.state.upper()
    return "SUBMITTED" if set(states) <= {"SUBMITTED"} else "RUNNING"


def _trial(trial: SearchTrial, wanted: wishes.Wishes) -> dict[str, object]:
    state = STATES.get(trial.run.state, "RUNNING")
    if state == "FINISHED" and trial.settled and trial.result is None:
        state = "FAILED"
    fixed = {"type": "fix"} if wanted.listed else {}
    said: dict[str, object] = {
        "id": trial.number,
        "hyperParams": [
            {"name": name, "dataType": _kind(value), **fixed, "fixedVal": str(value), "userDefined": False}
            for name, value in trial.values.items()
        ],
        "state": state,
        "appId": exec_id(trial.run),
        "driverId": exec_id(trial.run),
        "maxiteration": 0,
        "startTime": _stamp(trial.run.submitted_at),
        "endTime": _stamp(trial.run.ended_at),
    }
    return said if trial.result is None else {**said, "metricVal": trial.result}


def _kind(value: object) -> str:
    return "double" if isinstance(value, float) else "int" if isinstance(value, int) else "str"


def _stamp(at: dt.datetime | None) -> str:
    return at.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%S") if at else ""


def _duration(took: dt.timedelta) -> str:
    minutes, seconds = divmod(int(took.total_seconds()), 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}"


searches = api(GET=_list, POST=_start, DELETE=_delete_all)
one = api(GET=_get, PUT=_stop, DELETE=_delete)
stop = api(PUT=_stop, POST=_stop)
restart = api(PUT=_restart, POST=_restart)
algorithms = api(GET=_algorithms)
one_algorithm = api(GET=_one_algorithm, DELETE=_no_plugins)
install = api(POST=_no_plugins)
