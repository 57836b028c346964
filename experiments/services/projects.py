"""Verbs on projects and their members."""

from __future__ import annotations

import datetime as dt
import logging
import uuid

from django.db import IntegrityError, transaction
from django.utils import timezone

from experiments.cluster import snapshot
from experiments.errors import DomainError
from experiments.live import notify
from experiments.models import (
    ClusterRules,
    Membership,
    Project,
    ProjectImport,
    Role,
    Search,
    TrainingRun,
    User,
)
from experiments.models.runs import LIVE
from experiments.notifications import rules
from experiments.services import checks, deletion
from experiments.services.notifications import switch_off_webhooks

log = logging.getLogger(__name__)
AT_ONCE = 10  # pieces of what a project owns that go before who deletes it has the answer


def create_project(*, by: User, name: str, description: str = "", idempotency_key: uuid.UUID | None = None) -> Project:
    """A project whose admin is `by`. Fields of errors: name, description."""
    clean_name, clean_text = checks.name(name), checks.text(description)
    mine = Project.objects.filter(created_by=by)
    if (before := checks.same_request(mine, idempotency_key)) is not None:
        return _with_role(before, Role.ADMIN)
    try:
        with transaction.atomic():
            project = Project.objects.create(name=clean_name, description=clean_text, created_by=by, idempotency_key=idempotency_key)
            Membership.objects.create(project=project, user=by, role=Role.ADMIN)
            _limit(project)
    except IntegrityError:  # the same form at the same moment: the other was faster
        if (before := checks.same_request(mine, idempotency_key)) is None:
            raise
        return _with_role(before, Role.ADMIN)
    return _with_role(project, Role.ADMIN)


def _limit(project: Project) -> None:
    """To what new projects get."""
    now = ClusterRules.current()
    if now.new_project_quota is None and now.new_project_disk is None and now.new_projects_network:
        return
    rules = snapshot.lock_rules()
    if rules.new_project_quota is not None:
        rules.project_quota = {**rules.project_quota, str(project.pk): rules.new_project_quota}
    if rules.new_project_disk is not None:
        rules.project_disk = {**rules.project_disk, str(project.pk): rules.new_project_disk}
    if not rules.new_projects_network:
        rules.without_network = [*rules.without_network, str(project.pk)]
    rules.save(update_fields=["project_quota", "project_disk", "without_network", "updated_at"])


def update_project(project: Project, *, by: User, name: str, description: str) -> Project:
    """Fields of errors: name, description."""
    project.name, project.description = checks.name(name), checks.text(description)
    project.save(update_fields=["name", "description"])
    checks.audit(by, "updated project %s", project.pk)
    notify.changed(f"project-{project.pk}", "project")
    return project


def archive_project(project: Project, *, by: User, now: dt.datetime | None = None) -> Project:
    """It leaves the list of projects, and nothing in it is run, or changed but its settings, until it is taken back (`access.may`). Refused
    while a run of it is live, or a search goes on."""
    with transaction.atomic():
        _lock(project)
        if TrainingRun.objects.filter(experiment__project=project, state__in=LIVE).exists():
            raise DomainError("A run of this project has not ended: stop it, then archive the project.")
        if Search.objects.filter(experiment__project=project, ended_at=None).exists():
            raise DomainError("A search of this project goes on: stop it, then archive the project.")
        _set_archived(project, now or timezone.now(), by)
    return project


def take_back_project(project: Project, *, by: User) -> Project:
    """Out of the archive: it is as it was."""
    _set_archived(project, None, by)
    return project


def _set_archived(project: Project, at: dt.datetime | None, by: User) -> None:
    project.archived_at = at
    project.save(update_fields=["archived_at"])
    checks.audit(by, "%s project %s (%s)", "archives" if at else "takes back", project.pk, project.name)
    notify.changed(f"project-{project.pk}", "project")


def delete_project(project: Project, *, by: User, now: dt.datetime | None = None) -> None:
    """Delete it with all it owns, results included: gone for everybody at once, and very many runs after that (`deletion`). Refused while a
    run of it is live."""
    now = now or timezone.now()
    runs = TrainingRun.objects.filter(experiment__project=project)
    with transaction.atomic():
        Project.objects.select_for_update().get(pk=project.pk)  # no experiment of it is started meanwhile (see run_experiment)
        if runs.filter(state__in=LIVE).exists():
            raise DomainError("A run of this project has not ended: stop it, then delete the project.")
        checks.audit(by, "deletes project %s (%s) with %d runs", project.pk, project.name, runs.count())
        Project.objects.filter(pk=project.pk).update(state=Project.State.DELETED, deleted_by=by, idempotency_key=None)
        Membership.objects.filter(project=project).delete()
        ProjectImport.objects.filter(project=project).update(project=None)
        notify.changed(f"project-{project.pk}", "project")
        notify.changed("cluster", "jobs", "feed", "lanes")
    project.state, project.deleted_by = Project.State.DELETED, by
    try:
        if any(deletion.of_project(project, now=now) for _ in range(AT_ONCE)):
            return
    except Exception:  # for its people it is gone all the same, and the rest is tried again by others
        log.exception("what project %s owns could not be removed yet", project.pk)
    notify.nudge_prune()


def add_member(project: Project, *, by: User, username: str, role: str) -> Membership:
    """Fields: username, role. Adding someone who is in already sets their role."""
    person = _person(username)
    checks.choice(role, Role, field="role")
    with transaction.atomic():
        _lock(project)
        member, made = Membership.objects.get_or_create(project=project, user=person, defaults={"role": role})
        if not made and member.role == role:
            return member  # nobody is told of nothing
        if not made:
            _change(member, role)
        rules.notify_membership(project, person, role=role, by=by, now=timezone.now())
        checks.audit(by, "made %s %s of project %s", person.username, role, project.pk)
        notify.changed(f"project-{project.pk}", "members")
    return member


def set_role(project: Project, *, by: User, username: str, role: str) -> Membership:
    """Fields: username, role. Never takes the last admin's right away."""
    checks.choice(role, Role, field="role")
    with transaction.atomic():
        _lock(project)
        member = _member(project, username)
        if member.role == role:
            return member
        _change(member, role)
        rules.notify_membership(project, member.user, role=role, by=by, now=timezone.now())
        checks.audit(by, "made %s %s of project %s", member.user.username, role, project.pk)
        notify.changed(f"project-{project.pk}", "members")
    return member


def remove_member(project: Project, *, by: User, username: str) -> None:
    """Field: username. Never the last admin."""
    with transaction.atomic():
        _lock(project)
        member = _member(project, username)
        _check_admin_left(member)
        member.delete()
        checks.audit(by, "removed %s from project %s", member.user.username, project.pk)
        _no_admin_any_more(project, member.user)
        notify.access_changed(member.user_id)
        notify.changed(f"project-{project.pk}", "members")


def _lock(project: Project) -> None:
    """Members change one after the other: of two admins who remove each other at the same moment, one stays."""
    Project.objects.select_for_update().get(pk=project.pk)


def _person(username: str) -> User:
    name = checks.name(username, field="username", limit=150)
    found = User.objects.filter(username=name, is_active=True).first()
    if found is None:
        checks.refuse("username", f"There is no user {name!r}: check the spelling, or ask an administrator to add them.")
    return found


def _member(project: Project, username: str) -> Membership:
    name = checks.name(username, field="username", limit=150)
    found = Membership.objects.filter(project=project, user__username=name).select_related("user").first()
    if found is None:
        checks.refuse("username", f"{name} is not a member of this project.")
    return found


def _change(member: Membership, role: str) -> None:
    if role != Role.ADMIN:
        _check_admin_left(member)
        _no_admin_any_more(member.project, member.user)
    member.role = role
    member.save(update_fields=["role"])


def _no_admin_any_more(project: Project, maker: User) -> None:
    because = f"{maker.username} made it, who is no admin of this project any more."
    switch_off_webhooks(maker, because=because, project=project)


def _check_admin_left(member: Membership) -> None:
    """One whose account is closed is none: nobody would be left who can do anything."""
    others = Membership.objects.filter(project_id=member.project_id, role=Role.ADMIN, user__is_active=True).exclude(pk=member.pk)
    if member.role == Role.ADMIN and not others.exists():
        checks.refuse("username", f"{member.user.username} is the only admin: make somebody else an admin first.")


def _with_role(project: Project, role: str) -> Project:
    project.my_role = role
    return project
