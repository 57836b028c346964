"""Data assets: the data sets of a project, uploaded once and read by runs; and uploads that are still under way."""

from __future__ import annotations

import uuid

from django.db import models

from experiments.models.projects import Project, User

NOTE_LIMIT = 200


class DataSeries(models.Model):
    """What ties the versions of a data set together. `last_version`: the highest number that one has had; none is given again."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="data_series")
    last_version = models.PositiveIntegerField(default=0)


class DataAsset(models.Model):
    """A version of a data set: a folder of checked files, kept as `EDT_HOME/assets/KEY/`. Never changed: new data is the next version, or
    another data set. Written by services.data.

    Name and description are those of the data set, the same in all its versions. `note`: what is new in this one.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="data_assets")
    series = models.ForeignKey(DataSeries, on_delete=models.CASCADE, related_name="versions")
    version = models.PositiveIntegerField()
    note = models.CharField(max_length=NOTE_LIMIT, blank=True)
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
        constraints = [models.UniqueConstraint(fields=["series", "version"], name="one_data_version_per_number")]

    def __str__(self) -> str:
        return f"{self.name} v{self.version}"


class DataUpload(models.Model):
    """Files that arrive piece by piece, kept as `EDT_HOME/uploads/KEY/` until all are there. `parts`: [path, size in bytes] of each.

    They become a data asset: the next version of `series`, where there is one, else the first of a data set of its own. Or (`for_code`)
    the one zip that they are becomes the code of a training definition.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="data_uploads")
    name = models.CharField(max_length=120)
    description = models.TextField(max_length=4000, blank=True)
    key = models.UUIDField(default=uuid.uuid4, unique=True)
    parts = models.JSONField()
    for_code = models.BooleanField(default=False)
    series = models.ForeignKey(DataSeries, null=True, on_delete=models.SET_NULL, related_name="+")
    note = models.CharField(max_length=NOTE_LIMIT, blank=True)
    created_by = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-created_at", "-id"]

    def size_bytes(self) -> int:
        return sum(size for _, size in self.parts)
