"""What a change would do to everybody's slots, before it is made: how calls that change nothing say it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ninja import Schema

from experiments.cluster import scheduling
from experiments.cluster.plan_preview import ClusterWish
from experiments.models import User
from experiments.ops import clock
from experiments.selectors import run_pages

ELSEWHERE = "a run in another project"


class Difference(Schema):
    run: int
    name: str
    before: int
    after: int
    reason: str


class Foresight(Schema):
    """What would become of everybody's slots."""

    sentences: list[str]
    differences: list[Difference]


def foreseen(user: User, *, changes: Mapping[int, scheduling.RunChange] | None = None, cluster: ClusterWish | None = None) -> Foresight:
    """As `user` may know it. `changes`: of runs, by number."""
    found = scheduling.preview(now=clock.now(), changes=changes or {}, cluster=cluster, named=partial(run_pages.named_ids, user))
    differences = [
        Difference(run=each.run.pk, name=each.name or ELSEWHERE, before=each.before, after=each.after, reason=each.reason)
        for each in found.differences
    ]
    return Foresight(sentences=list(found.sentences), differences=differences)
