"""Environments that are offered by name: everybody who is logged in reads what there is, administrators change it."""

from __future__ import annotations

import uuid

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from experiments import access, services
from experiments.errors import DomainError
from experiments.forms.common import attempt
from experiments.forms.environments import NamedEnvironmentForm, NamedEnvironmentSettingsForm
from experiments.forms.sent_once import RequestForm
from experiments.models import NamedEnvironment
from experiments.selectors import named_environments
from experiments.views.responses import Crumbs, act, done, later, page, person, refused


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    context = {"section": "cluster", "rows": later(named_environments.rows), "crumbs": _crumbs(request)[:-1]}
    return page(request, "environments/named.html", context, parts={"list": "environments/_named_list.html"})


@require_http_methods(["GET", "HEAD", "POST"])
def new(request: HttpRequest) -> HttpResponse:
    user = person(request)
    access.environments(user)
    form = NamedEnvironmentForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        version = attempt(form, lambda: services.create_named_environment(by=user, **form.cleaned_data))
        if version:
            return done(request, f"{version.environment.name} is offered.", to=_address(version.environment))
    context = {"section": "cluster", "form": form, "environment": None, "crumbs": _crumbs(request)}
    return page(request, "environments/named_form.html", context)


@require_safe
def detail(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    environment = access.named_environment(user, pk)
    context = {
        "section": "cluster",
        "environment": environment,
        "row": later(lambda: named_environments.row(environment)),
        "versions": later(lambda: named_environments.versions(user, environment)),
        "idempotency_key": uuid.uuid4(),
        "crumbs": _crumbs(request),
    }
    return page(request, "environments/named_detail.html", context, parts={"body": "environments/_named_detail.html"})


@require_http_methods(["GET", "HEAD", "POST"])
def change(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    environment = access.named_environment(user, pk, need="admin")
    crumbs = [*_crumbs(request), (environment.name, _address(environment))]
    text = environment.newest().text
    initial = {"name": environment.name, "description": environment.description, "text": text}
    form = NamedEnvironmentSettingsForm(request.POST or None, initial=initial)
    if request.method == "POST" and form.is_valid():
        said = {name: form.cleaned_data[name] for name in ("name", "description", "text")}
        version = attempt(form, lambda: services.change_named_environment(environment, by=user, **said))
        if version:
            return done(request, f"Saved: {version}.", to=_address(environment))
    context = {"section": "cluster", "form": form, "environment": environment, "crumbs": crumbs}
    return page(request, "environments/named_form.html", context)


@require_POST
def renew(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    environment = access.named_environment(user, pk, need="admin")
    form = RequestForm(request.POST)
    if not form.is_valid():
        return refused(request, "The form was not complete: load the page again.", to=_address(environment))
    try:
        version = services.renew_named_environment(environment, by=user, idempotency_key=form.cleaned_data["idempotency_key"])
    except DomainError as error:
        return refused(request, str(error), to=_address(environment))
    return done(request, f"{version} is resolved afresh when it is built. Earlier versions keep their packages.", to=_address(environment))


@require_POST
def build(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    environment = access.named_environment(user, pk, need="admin")
    asked = services.build_named_environment(environment, by=user)
    machines = f"{asked} machine{'s' * (asked != 1)}"
    said = f"It is being built on {machines}." if asked else "It is built already, on every machine that builds environments."
    return done(request, said, to=_address(environment))


@require_POST
def retire(request: HttpRequest, pk: int) -> HttpResponse:
    """`retired=no` offers it again."""
    user = person(request)
    environment = access.named_environment(user, pk, need="admin")
    retired = request.POST.get("retired", "yes") != "no"
    said = "It is retired: nobody new can choose it, and who uses it goes on." if retired else "It is offered again."
    return act(
        request,
        lambda: services.retire_named_environment(environment, by=user, retired=retired),
        said=said,
        to=_address(environment),
    )


@require_POST
def delete(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    environment = access.named_environment(user, pk, need="admin")
    return act(
        request,
        lambda: services.delete_named_environment(environment, by=user),
        said=f"{environment.name} is deleted.",
        to=reverse("named_environments"),
        back=_address(environment),
    )


def _address(environment: NamedEnvironment) -> str:
    return reverse("named_environment", args=[environment.pk])


def _crumbs(request: HttpRequest) -> Crumbs:
    built = [("Environments", reverse("environments"))] if person(request).is_staff else []
    return [("Cluster", reverse("cluster")), *built, ("Offered", reverse("named_environments"))]
