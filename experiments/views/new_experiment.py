"""New experiment: the form, what is chosen on it, and what of it is made and run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from experiments import access, selectors, services
from experiments.errors import DomainError
from experiments.forms.common import CheckpointsForm, ExperimentForm, WatchForm, attempt, watch_forms
from experiments.forms.definitions import DefinitionForm
from experiments.forms.searches import initial_of
from experiments.models import DefinitionVersion, Experiment, Project, Search, User
from experiments.selectors import code as source
from experiments.selectors import data, projects
from experiments.services import checks, grid, watches
from experiments.services.searches import check_spec, create_search
from experiments.views import uploaded_code
from experiments.views.definitions import PANEL_IDS, make
from experiments.views.responses import begun, later, page, person, project_crumbs

ONE_COMMAND = "A search varies the arguments of one command, and here are {0}: leave one, without lists, or search for nothing."
OFFERED = 100  # training definitions that are shown at once: others are found by their names
INLINE = "new"  # prefix of the training definition that is written on the experiment's own form, without script


@require_http_methods(["GET", "HEAD", "POST"])
def new(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    project = access.project(user, pk, need="write")
    again = _template(user, project, request.GET.get("like", ""))
    choices = choices_of(project, again)
    form = _form(request, project, again, choices)
    sent = request.method == "POST"
    inline_sent = sent and _filled(request)
    inline = DefinitionForm(request.POST if inline_sent else None, request.FILES if inline_sent else None, prefix=INLINE)
    lines = watch_forms(request.POST if sent else None, start=watches.crossings(again, of=user) if again else ())
    forms = [form, *lines, *([inline] if inline_sent else [])]
    if sent and all([each.is_valid() for each in forms]):  # a list: each one says what is wrong with it
        added = attempt(inline, lambda: make(project, user, inline)) if inline_sent else None
        made = None if inline.errors else _create_and_run(project, user, form, added, commands_of(request, None), lines)
        if made:
            return redirect("experiment", made.pk)
        if added:
            _choose(request, form, added)
            inline, inline_sent, choices = DefinitionForm(prefix=INLINE), False, choices_of(project, again)
    commands = commands_of(request, again)
    if sent:
        _say_the_rest(project, form, None if inline_sent else associated(form, choices, commands))
    kept = uploaded_code.keep_code_of(inline, user, project, refused=any(each.errors for each in forms)) if inline_sent else None
    begun(form, check=reverse("check_experiment", args=[pk]))
    context = {
        "section": "projects",
        "project": project,
        "form": form,
        "inline": inline,
        "arrived": kept,
        **_thresholds(lines, project),
        "panel": _panel(pk),
        "choices": later(lambda: _choices(choices, [part.version for part in associated(form, choices, commands)], commands)),
        "chosen": later(lambda: [part.version for part in associated(form, choices, commands)]),
        **_existing(request, project, choices),
        "associated": later(lambda: _rows(associated(form, choices, commands))),
        "folders": later(lambda: [("", data.folders()), *((asset.pk, data.folders(asset)) for asset in project.data_assets.all()[:50])]),
        "crumbs": project_crumbs(project),
    }
    return page(request, "experiments/new.html", context, parts={"existing": "experiments/_existing.html"})


def _choices(
    choices: QuerySet[DefinitionVersion], chosen: Sequence[DefinitionVersion], commands: dict[int, list[str]]
) -> list[source.Associated]:
    """What is offered without script: those that are chosen, and the newest."""
    shown = list({version.pk: version for version in (*chosen, *choices[:OFFERED])}.values())
    return source.associated(shown, _typed(shown, commands), with_scripts=False)


def _existing(request: HttpRequest, project: Project, choices: QuerySet[DefinitionVersion]) -> dict[str, object]:
    """The training definitions in the dialog: those that are ticked, and the newest whose name or description has ?q= in it."""
    query, ticked = request.GET.get("q", "").strip()[:120], _numbers(request.GET.getlist("ticked"))
    found = projects.newest_versions(project, query=query)
    return {
        "query": query,
        "ticked": ticked,
        "there": cache(choices.count),
        "found": cache(found.count),
        "existing": later(lambda: [*choices.filter(pk__in=ticked), *found.exclude(pk__in=ticked)[:OFFERED]]),
        "offered": OFFERED,
    }


def _numbers(values: Iterable[object]) -> list[int]:
    return [int(text) for text in map(str, values) if text.isascii() and text.isdigit() and len(text) < 18]


def _form(request: HttpRequest, project: Project, again: Experiment | None, choices: QuerySet[DefinitionVersion]) -> ExperimentForm:
    form = ExperimentForm(request.POST or None, request.FILES or None, initial=_initial(again) | _named(request))
    form.fields["data_asset"].queryset = project.data_assets.all()  # type: ignore[attr-defined]
    form.fields["versions"].queryset = choices  # type: ignore[attr-defined]
    return form


def _choose(request: HttpRequest, form: ExperimentForm, added: DefinitionVersion) -> None:
    """It is stored though the experiment is not: from now on one of those that are chosen."""
    messages.info(request, f"{added.definition.name} is saved as a training definition of this project, and chosen below.")
    form.data = form.data.copy()  # type: ignore[attr-defined]
    form.data.appendlist("versions", str(added.pk))  # type: ignore[attr-defined]


def _thresholds(lines: Sequence[WatchForm], project: Project) -> dict[str, object]:
    return {
        "lines": lines,
        "lines_used": any(line.has_changed() if line.is_bound else line.initial for line in lines),
        "metric_names": later(lambda: selectors.recent_metric_names(project)),
    }


def _panel(project: int) -> DefinitionForm:
    """The form of a training definition beside the experiment's."""
    panel = DefinitionForm(auto_id=PANEL_IDS)
    begun(panel, check=reverse("check_definition", args=[project]))
    return panel


def _filled(request: HttpRequest) -> bool:
    """Whether the form of a training definition was sent with the experiment's, and says something."""
    typed = (request.POST.get(f"{INLINE}-{name}", "").strip() for name in ("name", "kept"))
    return f"{INLINE}-name" in request.POST and (any(typed) or f"{INLINE}-upload" in request.FILES)


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
        **(initial_of(search.spec) if (search := Search.objects.filter(experiment=again).first()) else {}),
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
    numbers = _numbers(form["versions"].value() or [])
    by_pk = {version.pk: version for version in choices.filter(pk__in=numbers)}
    versions = [by_pk[pk] for pk in numbers if pk in by_pk]
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

    def begin() -> Experiment:
        rows = _grid(parts, form.cleaned_data["global_command"])
        if (spec := form.spec()) is None:
            return services.create_and_run(project, by=user, **rows, **said)
        return create_search(project, by=user, spec=spec, now=timezone.now(), **only(rows), **said).experiment

    return attempt(form, begin)


def _grid(parts: list[Part], everywhere: str) -> dict[str, Any]:
    """What the service is told of the form's lines and its global command: a version and a command for each run of their lists."""
    versions, commands, command = grid.rows([part.version for part in parts], [part.command for part in parts], everywhere)
    return {"versions": versions, "commands": commands, "global_command": command}


def only(rows: dict[str, Any]) -> dict[str, Any]:
    """What the form says of a search, of which there is one version with one command."""
    if len(rows["versions"]) != 1:
        raise DomainError({"parameters": [ONE_COMMAND.format(len(rows["versions"]))]})
    (version,), (command,) = rows["versions"], rows["commands"]
    return {"version": version, "command": command, "global_command": rows["global_command"]}


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
        check(project, form.spec(), told, data_asset=asset, environment=variables, **sent)
    except DomainError as error:
        for name, wrong in error.by_field("__all__").items():
            if name not in said:
                form.add_error(name, wrong)


def check(project: Project, spec: dict[str, Any] | None, rows: dict[str, Any], **sent: Any) -> None:
    """What would be refused of it. Raises DomainError with all of that. `rows`: its versions with their commands; `spec`: of its search."""
    errors: list[DomainError] = []
    checks.each(errors, lambda: services.check_experiment(project, **rows, **sent))
    if spec is not None:
        checks.each(errors, lambda: check_spec(spec))
        if rows["versions"]:
            checks.each(errors, lambda: only(rows))
    checks.collected(errors)
