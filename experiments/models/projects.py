"""People, projects and who belongs to them with which role."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from django.contrib.auth.models import AbstractUser
from django.db import models
from django.db.models import Q

ARCHIVED = "This project is archived: one of its admins can take it out of the archive, under Settings."


@dataclass(frozen=True)
class Permit:
    """What a token lets who asks by it do: to read, to write, or all that its person may; in one project where it names one."""

    token: int
    scope: str
    project: int | None


class User(AbstractUser):
    """A person. `is_staff` is an administrator of the cluster: policy, nodes, every run. `weight` is their share under fair share."""

    class Theme(models.TextChoices):
        SYSTEM = "system", "Like the system"
        LIGHT = "light", "Light"
        DARK = "dark", "Dark"

    theme = models.CharField(max_length=8, choices=Theme, default=Theme.SYSTEM)
    weight = models.FloatField(default=1.0)
    notification_choices = models.JSONField(default=dict, blank=True)  # kind -> ["page", "mail"]; the usual ones where it says nothing
    confirmed_email = models.CharField(max_length=254, blank=True)  # its owner has opened the link that was sent there; others get nothing
    shortcuts = models.BooleanField(default=True)  # single keys do something; those who dictate or mistype switch them off
    logins_ended = models.PositiveIntegerField(default=0, db_default=0)  # how often all logins were ended at once: it is part of each
    permit: Permit | None = None  # of the token by which they ask just now; not stored

    def get_session_auth_hash(self) -> str:
        """As Django has it, of the password; another one after all logins were ended."""
        return self._as_of_now(super().get_session_auth_hash())

    def get_session_auth_fallback_hash(self) -> Iterator[str]:
        """The same under keys that were in use before."""
        return map(self._as_of_now, super().get_session_auth_fallback_hash())

    def _as_of_now(self, by_password: str) -> str:
        return by_password if self.logins_ended == 0 else f"{by_password}:{self.logins_ended}"

    @property
    def administers(self) -> bool:
        """Whether they may do now what administrators of the cluster do: a token may less than its person."""
        return self.is_staff and self.is_active and (self.permit is None or (self.permit.scope == "admin" and self.permit.project is None))


class Role(models.TextChoices):
    ADMIN = "admin", "Admin"  # everything, members included
    EDITOR = "editor", "Editor"  # writes and runs
    VIEWER = "viewer", "Viewer"  # reads


class _Here(models.Manager["Project"]):
    """Those that there are for people."""

    def get_queryset(self) -> models.QuerySet[Project]:
        return super().get_queryset().filter(state=Project.State.HERE)


class Project(models.Model):
    """People and what they own together. One of very many runs is made, and removed, in many transactions: before, and after, it is
    there for nobody (`objects`)."""

    class State(models.TextChoices):
        HERE = "here", "Here"
        ARRIVING = "arriving", "Arriving"  # being made of an archive (transfer.making)
        DELETED = "deleted", "Deleted"  # what it owns is being removed (services.deletion)

    objects = _Here()
    every: ClassVar[models.Manager[Project]] = models.Manager()
    name = models.CharField(max_length=120)
    description = models.TextField(max_length=4000, blank=True)
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    state = models.CharField(max_length=8, choices=State, default=State.HERE)
    deleted_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    archived_at = models.DateTimeField(null=True)  # since then it is only read, but for its settings (access.may)
    sample = models.BooleanField(default=False)  # made to show how things work: its overview guides
    idempotency_key = models.UUIDField(null=True, unique=True)  # of the form that made it: sent twice, it makes one
    members = models.ManyToManyField(User, through="Membership", related_name="projects")
    my_role: str  # of the person it was fetched for; set by access, not stored

    class Meta:
        ordering = ["-created_at", "-id"]

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    """A person's role in a project."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=8, choices=Role)
    added_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["added_at", "id"]
        constraints = [
            models.UniqueConstraint(fields=["project", "user"], name="one_role_per_person"),
            models.CheckConstraint(condition=Q(role__in=["admin", "editor", "viewer"]), name="known_role"),
        ]

    def may_write(self) -> bool:
        return self.role in (Role.ADMIN, Role.EDITOR)

    def may_administer(self) -> bool:
        return self.role == Role.ADMIN
