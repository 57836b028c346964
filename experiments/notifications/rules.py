"""What people are told: a state of their run, a value of its metrics, somebody's change to it, a membership. The only writer of
Notification, beside who marks them read.

Called inside the transaction that changes the thing, so nothing is told that did not happen. What goes outward is only written down here;
`deliveries` sends it, from Celery.
"""

from __future__ import annotations

import datetime as dt
import unicodedata
from collections.abc import Iterable, Sequence

from django.conf import settings
from django.db import transaction
from django.db.models import Q

from experiments.live import notify
from experiments.metrics.journal_rows import NewPoint
from experiments.models import (
    Delivery,
    MetricSeries,
    MetricWatch,
    Notification,
    NotificationKind,
    Project,
    RunState,
    Search,
    SearchTrial,
    TrainingRun,
    User,
    Webhook,
)

AGAIN = dt.timedelta(minutes=10)  # a run that loses its slots again and again is told of once in this time, unless it was read
TEXT_LIMIT = 600
NAMED = 5  # metrics, in one text
IN_PAGE, BY_MAIL = "page", "mail"
USUAL: dict[str, Sequence[str]] = {kind: (IN_PAGE,) for kind in NotificationKind.values}
_TURNING = {"R", "AL", "AN", "RLE", "RLO", "RLI", "LRE", "LRO", "LRI", "FSI", "PDF", "PDI"}  # Unicode's bidirectional classes
_OF_STATE = {
    RunState.COMPLETED: (NotificationKind.COMPLETED, "has completed"),
    RunState.FAILED: (NotificationKind.FAILED, "has failed"),
    RunState.SUSPENDED: (NotificationKind.SUSPENDED, "is suspended"),
    RunState.STOPPED: (NotificationKind.STOPPED, "was stopped"),
}


def ways(person: User, kind: str) -> Sequence[str]:
    """How the person wants to be told of this: "page", "mail"."""
    chosen = person.notification_choices.get(kind)
    return chosen if isinstance(chosen, list) else USUAL[kind]


def kinds_for(person: User) -> list[NotificationKind]:
    """What this person may be told of: of slots of the cluster only administrators are."""
    return [kind for kind in NotificationKind if kind != NotificationKind.SLOT or person.is_staff]


def notify_state(run: TrainingRun, *, reason: str, now: dt.datetime, actor: User | None) -> None:
    """The run has come to the state it is in. Whoever did that themselves need not be told; that it was paused is told as a change to
    it."""
    found = _OF_STATE.get(RunState(run.state))
    if found is None:
        return
    kind, words = found
    stopped_by = None
    if kind == NotificationKind.STOPPED:
        asked = run.transitions.exclude(actor=None).filter(new__in=[RunState.STOPPING, RunState.STOPPED]).order_by("-id").first()
        stopped_by = asked.actor if asked is not None else None
    because = f": {reason}" if reason and kind != NotificationKind.COMPLETED else "."
    by_itself = kind != NotificationKind.STOPPED and _is_trial(run)
    known = run.submitted_by in (actor, stopped_by) or (kind == NotificationKind.SUSPENDED and run.paused) or by_itself
    who = [] if known else [run.submitted_by]
    _tell(who, kind, f"{_called(run)} {words}{because}", run=run, project=run.experiment.project, now=now)


def notify_change(run: TrainingRun, *, reason: str, now: dt.datetime, actor: User | None) -> None:
    """Somebody changed something about the run, not its state."""
    who = [run.submitted_by] if actor is not None and actor != run.submitted_by else []
    _tell(who, NotificationKind.CHANGED, f"{_called(run)}: {reason}", run=run, project=run.experiment.project, now=now)


def notify_points(run: TrainingRun, points: Sequence[NewPoint], *, now: dt.datetime) -> None:
    """The run has these new points. Whoever set a threshold that one of them crosses is told once; the submitter, of each curve that has
    become NaN or infinite, the first time."""
    watches = MetricWatch.objects.filter(run=run, told_at=None).select_related("person") if points else ()
    for watch in watches:
        crossing = (p for p in points if (p.group, p.name) == (watch.group, watch.name) and watch.is_crossed_by(p.value))
        if point := next(crossing, None):
            MetricWatch.objects.filter(pk=watch.pk).update(told_at=now, told_step=point.step, told_value=point.value)
            text = f"{_called(run)}: {watch}, {point.value:g} at step {point.step}."
            _tell([watch.person], NotificationKind.THRESHOLD, text, run=run, project=run.experiment.project, now=now)
    broken: dict[tuple[str, str], int] = {}
    for point in points:
        if point.value is None:
            broken.setdefault((point.group, point.name), point.step)
    if broken:
        known = MetricSeries.objects.filter(run=run).exclude(not_finite_from=None)
        first = [f"{one.group} {one.name}" for one in known if broken.get((one.group, one.name)) == one.not_finite_from]
        if first:
            names = ", ".join(first[:NAMED]) + (f" and {len(first) - NAMED} more" if len(first) > NAMED else "")
            text = f"{_called(run)}: no finite number (NaN or infinite) since step {min(broken.values())}: {names}."
            who = [] if _is_trial(run) else [run.submitted_by]
            _tell(who, NotificationKind.NOT_FINITE, text, run=run, project=run.experiment.project, now=now)


def notify_search(search: Search, *, best: SearchTrial | None, metric: str, now: dt.datetime, actor: User | None) -> None:
    """It is over. Of its runs, which come and go by themselves, nobody was told one by one."""
    experiment = search.experiment
    who = [experiment.created_by] if actor != experiment.created_by else []
    told = [f"The search {isolated(experiment.name)} has ended: {search.reason}"]
    if best is not None:
        values = ", ".join(f"{name} {value}" for name, value in best.values.items())
        told.append(f"Best: {metric} {best.result:.6g} with {values} (run {best.run_id}).")
    run = best.run if best is not None else None
    _tell(who, NotificationKind.SEARCH, " ".join(told), run=run, project=experiment.project, now=now)


def _is_trial(run: TrainingRun) -> bool:
    return SearchTrial.objects.filter(run=run).exists()


def notify_mention(run: TrainingRun, people: Iterable[User], *, text: str, by: User, now: dt.datetime) -> None:
    """Somebody has named these people in a comment; who may not see the run hears nothing of it."""
    said = f"{by.username} named you in a comment on {_called(run)}: {' '.join(text.split())}"
    _tell(people, NotificationKind.MENTIONED, said, run=run, project=run.experiment.project, now=now)


def _called(run: TrainingRun) -> str:
    """Its name and its number: all runs of an experiment have one name."""
    return f"{isolated(run.name)} (run {run.pk})"


def isolated(name: str) -> str:
    """The name so that it does not turn the sentence around it: one with letters or marks of another direction is set apart by marks."""
    turning = any(unicodedata.bidirectional(letter) in _TURNING for letter in name)
    return f"\N{FIRST STRONG ISOLATE}{name}\N{POP DIRECTIONAL ISOLATE}" if turning else name


def notify_membership(project: Project, person: User, *, role: str, by: User, now: dt.datetime) -> None:
    who = [person] if person != by else []
    _tell(who, NotificationKind.MEMBER, f"{by.username} made you {role} of {isolated(project.name)}.", run=None, project=project, now=now)


def notify_slot(text: str, *, now: dt.datetime) -> None:
    """Administrators of the cluster are told of a slot that looks ill."""
    _tell(User.objects.filter(is_staff=True, is_active=True), NotificationKind.SLOT, text, run=None, project=None, now=now)


def _tell(
    people: Iterable[User], kind: NotificationKind, text: str, *, run: TrainingRun | None, project: Project | None, now: dt.datetime
) -> None:
    text = text[: TEXT_LIMIT - 1] + "…" if len(text) > TEXT_LIMIT else text
    told = [person for person in people if person.is_active]  # whose account is closed hears nothing of what goes on
    if project is not None:  # who has left it hears no more of it
        told = [person for person in told if project.memberships.filter(user=person).exists()]
    body = _body(kind, text, run=run, project=project, now=now)
    out = []
    for person in told:
        chosen = ways(person, kind)
        if IN_PAGE in chosen and not _again(person, kind, run, text, now):
            Notification.objects.create(person=person, kind=kind, at=now, text=text, run=run, project=project)
        if BY_MAIL in chosen and person.email and person.email == person.confirmed_email and settings.EDT_EMAIL:
            out.append(Delivery(person=person, body=body, created_at=now, next_at=now))
        notify.changed(f"user-{person.pk}", "notifications")
    whose = Q(person__in=told) | Q(project=project) if project is not None else Q(person__in=told)
    for hook in Webhook.objects.filter(whose, active=True):
        if kind in hook.kinds:
            out.append(Delivery(webhook=hook, body=body, created_at=now, next_at=now))
    if out:
        Delivery.objects.bulk_create(out)
        notify.nudge_deliveries()


def _again(person: User, kind: str, run: TrainingRun | None, text: str, now: dt.datetime) -> bool:
    """Whether an unread notification says the same already; then it is brought up to date."""
    if run is None or kind in (NotificationKind.THRESHOLD, NotificationKind.MENTIONED):  # each of these is told of once anyway
        return False
    same = Notification.objects.filter(person=person, kind=kind, run=run, read_at=None, at__gt=now - AGAIN)
    with transaction.atomic():
        return bool(same.update(at=now, text=text))


def _body(kind: str, text: str, *, run: TrainingRun | None, project: Project | None, now: dt.datetime) -> dict[str, object]:
    """What a webhook is sent: docs/operations.md."""
    at = now.astimezone(dt.UTC).isoformat(timespec="seconds")
    body: dict[str, object] = {"event": str(kind), "at": at, "text": text}
    if project is not None:
        body["project"] = {"id": project.pk, "name": project.name}
    if run is not None:
        address = f"{settings.EDT_PUBLIC_URL}/runs/{run.pk}/"
        body["experiment"] = {"id": run.experiment_id, "name": run.experiment.name}
        body["run"] = {"id": run.pk, "name": run.name, "state": run.state, "submitted_by": run.submitted_by.username, "address": address}
    return body
