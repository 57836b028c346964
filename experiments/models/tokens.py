"""Tokens by which scripts act for a person at the API: kept as hashes, with what they may do and until when."""

from __future__ import annotations

import datetime as dt

from django.db import models

from experiments.models.projects import Project, User
from experiments.models.runs import TrainingRun


class Scope(models.TextChoices):
    READ = "read", "Read"
    WRITE = "write", "Read and write"  # all but what administrators of the cluster do, and tokens
    ADMIN = "admin", "Everything"


class ApiToken(models.Model):
    """`project`: it knows no other; `run`: it ends with that. Written by services.tokens, but `last_used_at` by api_tokens."""

    person = models.ForeignKey(User, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=120)
    digest = models.CharField(max_length=64, unique=True)  # SHA-256 of the token, which has 256 random bits
    hint = models.CharField(max_length=16)  # how it begins, to tell it from others
    scope = models.CharField(max_length=8, choices=Scope)
    project = models.ForeignKey(Project, null=True, on_delete=models.CASCADE, related_name="+")
    run = models.ForeignKey(TrainingRun, null=True, on_delete=models.CASCADE, related_name="+")
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True)
    last_used_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return self.name

    def is_over(self, now: dt.datetime) -> bool:
        """Of one with a run, `run` is loaded."""
        late = self.expires_at is not None and self.expires_at <= now
        return late or (self.run is not None and not self.run.is_live())
