"""Environments by name, which administrators offer to all training definitions: what they require, in versions."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Lower

from experiments.models.projects import User


class NamedEnvironment(models.Model):
    """What it requires now is its newest version's text. Retired: no definition can choose it any more, those that have it keep it."""

    name = models.CharField(max_length=60)
    description = models.TextField(max_length=4000, blank=True)
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField()
    retired_at = models.DateTimeField(null=True)

    class Meta:
        ordering = [Lower("name")]
        constraints = [models.UniqueConstraint(Lower("name"), name="one_named_environment_per_name")]

    def __str__(self) -> str:
        return self.name

    def newest(self) -> NamedVersion:
        return self.versions.order_by("-number")[0]


class NamedVersion(models.Model):
    """Never changed, only followed by another, with another text or (renewed) the same: each is resolved by itself, once a base.

    `requirements_key` is its own, so that a renewed one is resolved again: `Environment` rows with it have the locks.
    """

    environment = models.ForeignKey(NamedEnvironment, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    text = models.TextField()  # as it was typed
    requirements = models.TextField()  # a line each with its place, as of a definition's version
    requirements_key = models.CharField(max_length=64, unique=True)
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField()
    idempotency_key = models.UUIDField(null=True, unique=True)

    class Meta:
        ordering = ["-number"]
        constraints = [models.UniqueConstraint(fields=["environment", "number"], name="one_named_version_per_number")]

    def __str__(self) -> str:
        return f"{self.environment.name} version {self.number}"
