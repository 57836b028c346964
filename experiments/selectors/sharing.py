"""Reads for the page of the scheduling policy: who shares, which projects, and what administrators changed."""

from __future__ import annotations

import datetime as dt

from experiments import access
from experiments.cluster.snapshot import is_silent
from experiments.models import ClusterChange, Node, Project, User

MOST_ROWS = 2000


def sharers() -> dict[str, float]:
    """Everybody who may log in, with their weight, by username."""
    return dict(User.objects.filter(is_active=True).order_by("username").values_list("username", "weight")[:MOST_ROWS])


def shared_projects(user: User) -> dict[str, str]:
    """The names of the projects that the person may know of, by id: their own, or all for an administrator of the cluster."""
    found = Project.objects.all() if user.administers else access.projects_for(user)
    return {str(pk): name for pk, name in found.order_by("name", "pk").values_list("pk", "name")[:MOST_ROWS]}


def nodes_in_service(*, now: dt.datetime) -> list[Node]:
    """The machines that are heard of and have slots, by name."""
    found = Node.objects.filter(slots__retired=False).distinct().order_by("name")
    return [node for node in found if not is_silent(node, now)]


def cluster_changes(*, limit: int) -> list[ClusterChange]:
    """What administrators changed for everybody, newest first."""
    return list(ClusterChange.objects.select_related("actor").order_by("-at", "-id")[:limit])
