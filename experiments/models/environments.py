"""Environments: what the requirements of training definitions came to, and where they are built. Written by
`experiments.cluster.environments`."""

from __future__ import annotations

import hashlib
import re

from django.db import models

from experiments.models.cluster import Node

SHOWN_NAMES = 3


class Environment(models.Model):
    """What a text of requirements was resolved to on a base (`training_runtime.environments`): once, so that a run in a year gets the same.

    Rows stay as long as a version (of a definition, or of a named environment) has these requirements; what is collected are the builds.
    """

    requirements_key = models.CharField(max_length=64, db_index=True)  # of DefinitionVersion
    base_key = models.CharField(max_length=64)  # of Node
    base_words = models.CharField(max_length=500, blank=True)
    requirements = models.TextField()
    lock = models.TextField(blank=True)  # names every package with version and hashes; empty: not resolved yet
    packages = models.JSONField(default=list)  # [[name, version], ...] of the lock
    created_at = models.DateTimeField()
    resolved_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-created_at", "-id"]
        constraints = [models.UniqueConstraint(fields=["requirements_key", "base_key"], name="one_environment_per_base")]

    @property
    def title(self) -> str:
        """What is required, in short: "torch, tqdm and 3 more"."""
        names = [re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0] for line in self.requirements.splitlines() if line[:1].isalnum()]
        more = len(names) - SHOWN_NAMES
        return ", ".join(names[:SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "") or "nothing"

    @property
    def key(self) -> str:
        """What nodes call it."""
        return hashlib.sha256(f"{self.requirements_key} {self.base_key}".encode()).hexdigest()


class EnvironmentBuild(models.Model):
    """An environment on one machine. `folder`: what the machine calls what was built; environments with one lock share it."""

    class State(models.TextChoices):
        WANTED = "wanted", "Waiting"
        BUILDING = "building", "Building"
        READY = "ready", "Ready"
        FAILED = "failed", "Failed"
        DROPPED = "dropped", "Being deleted"  # no run is planned with it from here on; the row goes when the machine has deleted it

    environment = models.ForeignKey(Environment, on_delete=models.CASCADE, related_name="builds")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="environments")
    state = models.CharField(max_length=16, choices=State, default=State.WANTED)
    attempt = models.PositiveIntegerField(default=1)
    in_advance = models.BooleanField(default=False)  # an administrator asked for it: it is built though no run waits for it
    detail = models.CharField(max_length=200, blank=True)
    problem = models.TextField(blank=True)
    log = models.TextField(blank=True)
    folder = models.CharField(max_length=64, blank=True)
    size_bytes = models.BigIntegerField(default=0)
    seconds = models.FloatField(null=True)  # that building took
    asked_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)  # when it was ready, or had failed
    used_at = models.DateTimeField(null=True)  # when a run was last planned with it

    class Meta:
        ordering = ["-asked_at", "-id"]
        constraints = [models.UniqueConstraint(fields=["environment", "node"], name="one_build_per_machine")]
