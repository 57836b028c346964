"""The cluster as people know it from WMLA's console: the list of instance groups, to start and to stop, and the applications of one."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from experiments import access, selectors, services
from experiments.ops import clock
from experiments.selectors import instance_groups, nodes
from experiments.selectors.instance_groups import NAME, InstanceGroup
from experiments.views.cluster import jobs_asked_for
from experiments.views.responses import act, later, page, person, refused


@require_http_methods(["GET", "HEAD", "POST"])
def index(request: HttpRequest) -> HttpResponse:
    """The list; POST with action=start or stop, group=NAME: all nodes take runs again, or none takes any."""
    user = person(request)
    if request.method == "POST":
        access.rules(user, need="admin")
        return _set(request)
    context = {"section": "cluster", "crumbs": [("Cluster", reverse("cluster"))], "groups": later(lambda: [_group()])}
    return page(request, "cluster/groups.html", context, parts={"list": "cluster/_groups.html"})


def _set(request: HttpRequest) -> HttpResponse:
    here, stop = reverse("instance_groups"), request.POST.get("action") == "stop"
    if request.POST.get("group") != NAME:
        return refused(request, "Nothing was changed: choose an instance group by its box first.", to=here)
    said = f"{NAME} {'is stopped: its nodes take no new runs, and those on them wait' if stop else 'is started: its nodes take runs'}."
    return act(request, lambda: services.set_cluster_draining(by=person(request), draining=stop), said=said, to=here)


@require_safe
def applications(request: HttpRequest, name: str) -> HttpResponse:
    """Everybody's jobs, as on the cluster page."""
    if name != NAME:
        raise Http404("There is no such instance group.")
    context = {
        "section": "cluster",
        "crumbs": [("Cluster", reverse("cluster")), ("Instance groups", reverse("instance_groups"))],
        "group": later(_group),
        **jobs_asked_for(request, now=clock.now()),
    }
    return page(request, "cluster/group.html", context, parts={"jobs": "cluster/_jobs.html", "head": "cluster/_group_head.html"})


def _group() -> InstanceGroup:
    now = clock.now()
    lanes = selectors.lanes(begin=now, end=now)
    return instance_groups.group(nodes.rows(lanes, now=now), lanes)
