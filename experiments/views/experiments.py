"""Experiments: a new one (Create and run), its page with the runs, running it again."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.text import slugify
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from experiments import access, selectors, services
from experiments.forms.common import CheckpointsForm, ExperimentForm, WatchForm, attempt, watch_forms
from experiments.forms.definitions import DefinitionForm
from experiments.forms.sent_once import RequestForm
from experiments.models import DefinitionVersion, Experiment, Project, User
from experiments.selectors import ExperimentTables, RunFilter, data, projects
from experiments.selectors import code as source
from experiments.services import grid, watches
from experiments.views import uploaded_code
from experiments.views.definitions import PANEL_IDS, make
from experiments.views.responses import act, begun, done, later, number, page, person, project_crumbs, refused, spreadsheet

PAGE_ROWS = 40
MOST_WAITING = 25
COMMAND_LIMIT = 2000
ASKED = ("q", "tag", "sort", "order", "offset")  # what stands in the address of an experiment's page
INLINE = "new"  # prefix of the training definition that is written on the experiment's own form, without script


@require_http_methods(["GET", "HEAD", "POST"])
def new(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    project = access.project(user, pk, need="write")
    again = _template(user, project, request.GET.get("like", ""))
    form = ExperimentForm(request.POST or None, request.FILES or None, initial=_initial(again) | _named(request))
    form.fields["data_asset"].queryset = project.data_assets.all()  # type: ignore[attr-defined]
    choices = choices_of(project, again)
    form.fields["versions"].queryset = choices  # type: ignore[attr-defined]
    inline_sent = request.method == "POST" and (f"{INLINE}-name" in request.POST) and _filled(request)
    inline = DefinitionForm(request.POST if inline_sent else None, request.FILES if inline_sent else None, prefix=INLINE)
    lines = watch_forms(request.POST if request.method == "POST" else None, start=watches.crossings(again, of=user) if again else ())
    forms = [form, *lines, *([inline] if inline_sent else [])]
    if request.method == "POST" and all([each.is_valid() for each in forms]):  # a list: each one says what is wrong with it
        added = attempt(inline, lambda: make(project, user, inline)) if inline_sent else None
        if not inline.errors:
            experiment = _create_and_run(project, user, form, added, commands_of(request, None), lines)
            if experiment:
                return redirect("experiment", experiment.pk)
        if added:  # it is stored though the experiment is not: from now on one of those that are chosen
            messages.info(request, f"{added.definition.name} is saved as a training definition of this project, and chosen below.")
            inline, inline_sent = DefinitionForm(prefix=INLINE), False
            form.data = form.data.copy()  # type: ignore[attr-defined]
            form.data.appendlist("versions", str(added.pk))  # type: ignore[attr-defined]
            choices = choices_of(project, again)
    commands = commands_of(request, again)
    if request.method == "POST":
        _say_the_rest(project, form, None if inline_sent else associated(form, choices, commands))
    kept = uploaded_code.keep_code_of(inline, user, project, refused=any(each.errors for each in forms)) if inline_sent else None
    begun(form, check=reverse("check_experiment", args=[pk]))
    panel = DefinitionForm(auto_id=PANEL_IDS)
    begun(panel, check=reverse("check_definition", args=[pk]))
    context = {
        "section": "projects",
        "project": project,
        "form": form,
        "inline": inline,
        "arrived": kept,
        "lines": lines,
        "lines_used": any(line.has_changed() if line.is_bound else line.initial for line in lines),
        "metric_names": later(lambda: selectors.recent_metric_names(project)),
        "panel": panel,
        "choices": later(lambda: source.associated(list(choices), _typed(choices, commands), with_scripts=False)),
        "chosen": later(lambda: [part.version for part in associated(form, choices, commands)]),
        "associated": later(lambda: _rows(associated(form, choices, commands))),
        "folders": later(lambda: [("", data.folders()), *((asset.pk, data.folders(asset)) for asset in project.data_assets.all()[:50])]),
        "crumbs": project_crumbs(project),
    }
    return page(request, "experiments/new.html", context)


def _filled(request: HttpRequest) -> bool:
    typed = (request.POST.get(f"{INLINE}-{name}", "").strip() for name in ("name", "kept"))
    return any(typed) or f"{INLINE}-upload" in request.FILES


def _template(user: User, project: Project, raw: str) -> Experiment | None:
    """The experiment that a new one starts from ("Edit as new"), of the same project."""
    if not (raw.isascii() and raw.isdigit() and len(raw) < 18):
        return None
    found = access.experiment(user, int(raw))
    return found if found.project.pk == project.pk else None


def _named(request: HttpRequest) -> dict[str, object]:
    """What another page has asked for by ?data= and ?version=; what there is not in the project is in none of the form's choices."""
    named = {"data_asset": request.GET.get("data", "")[:18], "versions": [pk[:18] for pk in request.GET.getlist("version")[:20]]}
    return {name: asked for name, asked in named.items() if asked}


def _initial(again: Experiment | None) -> dict[str, object]:
    if again is None:
        return {}
    return {
        "name": f"{again.name} (copy)"[:120],
        "description": again.description,
        "data_asset": again.data_asset_id,
        "source_folder": again.source_folder,
        "use_global": bool(again.global_command),
        "global_command": again.global_command,
        "environment": "\n".join(f"{name}={value}" for name, value in again.environment.items()),
        "versions": [part.version_id for part in again.parts.all()],
        **CheckpointsForm.of(again.checkpoints).initial,
    }


@dataclass(frozen=True)
class Part:
    """A line of the form: a version, and what was typed as its command, value lists and all."""

    version: DefinitionVersion
    command: str


def commands_of(request: HttpRequest, again: Experiment | None) -> dict[int, list[str]]:
    """What was typed for each version, by its id: "command-ID", once for each time that the version is there, or (without script) a line
    each; at first what the experiment that is copied ran."""
    found: dict[int, list[str]] = {}
    if request.method == "POST":
        for name, values in request.POST.lists():
            pk = name.removeprefix("command-")
            if pk != name and pk.isascii() and pk.isdigit() and len(pk) < 18:
                found[int(pk)] = [line for value in values for line in _lines(str(value))]
        return found
    for part in again.parts.select_related("version") if again is not None else []:
        found.setdefault(part.version_id, []).append(part.command or part.version.command)
    return found


def _lines(text: str) -> list[str]:
    """Those that say something, or one that is empty."""
    return [line for each in text.splitlines() if (line := each.strip())] or [""]


def _typed(choices: Iterable[DefinitionVersion], commands: dict[int, list[str]]) -> list[str]:
    """The commands of each, a line each."""
    return ["\n".join(commands.get(version.pk, [version.command])) for version in choices]


def choices_of(project: Project, again: Experiment | None) -> QuerySet[DefinitionVersion]:
    newest = projects.newest_versions(project)
    if again is None:
        return newest
    wanted = {*newest.values_list("pk", flat=True), *again.parts.values_list("version_id", flat=True)}
    return (
        DefinitionVersion.objects.filter(pk__in=wanted)
        .select_related("definition", "bundle")
        .order_by("-definition__created_at", "-number")
    )


def associated(form: ExperimentForm, choices: QuerySet[DefinitionVersion], commands: dict[int, list[str]]) -> list[Part]:
    """The lines of the form's table, in its order: those typed before, or those it starts with."""
    by_pk = {str(version.pk): version for version in choices}
    versions = [by_pk[str(pk)] for pk in form["versions"].value() or [] if str(pk) in by_pk]
    left = {version.pk: list(commands.get(version.pk, [version.command])) for version in versions}
    last = {version.pk: place for place, version in enumerate(versions)}
    found = []
    for place, version in enumerate(versions):
        mine = left[version.pk]
        taken, left[version.pk] = (mine, []) if place == last[version.pk] else (mine[:1], mine[1:])
        found += [Part(version, command) for command in taken or [version.command]]
    return found


def _rows(parts: list[Part]) -> list[source.Associated]:
    return source.associated([part.version for part in parts], [part.command for part in parts])


def _create_and_run(
    project: Project,
    user: User,
    form: ExperimentForm,
    added: DefinitionVersion | None,
    commands: dict[int, list[str]],
    lines: list[WatchForm],
) -> Experiment | None:
    """`added`: the training definition that was written on the same form."""
    parts = associated(form, form.fields["versions"].queryset, commands)  # type: ignore[attr-defined]
    parts += [Part(added, added.command)] if added else []
    keys = ("name", "description", "data_asset", "source_folder", "environment", "idempotency_key")
    said = {key: form.cleaned_data[key] for key in keys}
    said["keeps"] = form.policy()
    said["thresholds"] = [line.crossing() for line in lines if line.has_changed()]
    everywhere = form.cleaned_data["global_command"]
    return attempt(form, lambda: services.create_and_run(project, by=user, **_grid(parts, everywhere), **said))


def _grid(parts: list[Part], everywhere: str) -> dict[str, Any]:
    """What the service is told of the form's lines and its global command: a version and a command for each run of their lists."""
    versions, commands, command = grid.rows([part.version for part in parts], [part.command for part in parts], everywhere)
    return {"versions": versions, "commands": commands, "global_command": command}


def _say_the_rest(project: Project, form: ExperimentForm, parts: list[Part] | None) -> None:
    """What the service would refuse beside what the form has found, so that all that is wrong is said at once. Nothing of a field that
    hangs on one that is wrong. `parts`: None where some are still to be made."""
    sent: dict[str, Any] = {name: form.cleaned_data.get(name) or "" for name in ("name", "description", "source_folder")}
    asset, variables = form.cleaned_data.get("data_asset"), form.cleaned_data.get("environment")
    said = {*form.errors, *(["source_folder"] if "data_asset" in form.errors else [])}
    if parts is None or (parts and "global_command" in form.errors):
        said.add("versions")
    try:
        told = _grid(parts or [], form.cleaned_data.get("global_command") or "")
        services.check_experiment(project, data_asset=asset, environment=variables, **told, **sent)
    except ValidationError as error:
        for name, wrong in error.message_dict.items():
            if name not in said:
                form.add_error(name, wrong)


def experiment_tab(request: HttpRequest, pk: int, name: str) -> tuple[Experiment, dict[str, object]]:
    """The experiment, and what every tab of its page shows."""
    user = person(request)
    experiment = access.experiment(user, pk)
    may_write = access.may(experiment.project, "write")
    return experiment, {
        "section": "projects",
        "experiment": experiment,
        "project": experiment.project,
        "tab": name,
        "idempotency_key": uuid.uuid4(),
        "may_write": may_write,
        "may_control": may_write or user.administers,
        "crumbs": project_crumbs(experiment.project),
    }


@require_safe
def detail(request: HttpRequest, pk: int) -> HttpResponse:
    experiment, tab = experiment_tab(request, pk, "runs")
    offset = number(request, "offset", 0, least=0, most=10_000_000)
    wanted = RunFilter(
        query=request.GET.get("q", "").strip()[:120],
        tag=request.GET.get("tag", "")[:40],
        sort=request.GET.get("sort", "")[:220],
        descending=request.GET.get("order") == "down",
        offset=offset,
        most_queued=MOST_WAITING,
        most_ended=PAGE_ROWS,
    )
    if request.GET.get("format") == "csv":
        every = replace(wanted, offset=0, most_queued=None, most_ended=None)
        tables = selectors.experiment_tables(experiment, every, now=timezone.now())
        return spreadsheet(f"{slugify(experiment.name)[:60] or 'experiment'}-runs.csv", _csv(tables))
    context = {
        **tab,
        "tables": later(lambda: selectors.experiment_tables(experiment, wanted, now=timezone.now())),
        "wanted": wanted,
        "kept": urlencode({key: value for key, value in (("q", wanted.query), ("tag", wanted.tag)) if value}),
        "asked": urlencode({key: value for key, value in request.GET.items() if key in ASKED}),
        "offset": offset,
        "newer": max(0, offset - PAGE_ROWS) if offset else None,
        "older": offset + PAGE_ROWS,
    }
    return page(request, "experiments/detail.html", context, parts={"runs": "experiments/_runs.html"})


def _csv(tables: ExperimentTables) -> Iterator[list[object]]:
    """A line for each run that the page would show on all its pages, in its order."""
    facts = ["id", "name", "state", "submitted_by", "submitted", "started", "ended", "step", "epoch", "command", "tags", "note"]
    yield [*facts, *tables.columns]
    for row in (*tables.queued.rows, *tables.in_progress.rows, *tables.completed.rows):
        run = row.run
        times = [at.isoformat(timespec="seconds") if at else "" for at in (run.submitted_at, run.started_at, run.ended_at)]
        who = run.submitted_by.username
        yield [
            run.pk, run.name, run.state, who, *times, run.step, run.epoch, run.command, ", ".join(run.tags), run.note, *row.metrics
        ]  # fmt: skip


@require_safe
def overview(request: HttpRequest, pk: int) -> HttpResponse:
    experiment, tab = experiment_tab(request, pk, "overview")
    context = {
        **tab,
        "parts": later(lambda: list(experiment.parts.select_related("version__definition"))),
        "newer_data": later(lambda: data.newer_than(experiment.data_asset)),
        "watches": later(lambda: list(experiment.watches.filter(person=person(request)))),
        "line": WatchForm(auto_id=False),
        "metric_names": later(lambda: selectors.metric_names(experiment) or selectors.recent_metric_names(experiment.project)),
    }
    return page(request, "experiments/overview.html", context)


@require_POST
def duplicate(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    experiment = access.experiment(user, pk, need="write")
    form = RequestForm(request.POST)
    idempotency_key = form.cleaned_data["idempotency_key"] if form.is_valid() else None
    try:
        made = services.duplicate_experiment(experiment, by=user, idempotency_key=idempotency_key)
    except ValidationError as error:
        return refused(request, " ".join(error.messages), to=reverse("experiment", args=[pk]))
    return done(request, "This is the copy. It has not run yet.", to=reverse("experiment", args=[made.pk]))


@require_POST
def run(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    experiment = access.experiment(user, pk, need="write")
    to = reverse("experiment", args=[pk])
    form = RequestForm(request.POST)
    idempotency_key = form.cleaned_data["idempotency_key"] if form.is_valid() else None
    return act(
        request,
        lambda: services.run_experiment(experiment, by=user, idempotency_key=idempotency_key),
        said="Queued: the runs are below.",
        to=to,
    )


@require_POST
def delete(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    experiment = access.experiment(user, pk, need="write")
    to = reverse("assets", args=[experiment.project.pk])
    said = f"{experiment.name} is deleted with its runs and their files."
    return act(request, lambda: services.delete_experiment(experiment, by=user), said=said, to=to, back=reverse("experiment", args=[pk]))
