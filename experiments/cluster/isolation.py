"""How many people can run code here, and which machines refuse runs because of that. Reads rows for
`training_runtime.scheduling.isolation`, which decides; writes nothing.

Who counts as a person: an account that is open and can be logged in with (it has a password that can be used), administrators too, for
every one of them may make a project and run code in it; and an account that was closed, for as long as a run of it has not ended, since its
code is still about. An account without a password is technical: nobody can act as it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.contrib.auth.hashers import UNUSABLE_PASSWORD_PREFIX
from django.db.models import Q

from experiments.models import ClusterRules, Node, TrainingRun, User
from experiments.models.runs import LIVE
from training_runtime.scheduling.isolation import Standing, standing

MOST_NODES = 200  # that are listed


def people() -> int:
    """The number of people who can run code here."""
    can_log_in = Q(is_active=True) & ~Q(password="") & ~Q(password__startswith=UNUSABLE_PASSWORD_PREFIX)
    has_live_runs = Q(pk__in=TrainingRun.objects.filter(state__in=LIVE, outside=False).values("submitted_by"))
    return User.objects.filter(can_log_in | has_live_runs).count()


@dataclass(frozen=True)
class Doors:
    """The facts by which all machines are judged."""

    people: int
    trusted: bool

    def of(self, node: Node) -> Standing:
        return standing(node.sandbox_level, people=self.people, trusted=self.trusted)

    def closed(self, nodes: Iterable[Node]) -> frozenset[int]:
        """Ids of the machines where no run is started."""
        return frozenset(node.pk for node in nodes if not self.of(node).may_run)

    def strict(self, node: Node) -> bool:
        """Whether the machine was given people's code because it said that its box keeps them apart: it is held to that."""
        return self.people > 1 and not self.trusted and self.of(node).state == "isolated"


def doors(rules: ClusterRules | None = None) -> Doors:
    return Doors(people=people(), trusted=(rules or ClusterRules.current()).people_trust_each_other)


def boxes() -> list[tuple[Node, Standing]]:
    """The machines in the lists by name, and how each stands to running people's code."""
    judge = doors()
    return [(node, judge.of(node)) for node in Node.objects.filter(removed_at=None).order_by("name")[:MOST_NODES]]


def closed_machines() -> list[Node]:
    """The machines that refuse new runs."""
    return [node for node, door in boxes() if not door.may_run]
