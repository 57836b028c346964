"""How a view answers: a whole page or one of its fragments, a redirect after a change, an error beside the button that caused it.

A page's fragments have the page's own address with ?part=NAME, so the same view, and with it the same permission check, serves both.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import SimpleLazyObject
from django.utils.http import content_disposition_header, url_has_allowed_host_and_scheme

from experiments.errors import DomainError
from experiments.forms.common import attempt
from experiments.models import Experiment, Project, TrainingDefinition, TrainingRun, User

T = TypeVar("T")
Crumbs = list[tuple[str, str]]


def person(request: HttpRequest) -> User:
    """Who asks. `logged_in` has let nobody else through."""
    return cast(User, request.user)


def later(read: Callable[[], T]) -> T:
    """The value of `read`, read when a template first looks at it: a fragment pays only for what it shows.

    For objects; a number must be a plain cached function, which templates call.
    """
    return cast(T, SimpleLazyObject(read))


def page(
    request: HttpRequest, template: str, context: Mapping[str, Any], *, parts: Mapping[str, str] | None = None, status: int = 200
) -> HttpResponse:
    """The page, or the fragment that ?part= names: one of `parts`, else 404. Neither is kept by any cache. With a form that was refused the
    keyboard is at the first field that is wrong.

    A page with a button that makes something at once (`idempotency_key`) is not kept for the browser's Back either: it would come back with
    the key of what was made before, and the button would do nothing."""
    part = request.GET.get("part")
    if part is not None:
        if part not in (parts or {}):
            raise Http404("There is no such part of the page.")
        template = (parts or {})[part]
    form = context.get("form")
    if request.method == "POST" and isinstance(form, forms.BaseForm) and form.errors:
        begun(form)
    response = render(request, template, {"now": timezone.now(), "kept_query": _kept_query(request), **context}, status=status)
    response["Cache-Control"] = "private, no-cache" if part is None and "idempotency_key" not in context else "no-store"
    return response


def _kept_query(request: HttpRequest) -> str:
    """What the address says but for ?part=, for the addresses of a page's own fragments: "" or "q=digits&"."""
    said = request.GET.copy()
    said.pop("part", None)
    return f"{said.urlencode()}&" if said else ""


def begun(form: forms.BaseForm, *, check: str = "", first: str = "") -> None:
    """Before a page shows a form: the keyboard is at the first field that was refused, else at `first`, else at the first empty one; and
    its script asks `check` what is wrong while somebody types (views.checking)."""
    fields = [field for field in form.visible_fields() if not isinstance(field.field.widget, forms.CheckboxSelectMultiple)]
    wrong = [field for field in fields if field.errors]
    empty = [form[first]] if first else [field for field in fields if not field.value()]
    at = wrong if form.is_bound and form.errors else empty
    if at:
        at[0].field.widget.attrs["autofocus"] = True
    if check and (hidden := form.hidden_fields()):
        hidden[0].field.widget.attrs["data-check"] = check


def done(request: HttpRequest, said: str, *, to: str) -> HttpResponse:
    """After a change: a redirect for a browser; for htmx a word that it worked, the page's own updates show the rest."""
    if request.headers.get("HX-Request") == "true":
        return _toast(204, said, "success")
    messages.success(request, said)
    return redirect(to)


def act(request: HttpRequest, do: Callable[[], object], *, said: str, to: str, back: str = "") -> HttpResponse:
    """Run a service for a button: `done` at `to`, or what the service refused, at `back` (else `to`)."""
    try:
        do()
    except DomainError as error:
        return refused(request, str(error), to=back or to)
    return done(request, said, to=to)


def change(request: HttpRequest, form: forms.BaseForm, do: Callable[[], object], *, to: str, title: str, crumbs: Crumbs) -> HttpResponse:
    """What a form in a dialog, or at the end of a page, sends: "Saved." at `to`; refused, a page with all that was typed."""
    if form.is_valid() and attempt(form, do) is not None:
        return done(request, "Saved.", to=to)
    return page(request, "edit.html", {"section": "projects", "form": form, "title": title, "crumbs": crumbs, "to": to})


def back(request: HttpRequest, otherwise: str) -> str:
    """The page with the button, where the form names one of ours as `next`."""
    to = request.POST.get("next", "")
    safe = url_has_allowed_host_and_scheme(to, allowed_hosts={request.get_host()}, require_https=request.is_secure())
    return to if to.startswith("/") and safe else otherwise


def refused(request: HttpRequest, said: str, *, to: str) -> HttpResponse:
    if request.headers.get("HX-Request") == "true":
        return _toast(204, said, "error")
    messages.error(request, said)
    return redirect(to)


def _toast(status: int, said: str, kind: str) -> HttpResponse:
    return HttpResponse(status=status, headers={"HX-Trigger": json.dumps({"toast": {"text": said, "kind": kind}})})


def spreadsheet(name: str, rows: Iterable[Sequence[object]]) -> HttpResponse:
    """A CSV file. Text that a spreadsheet would take for a formula is marked as text."""
    out = io.StringIO()
    writer = csv.writer(out)
    for row in rows:
        writer.writerow([f"'{cell}" if isinstance(cell, str) and cell[:1] in tuple("=+-@\t\r") else cell for cell in row])
    answer = HttpResponse(out.getvalue(), content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = content_disposition_header(True, name) or "attachment"
    return answer


def project_crumbs(project: Project, *, itself: bool = True) -> Crumbs:
    crumbs = [("Projects", reverse("projects"))]
    return [*crumbs, (project.name, reverse("project", args=[project.pk]))] if itself else crumbs


def definition_crumbs(definition: TrainingDefinition) -> Crumbs:
    return [*project_crumbs(definition.project), (definition.name, reverse("definition", args=[definition.pk]))]


def experiment_crumbs(experiment: Experiment) -> Crumbs:
    return [*project_crumbs(experiment.project), (experiment.name, reverse("experiment", args=[experiment.pk]))]


def run_crumbs(run: TrainingRun) -> Crumbs:
    return experiment_crumbs(run.experiment)


def number(request: HttpRequest, name: str, default: int, *, least: int, most: int) -> int:
    """A whole number of the query string, held within its bounds; the default for what is not one."""
    raw = request.GET.get(name, "")
    if not (raw.lstrip("-").isdigit() and raw.isascii() and len(raw) < 18):
        return default
    return min(most, max(least, int(raw)))
