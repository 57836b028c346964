"""Environments: what the requirements of scripts came to. Members of a project see those of its definitions, administrators all."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from experiments import access, services
from experiments.selectors import environments
from experiments.views.responses import act, later, page, person

CRUMBS = [("Cluster", "cluster"), ("Environments", "environments")]


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    access.environments(person(request))
    found = later(environments.rows)
    context = {"section": "cluster", "rows": found, "crumbs": [("Cluster", reverse("cluster"))]}
    return page(request, "environments/index.html", context, parts={"list": "environments/_list.html"})


@require_safe
def detail(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    environment = access.environment(user, pk)
    context = {
        "section": "cluster",
        "environment": environment,
        "row": later(lambda: environments.row(environment)),
        "definitions": later(lambda: environments.definitions(user, environment)),
        "crumbs": [(name, reverse(to)) for name, to in CRUMBS] if user.is_staff else [("Cluster", reverse("cluster"))],
    }
    return page(request, "environments/detail.html", context, parts={"body": "environments/_detail.html"})


@require_POST
def drop(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    environment = access.environment(user, pk, need="admin")
    said = "It is deleted from the machines. Its lock is kept: a run that needs it has it built again, with the same packages."
    return act(request, lambda: services.drop_environment(environment, by=user), said=said, to=reverse("environment", args=[pk]))
