"""Triggers of a project: a page with those that there are and what came in, and the address that others send signed messages to."""

from __future__ import annotations

import uuid
from typing import Any

from django import forms
from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods, require_POST

from experiments import access, services
from experiments.accounts import signatures
from experiments.forms.common import attempt
from experiments.forms.wording import Form
from experiments.models import Experiment, Project, TrainingDefinition, Trigger
from experiments.services import triggers as verbs
from experiments.views.responses import act, later, page, person, project_crumbs

SHOWN = 20  # deliveries of each
NOBODY = "There is no trigger at this address, or the signature is not that of its secret."
TOO_MANY = "Too many deliveries within an hour: the rest is not taken."


class TriggerForm(Form):
    event = forms.ChoiceField(label="When", choices=Trigger.Event.choices)
    experiment = forms.ModelChoiceField(
        queryset=Experiment.objects.none(), help_text="It is run again as a new experiment, with the new code or the new data in it."
    )
    definition = forms.ModelChoiceField(
        label="Training definition",
        queryset=TrainingDefinition.objects.none(),
        required=False,
        empty_label="The only one",
        help_text="Of a push: the one of the experiment whose code is fetched again.",
    )
    branch = forms.CharField(max_length=255, required=False, help_text="Of a push: only to this branch. Left empty: to any.")
    data_name = forms.CharField(
        label="Name of the data", max_length=120, required=False, help_text="Of new data: data assets of exactly this name."
    )

    def __init__(self, data: Any, *, project: Project) -> None:
        super().__init__(data)
        for name, found in (("experiment", project.experiments.all()), ("definition", project.definitions.all())):
            field = self.fields[name]
            assert isinstance(field, forms.ModelChoiceField)
            field.queryset = found


@require_http_methods(["GET", "HEAD", "POST"])
def index(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    project = access.project(user, pk, need="write")
    form, made = TriggerForm(request.POST or None, project=project), None
    if request.method == "POST" and form.is_valid():
        said = form.cleaned_data
        made = attempt(form, lambda: services.create_trigger(project, by=user, **said, now=timezone.now()))
    crumbs = [*project_crumbs(project), ("Settings", reverse("project_settings", args=[pk]))]
    context = {
        "section": "projects",
        "project": project,
        "crumbs": crumbs,
        "form": TriggerForm(None, project=project) if made else form,
        "made": (made[0], address(request, made[0]), made[1]) if made else None,
        "triggers": later(lambda: [(each, address(request, each), deliveries(each)) for each in _of(project)]),
    }
    response = page(request, "projects/triggers.html", context, parts={"list": "projects/_triggers.html"}, status=201 if made else 200)
    response["Cache-Control"] = "no-store"  # a secret may be in it
    return response


def _of(project: Project) -> list[Trigger]:
    return list(project.triggers.select_related("experiment", "definition", "created_by"))


def deliveries(trigger: Trigger) -> list[Any]:
    return list(trigger.deliveries.select_related("made")[:SHOWN])


def address(request: HttpRequest, trigger: Trigger) -> str:
    """What others send to."""
    path = reverse("trigger", args=[trigger.key])
    return f"{settings.EDT_PUBLIC_URL}{path}" if settings.EDT_PUBLIC_URL else request.build_absolute_uri(path)


@require_POST
def take_over(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    trigger = access.trigger(user, pk, need="write")
    to = reverse("triggers", args=[trigger.project_id])
    return act(request, lambda: services.take_over_trigger(trigger, by=user), said="It acts in your name from now on.", to=to)


@require_POST
def delete(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    trigger = access.trigger(user, pk, need="write")
    to = reverse("triggers", args=[trigger.project_id])
    return act(request, lambda: services.delete_trigger(trigger, by=user), said="The trigger is deleted.", to=to)


@csrf_exempt
@login_not_required
@require_POST
def receive(request: HttpRequest, key: uuid.UUID) -> HttpResponse:
    """Who knows the secret may: 202 with the number of the delivery, which is acted on in a moment. Anybody else learns nothing."""
    trigger = Trigger.objects.filter(key=key).first()
    secret = verbs.secret_of(trigger) if trigger is not None else None
    if trigger is None or secret is None or not signatures.is_signed(request.headers, request.body, secret):
        return JsonResponse({"detail": NOBODY}, status=404)
    if signatures.is_ping(request.headers):
        return JsonResponse({"detail": "It arrives."}, status=200)
    branch = signatures.branch_of(request.headers, request.body)
    if trigger.event == Trigger.Event.PUSH and branch is None:
        return JsonResponse({"detail": "This is no push to a branch: nothing is done."}, status=200)
    number = signatures.number_of(request.headers, request.body)
    if trigger.event == Trigger.Event.DATA:
        return JsonResponse({"detail": "This trigger is pulled by new data of the project alone."}, status=200)
    taken = verbs.take_in(trigger, number=number, facts={"branch": branch} if branch else {}, now=timezone.now())
    if taken is None:
        return JsonResponse({"detail": TOO_MANY}, status=429)
    return JsonResponse({"delivery": taken.pk, "detail": taken.outcome or "It is acted on in a moment."}, status=202)
