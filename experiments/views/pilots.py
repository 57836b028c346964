"""Pools of pilots: how many machines are held of an engine that lends them, why, and what another policy would do now. For administrators
of the cluster."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from experiments import access, services
from experiments.cluster.pilot_facts import PROVIDERS
from experiments.errors import DomainError
from experiments.forms.common import attempt
from experiments.forms.edits import EditForm
from experiments.forms.wording import Form
from experiments.models import PilotPool, Slot
from experiments.ops import clock
from experiments.selectors import pilots as selected
from experiments.views.responses import act, done, later, page, person

WORDS = {
    "studio": ("Studio's address", "Under which pilots reach the studio from the machines of the engine."),
    "options": ("Options", "What a job runs and as whom cannot be chosen here."),
    "slots": ("Slots of a pilot", "How many it shares out: its GPUs, or its CPU slots."),
    "device": ("Slots are", ""),
    "least": ("At least", "So many pilots are held whatever happens."),
    "most": ("At most", "With 0 all are emptied and given back."),
    "idle_minutes": ("Minutes of idleness", "After so long without use a pilot is given back."),
    "walltime_minutes": ("Minutes of an allocation", "Its runs are moved in time before it ends."),
    "grow": ("Also so that runs grow", "Else pilots are asked for only so that runs begin."),
}


class PoolForm(Form):
    studio = forms.CharField(max_length=255)
    options = forms.CharField(max_length=1000, required=False)
    slots = forms.IntegerField(min_value=1, initial=1)
    device = forms.ChoiceField(choices=Slot.Device.choices)
    least = forms.IntegerField(min_value=0, initial=0)
    most = forms.IntegerField(min_value=0, initial=4)
    idle_minutes = forms.FloatField(min_value=0, initial=10)
    walltime_minutes = forms.IntegerField(min_value=1, initial=240)
    grow = forms.BooleanField(required=False)

    def __init__(self, *args: Any, provider: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, (label, text) in WORDS.items():
            self.fields[name].label, self.fields[name].help_text = label, text
        self.fields["options"].help_text = f"{_examples(provider)} {WORDS['options'][1]}"
        if provider is not None:
            self.fields["options"].label = f"Options of {PROVIDERS[provider].options_of}"


def _examples(provider: str | None) -> str:
    if provider is not None:
        return f"As in {PROVIDERS[provider].example}."
    return f"O{', or o'.join(f'f {each.options_of} as in {each.example}' for each in PROVIDERS.values())}."


class PoolSettingsForm(EditForm, PoolForm):
    """Of one that there is."""


class NewPoolForm(PoolForm):
    name = forms.CharField(max_length=40, help_text="Its machines are called so, with a number: gpu-1, gpu-2.")
    provider = forms.ChoiceField(choices=PilotPool.Provider.choices, label="Engine", help_text="What lends the machines.")
    field_order = ("name", "provider")


@require_http_methods(["GET", "HEAD", "POST"])
def index(request: HttpRequest) -> HttpResponse:
    """All pools, and the form of another one."""
    user = person(request)
    access.rules(user, need="admin")
    here = settings.EDT_PUBLIC_URL or request.build_absolute_uri("/").rstrip("/")
    form = NewPoolForm(request.POST or None, initial={"studio": here})
    if request.method == "POST" and form.is_valid():
        made = attempt(form, lambda: services.create_pool(by=user, **form.cleaned_data))
        if made is not None:
            return done(request, f"The pool {made.name} is there.", to=reverse("pilot_pool", args=[made.name]))
    context = {
        "section": "cluster",
        "crumbs": [("Cluster", reverse("cluster"))],
        "form": form,
        "rows": later(selected.pools),
        "engines": PilotPool.Provider.choices,
        "offers": later(lambda: selected.offers(request.GET.get("engine", ""))),
    }
    return page(request, "cluster/pilots.html", context, parts={"pools": "cluster/_pilot_pools.html", "offers": "cluster/_offers.html"})


@require_http_methods(["GET", "HEAD", "POST"])
def pool(request: HttpRequest, name: str) -> HttpResponse:
    """One of them: what it holds and why, and its policy."""
    user = person(request)
    found = selected.pool(user, name)
    form = PoolSettingsForm(request.POST or None, provider=found.provider, initial={each: getattr(found, each) for each in WORDS})
    if request.method == "POST" and form.is_valid():
        changed = attempt(form, lambda: services.change_pool(found, by=user, **form.cleaned_data))
        if changed is not None:
            return done(request, f"The pool {name} is changed.", to=reverse("pilot_pool", args=[name]))
    context = {
        "section": "cluster",
        "crumbs": [("Cluster", reverse("cluster")), ("Pilots", reverse("pilots"))],
        "form": form,
        "pool": found,
        "row": later(lambda: selected.of_pool(found)),
        "foreseen": later(lambda: selected.foreseen(found, now=clock.now())),
    }
    return page(request, "cluster/pilot_pool.html", context, parts={"held": "cluster/_pilots.html"})


@require_safe
def preview(request: HttpRequest, name: str) -> HttpResponse:
    """What the policy in the form would do now, as a fragment. Writes nothing."""
    user = person(request)
    found = selected.pool(user, name)
    form = PoolForm(request.GET, provider=found.provider)
    if not form.is_valid():
        return render(request, "cluster/_foreseen.html", {"problem": form.problems()})
    try:
        would = services.changed_pool(found, **form.cleaned_data)
    except DomainError as error:
        return render(request, "cluster/_foreseen.html", {"problem": str(error)})
    return render(request, "cluster/_foreseen.html", {"foreseen": selected.foreseen(would, now=clock.now())})


@require_POST
def delete(request: HttpRequest, name: str) -> HttpResponse:
    user = person(request)
    found = selected.pool(user, name)
    return act(request, lambda: services.delete_pool(found, by=user), said=f"The pool {name} is deleted.", to=reverse("pilots"))
