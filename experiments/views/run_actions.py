"""What people do to a run: stop, pause, resume, priority, slots, delete. Each by POST, each a service.

A preview says beforehand what a change would do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from experiments import access, services
from experiments.cluster import scheduling
from experiments.errors import DomainError
from experiments.forms.common import CheckpointsForm, ContinueForm, PriorityForm, ReasonForm, SlotsForm
from experiments.forms.sent_once import RequestForm
from experiments.models import TrainingRun, User
from experiments.selectors import nodes
from experiments.selectors.run_pages import named_ids
from experiments.views.responses import act, back, done, page, person, refused, run_crumbs


def _back(request: HttpRequest, run: TrainingRun) -> str:
    return back(request, reverse("run", args=[run.pk]))


def _verb(request: HttpRequest, pk: int, do: Callable[[TrainingRun, User, str], object], said: str) -> HttpResponse:
    user = person(request)
    run = access.run_control(user, pk)
    form = ReasonForm(request.POST)
    reason = form.cleaned_data["reason"] if form.is_valid() else ""
    return act(request, lambda: do(run, user, reason), said=said.format(run=run.name), to=_back(request, run))


@require_POST
def stop(request: HttpRequest, pk: int) -> HttpResponse:
    return _verb(request, pk, lambda run, by, reason: services.stop_run(run, by=by, reason=reason), "{run} was asked to stop.")


@require_POST
def pause(request: HttpRequest, pk: int) -> HttpResponse:
    said = "{run} gives its slots back and keeps its state."
    return _verb(request, pk, lambda run, by, reason: services.pause_run(run, by=by, reason=reason), said)


@require_POST
def resume(request: HttpRequest, pk: int) -> HttpResponse:
    said = "{run} goes on as soon as it gets a slot."
    return _verb(request, pk, lambda run, by, reason: services.resume_run(run, by=by, reason=reason), said)


@require_POST
def priority(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    run = access.run_control(user, pk)
    form = PriorityForm(request.POST)
    if not form.is_valid():
        return refused(request, f"Priority: {form.errors['priority'][0]}", to=_back(request, run))
    value = form.cleaned_data["priority"]
    said = f"The priority of {run.name} is now {value}."
    counts = value if user.administers else run.counted_priority(access.rules(user).priority_ceiling, value)
    if counts < value:
        said += f" It counts as {counts} until an administrator of the cluster agrees."
    return act(request, lambda: services.set_priority(run, by=user, priority=value), said=said, to=_back(request, run))


@require_POST
def slots(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    run = access.run_control(user, pk)
    form = SlotsForm(request.POST)
    if not form.is_valid():
        said = " ".join(f"{form.fields[name].label} slots: {errors[0]}" for name, errors in form.errors.items())
        return refused(request, said, to=_back(request, run))
    wanted = form.cleaned_data
    said = f"{run.name} now uses {wanted['min_slots']} to {wanted['max_slots']} slots."
    return act(request, lambda: services.set_slots(run, by=user, **wanted), said=said, to=_back(request, run))


@require_POST
def kinds(request: HttpRequest, pk: int) -> HttpResponse:
    """Whether it may go on on machines of another kind: a box that is ticked or left out."""
    user = person(request)
    run = access.run_control(user, pk)
    allowed = "any_kind" in request.POST
    said = (
        f"{run.name} may go on on machines of {'any kind' if allowed else 'the kind that it has trained on'}{'' if allowed else ' only'}."
    )
    return act(request, lambda: services.set_any_kind(run, by=user, allowed=allowed), said=said, to=_back(request, run))


@require_POST
def checkpoints(request: HttpRequest, pk: int) -> HttpResponse:
    """Which checkpoints are kept, from now on and of those that are there."""
    user = person(request)
    run = access.run(user, pk, need="write")
    form = CheckpointsForm(request.POST)
    if not form.is_valid():
        said = " ".join(f"{form.fields[name].label}: {errors[0]}" for name, errors in form.errors.items())
        return refused(request, said, to=_back(request, run))
    policy = form.policy()
    said = f"{run.name} keeps {policy}."
    return act(request, lambda: services.set_checkpoints(run, by=user, policy=policy), said=said, to=_back(request, run))


@require_POST
def delete(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    run = access.run(user, pk, need="write")
    to = reverse("experiment", args=[run.experiment.pk])
    said = f"{run.name} is deleted with its files."
    return act(request, lambda: services.delete_run(run, by=user), said=said, to=to, back=reverse("run", args=[pk]))


@require_POST
def go_on(request: HttpRequest, pk: int) -> HttpResponse:
    """A new run that begins with the checkpoint of this one; to the new run's page."""
    user = person(request)
    run = access.run(user, pk, need="write")
    form = ContinueForm(request.POST)
    if not form.is_valid():
        return refused(request, "The form was not complete: load the page again.", to=reverse("run_results", args=[pk]))
    try:
        made = services.continue_run(run, by=user, **form.cleaned_data)
    except DomainError as error:
        return refused(request, str(error), to=reverse("run_results", args=[pk]))
    return redirect("run", made.pk)


@require_POST
def add_package(request: HttpRequest, pk: int) -> HttpResponse:
    """The package that the run failed for the want of, into the next version of its definition; to the definition's page."""
    user = person(request)
    run = access.run(user, pk, need="write")
    form = RequestForm(request.POST)
    if not form.is_valid():
        return refused(request, "The form was not complete: load the page again.", to=reverse("run", args=[pk]))
    try:
        version, package = services.add_package(run, by=user, idempotency_key=form.cleaned_data["idempotency_key"])
    except DomainError as error:
        return refused(request, str(error), to=reverse("run", args=[pk]))
    said = f"Version {version.number} requires {package} too. Run the experiment with that version."
    return done(request, said, to=reverse("definition", args=[version.definition_id]))


@require_safe
def change(request: HttpRequest, pk: int) -> HttpResponse:
    """Priority and slots, with what a change would do: a page of its own, and the forms alone for a dialog elsewhere."""
    run = access.run_control(person(request), pk)
    is_member = bool(run.experiment.project.my_role)  # else an administrator of the cluster, who may not open the run
    crumbs = [*run_crumbs(run), (f"Run {pk}", reverse("run", args=[pk]))] if is_member else [("Cluster", reverse("cluster"))]
    rules = access.rules(person(request))
    context = {
        "section": "projects" if is_member else "cluster",
        "run": run,
        "crumbs": crumbs,
        "counted_priority": run.counted_priority(rules.priority_ceiling),
        "rules": rules,
        "asks_kind": run.any_kind or nodes.kinds_differ(),
        "keeps": CheckpointsForm.of(run.checkpoints) if is_member and access.may(run.experiment.project, "write") else None,
    }
    return page(request, "runs/change.html", context, parts={"forms": "runs/_change_forms.html"})


@require_safe
def preview(request: HttpRequest, pk: int) -> HttpResponse:
    """What a change of priority or slots, a pause (?paused=yes or no) or a stop would do to everybody, as a fragment. Writes nothing."""
    user = person(request)
    run = access.run_control(user, pk)
    priority_form, slots_form = PriorityForm(request.GET), SlotsForm(request.GET)
    change = scheduling.RunChange(
        priority=priority_form.cleaned_data["priority"] if priority_form.is_valid() else None,
        min_slots=slots_form.cleaned_data["min_slots"] if slots_form.is_valid() else None,
        max_slots=slots_form.cleaned_data["max_slots"] if slots_form.is_valid() else None,
        paused={"yes": True, "no": False}.get(request.GET.get("paused", "")),
        stop=request.GET.get("stop") == "yes",
        agreed=user.administers,
    )
    if (change.min_slots or 1) > (change.max_slots or run.max_slots):
        return render(request, "cluster/_preview.html", {"problem": "The minimum is greater than the maximum."})
    powerless = change.priority is not None and access.rules(user).policy == "fair_share"
    note = "Under fair share priorities have no effect: it would count once the policy is priority." if powerless else ""
    would = scheduling.preview(now=timezone.now(), changes={run.pk: change}, named=partial(named_ids, user))
    return render(request, "cluster/_preview.html", {"preview": would, "note": note})
