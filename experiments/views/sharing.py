"""How slots are shared: policy, weights and quotas on a page of their own; nodes and slots out of service. Each with what it would do.

Everybody who is logged in may read the rules; administrators of the cluster change them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from experiments import access, services
from experiments.cluster import isolation, machine_pools, scheduling
from experiments.cluster.plan_preview import drained
from experiments.cluster.scheduling import ClusterWish
from experiments.files import diskuse
from experiments.forms.common import ReasonForm, attempt
from experiments.forms.sharing import SharingForm
from experiments.models import ClusterRules, User
from experiments.ops import clock
from experiments.selectors.run_pages import named_ids
from experiments.selectors.sharing import cluster_changes, nodes_in_service, shared_projects, sharers
from experiments.views.paging import Pages
from experiments.views.responses import act, done, later, page, person, refused

HISTORY_ROWS = 50
NO_SLOT = "This node has no such slot."


@require_http_methods(["GET", "HEAD", "POST"])
def sharing(request: HttpRequest) -> HttpResponse:
    user = person(request)
    if request.method == "POST":
        access.rules(user, need="admin")
    form = _form(request, user)
    if request.method == "POST" and form.is_valid() and attempt(form, lambda: _store(form, user)) is not None:
        pages = f"?{request.GET.urlencode()}" if request.GET else ""
        return done(request, "The scheduling policy is changed.", to=f"{reverse('sharing')}{pages}")
    context = {
        "section": "cluster",
        "crumbs": [("Cluster", reverse("cluster"))],
        "form": form,
        "people": form.people_rows(),
        "projects": form.project_rows(diskuse.of_projects(int(pk) for pk in form.projects)),
        "pages": _pages(request, user),
        "obstacles": machine_pools.obstacles(nodes_in_service(now=clock.now())),
        "boxes": later(isolation.boxes),
        "history": later(lambda: cluster_changes(limit=HISTORY_ROWS)),
    }
    return page(request, "cluster/sharing.html", context, parts={"history": "cluster/_changes.html"})


def _store(form: SharingForm, user: User) -> ClusterRules:
    wish = form.wish()
    return services.set_sharing(
        by=user,
        policy=wish.policy or "fair_share",
        weights=wish.person_weights or {},
        person_quota=wish.person_quota or {},
        project_quota=wish.project_quota or {},
        several_machines=wish.several_machines,
        priority_ceiling=wish.priority_ceiling,
        new_project_quota=wish.new_project_quota,
        project_disk=wish.project_disk,
        new_project_disk=wish.new_project_disk,
        each_person_disk=wish.each_person_disk,
        new_projects_network=wish.new_projects_network,
        without_network=wish.without_network,
        release_grace_s=wish.release_grace_s,
        people_trust_each_other=wish.people_trust_each_other,
        reason=form.cleaned_data["reason"],
    )


def _form(request: HttpRequest, user: User, *, preview: bool = False) -> SharingForm:
    """What is stored, or what was sent. Of projects one sees one's own; administrators of the cluster see all."""
    sent = request.GET if preview else request.POST if request.method == "POST" else None
    people, projects = (dict(pages.rows) for pages in _pages(request, user).values())
    return SharingForm(sent, rules=access.rules(user), people=people, projects=projects, may_change=user.administers)


def _pages(request: HttpRequest, user: User) -> dict[str, Pages[tuple[str, Any]]]:
    """Of the two tables, by ?people= and ?projects=. What is not shown stays as it is."""
    found: dict[str, dict[str, Any]] = {"people": sharers(), "projects": shared_projects(user)}
    return {name: Pages(request, list(all_.items()), name=name) for name, all_ in found.items()}


@require_safe
def sharing_preview(request: HttpRequest) -> HttpResponse:
    """What other rules would do to everybody, as a fragment. Writes nothing."""
    user = person(request)
    access.rules(user, need="admin")
    form = _form(request, user, preview=True)
    if not form.is_valid():
        return render(request, "cluster/_preview.html", {"problem": form.problems()})
    return _previewed(request, form.wish())


@require_POST
def node_drain(request: HttpRequest, name: str) -> HttpResponse:
    user = person(request)
    found = access.node(user, name, need="admin")
    draining, reason = _parse_drain(request)
    said = f"{name} takes no new runs; those on it move away." if draining else f"{name} takes runs again."
    to = reverse("node", args=[name])
    return act(request, lambda: services.set_node_draining(found, by=user, draining=draining, reason=reason), said=said, to=to)


@require_POST
def node_lost(request: HttpRequest, name: str) -> HttpResponse:
    user = person(request)
    found = access.node(user, name, need="admin")
    _, reason = _parse_drain(request)
    typed = request.POST.get("confirm_name", "")
    said = f"{name} is declared lost: its slots are free, and its runs go on elsewhere from their last checkpoint."
    to = reverse("node", args=[name])
    return act(request, lambda: services.declare_node_lost(found, by=user, confirm_name=typed, reason=reason), said=said, to=to)


@require_POST
def node_rename(request: HttpRequest, name: str) -> HttpResponse:
    user = person(request)
    found = access.node(user, name, need="admin")
    title = request.POST.get("title", "")
    return act(
        request, lambda: services.rename_node(found, by=user, title=title), said="The title is saved.", to=reverse("node", args=[name])
    )


@require_POST
def node_remove(request: HttpRequest, name: str) -> HttpResponse:
    user = person(request)
    found = access.node(user, name, need="admin")
    _, reason = _parse_drain(request)
    said = f"{name} is removed. It is back when its host is heard of again."
    back = reverse("node", args=[name])
    return act(request, lambda: services.remove_node(found, by=user, reason=reason), said=said, to=reverse("cluster"), back=back)


@require_POST
def slot_drain(request: HttpRequest, name: str, pk: int) -> HttpResponse:
    draining, reason = _parse_drain(request)
    change = partial(services.set_slot_draining, draining=draining, reason=reason)
    return _change_slot(request, name, pk, change, "takes no new runs." if draining else "takes runs again.")


@require_POST
def slot_back(request: HttpRequest, name: str, pk: int) -> HttpResponse:
    _, reason = _parse_drain(request)
    change = partial(services.put_slot_back, reason=reason)
    return _change_slot(request, name, pk, change, "is in service again; what spoke against it is forgotten.")


def _change_slot(request: HttpRequest, name: str, pk: int, change: Callable[..., object], outcome: str) -> HttpResponse:
    """`change(slot, by=...)`, and what a person reads of it: the slot, and its `outcome`."""
    user, to = person(request), reverse("node", args=[name])
    slot = access.node(user, name, need="admin").slots.filter(pk=pk).first()
    if slot is None:
        return refused(request, NO_SLOT, to=to)
    return act(request, lambda: change(slot, by=user), said=f"{slot.label()} {outcome}", to=to)


@require_safe
def drain_preview(request: HttpRequest, name: str) -> HttpResponse:
    """What it would do to everybody to drain the node, or its slot ?slot=, or to take it back (?draining=no). Writes nothing."""
    found = access.node(person(request), name, need="admin")
    one = request.GET.get("slot", "")
    slot = int(one) if one.isascii() and one.isdigit() and len(one) < 18 else None
    return _previewed(request, drained(found, draining=request.GET.get("draining") != "no", slot=slot))


def _parse_drain(request: HttpRequest) -> tuple[bool, str]:
    form = ReasonForm(request.POST)
    return request.POST.get("draining") == "yes", form.cleaned_data["reason"] if form.is_valid() else ""


def _previewed(request: HttpRequest, wish: ClusterWish) -> HttpResponse:
    return render(
        request,
        "cluster/_preview.html",
        {"preview": scheduling.preview(now=clock.now(), cluster=wish, named=partial(named_ids, person(request)))},
    )
