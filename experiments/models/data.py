"""Data assets: the data sets of a project, uploaded once and read by runs; and uploads that are still under way."""

from __future__ import annotations

import uuid

from django.db import models

from experiments.models.projects import Project, User


class DataAsset(models.Model):
    """A folder of checked files, kept as `EDT_HOME/assets/KEY/`. Never changed: new data is a new asset. Written by services.data."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="data_assets")
    name = models.CharField(max_length=120)
    description = models.TextField(max_length=4000, blank=True)
    key = models.UUIDField(default=uuid.uuid4, unique=True)
    upload = models.BigIntegerField(null=True, db_index=True)  # the number of the upload that it was, for who finishes that again
    files = models.PositiveIntegerField()
    size_bytes = models.BigIntegerField()
    sha256 = models.CharField(max_length=64)  # of what was uploaded: of the one file, else of the list of all with their hashes
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-created_at", "-id"]

    def __str__(self) -> str:
        return self.name


class DataUpload(models.Model):
    """Files that arrive piece by piece, kept as `EDT_HOME/uploads/KEY/` until all are there. `parts`: [path, size in bytes] of each.

    They become a data asset; or (`for_code`) the one zip that they are becomes the code of a training definition.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="data_uploads")
    name = models.CharField(max_length=120)
    description = models.TextField(max_length=4000, blank=True)
    key = models.UUIDField(default=uuid.uuid4, unique=True)
    parts = models.JSONField()
    for_code = models.BooleanField(default=False)
    created_by = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-created_at", "-id"]

    def size_bytes(self) -> int:
        return sum(size for _, size in self.parts)
