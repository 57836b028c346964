"""How far a machine is that is to join: for the page that waits for it."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.cluster import version_standing
from experiments.cluster.snapshot import is_silent
from experiments.models import Node, NodeToken
from experiments.ops import clock


@dataclass(frozen=True)
class Arriving:
    """`node`: once it has said what it is; `there`: it is heard of. `version_problem`: why it is refused, if its version is why."""

    token: NodeToken
    node: Node | None
    there: bool
    slots: int
    version_problem: str = ""


def arriving(name: str) -> Arriving | None:
    """None where no machine of that name has a token."""
    token = NodeToken.objects.filter(node_name=name).first()
    if token is None:
        return None
    node = Node.objects.filter(name=name, last_seen_at__isnull=False).first() if token.joined_at is not None else None
    slots = node.slots.filter(retired=False).count() if node is not None else 0
    called = Node.objects.filter(name=name, joined=True).first()
    problem = version_standing.of(called).problem if called is not None else ""
    return Arriving(token, node, node is not None and not is_silent(node, clock.now()), slots, problem)
