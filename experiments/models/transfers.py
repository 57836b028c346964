"""Projects that are brought in from the archive of another studio, or of this one. Written by services.imports and transfer.importing."""

from __future__ import annotations

import uuid

from django.db import models

from experiments.models.projects import Project, User


class ProjectImport(models.Model):
    """An archive that arrives in pieces, kept as `EDT_HOME/uploads/KEY/` until it is a project, or refused.

    `says`: how far it is, or why it is refused, in a sentence; `notes`: what its maker should know of the project, a sentence each.
    """

    class State(models.TextChoices):
        ARRIVING = "arriving", "Arriving"
        WAITING = "waiting", "Waiting"  # all has arrived
        CHECKING = "checking", "Checking"  # unpacked, and every file compared with its hash
        READING = "reading", "Reading metrics"  # the project is there, journals are being read
        DONE = "done", "Done"
        REFUSED = "refused", "Refused"

    key = models.UUIDField(default=uuid.uuid4, unique=True)
    created_by = models.ForeignKey(User, on_delete=models.CASCADE, related_name="imports")
    created_at = models.DateTimeField()
    idempotency_key = models.UUIDField(null=True, unique=True)  # of the form that began it: sent twice, it begins one
    file_name = models.CharField(max_length=255)
    size_bytes = models.BigIntegerField()
    name = models.CharField(max_length=120, blank=True)  # what the project is to be called; empty: as its archive says
    state = models.CharField(max_length=16, choices=State, default=State.ARRIVING)
    says = models.TextField(blank=True)
    notes = models.JSONField(default=list)
    attempts = models.PositiveIntegerField(default=0)  # how often somebody began to take it in
    project = models.ForeignKey(Project, null=True, on_delete=models.SET_NULL, related_name="+")
    run = models.BigIntegerField(default=0)  # the last one whose journal has been read
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return self.file_name

    def is_over(self) -> bool:
        return self.state in (self.State.DONE, self.State.REFUSED)
