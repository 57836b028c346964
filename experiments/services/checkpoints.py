"""Verbs on the checkpoints of a run: which are kept. Carrying that out is up to `retention`."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.db import transaction
from django.utils import timezone

from experiments.files import checkpoint_policy, retention
from experiments.files.checkpoint_policy import Policy
from experiments.live import notify
from experiments.models import TrainingRun, User
from experiments.runs import states
from experiments.services import checks

NAME_LIMIT = 206
OF_AN_ENDED_RUN = "The run has ended: its checkpoints stay as they are."


def checked(policy: Policy) -> dict[str, Any]:
    """What is stored of it. Fields: keep_last, keep_best, keep_metric."""
    if policy.keeps_all and not policy.best:
        return {}
    checks.whole(policy.last, field="keep_last", least=1, most=checkpoint_policy.MOST)
    checks.whole(policy.best, field="keep_best", least=0, most=checkpoint_policy.MOST)
    if not policy.best:
        return Policy(last=policy.last).stored()
    group, _, name = policy.metric.strip().partition(" ")
    if group not in ("train", "test") or not name or len(policy.metric) > NAME_LIMIT:
        checks.refuse("keep_metric", 'Name the metric that says which are best as its chart does: "test loss", say.')
    return Policy(policy.last, policy.best, f"{group} {checks.name(name, field='keep_metric', limit=200)}", policy.greatest).stored()


def set_checkpoints(run: TrainingRun, *, by: User, policy: Policy, now: dt.datetime | None = None) -> TrainingRun:
    """From now on, and for those that are there. Fields: keep_last, keep_best, keep_metric."""
    now, wanted = now or timezone.now(), checked(policy)
    with transaction.atomic():
        run = TrainingRun.objects.select_for_update(of=("self",), no_key=True).select_related("experiment", "head_node").get(pk=run.pk)
        if not run.is_live():
            checks.refuse("keep_last", OF_AN_ENDED_RUN)
        if run.checkpoints != wanted:
            run.checkpoints = wanted
            run.save(update_fields=["checkpoints"])
            states.note(run, reason=f"{by.username} changed which checkpoints are kept: {policy}.", now=now, actor=by)
            notify.changed(f"run-{run.pk}", "events", "files")
        retention.apply(run, now=now)
    return run
