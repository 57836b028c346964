"""Registered models of a project: versions that were made of what runs have written, the files of each, and the aliases that point to them.
Written by services.registry.

A version says by itself what it was computed with (`lineage`): its run may be deleted, and then that is all that is known of it.
"""

from __future__ import annotations

from django.db import models

from experiments.models.definitions import Bundle
from experiments.models.projects import Project, User

NAME_LIMIT = 120
ALIAS_LIMIT = 64
NOTE_LIMIT = 20_000
PATH_LIMIT = 1000


class RegisteredModel(models.Model):
    """A name under which a project keeps versions of a model. `last_number`: the highest that a version has had; none is given again."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="registered_models")
    name = models.CharField(max_length=NAME_LIMIT)
    note = models.TextField(max_length=NOTE_LIMIT, blank=True)  # Markdown
    tags = models.JSONField(default=dict, blank=True)  # texts by name
    last_number = models.PositiveIntegerField(default=0)
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField()

    class Meta:
        ordering = ["name", "id"]
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="one_model_per_name")]

    def __str__(self) -> str:
        return self.name


class ModelVersion(models.Model):
    """What was registered of a run: never changed, but for its note and its tags.

    `run`: the number of the run, which may have been deleted since; `path`: what of it was registered, a file or a folder; `lineage`: what
    is known of how it came about (selectors.registry.lineage); `left_out`: what could not be made of it and why, in sentences.
    """

    model = models.ForeignKey(RegisteredModel, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    run = models.BigIntegerField(null=True, db_index=True)
    path = models.CharField(max_length=PATH_LIMIT)
    code = models.ForeignKey(Bundle, null=True, on_delete=models.PROTECT, related_name="+")  # its weights are nothing without it
    lineage = models.JSONField(default=dict)
    left_out = models.JSONField(default=list)
    note = models.TextField(max_length=NOTE_LIMIT, blank=True)  # Markdown
    tags = models.JSONField(default=dict, blank=True)  # texts by name
    size_bytes = models.BigIntegerField(default=0)
    idempotency_key = models.UUIDField(null=True, unique=True)
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField()

    class Meta:
        ordering = ["-number"]
        constraints = [models.UniqueConstraint(fields=["model", "number"], name="one_model_version_per_number")]

    def __str__(self) -> str:
        return f"{self.model.name} version {self.number}"


class ModelFile(models.Model):
    """A file of a version, kept by its content as `EDT_HOME/models/SHA256`: files of the same content are kept once, whoever has them.

    `made`: the studio has made it, beside what the run has written.
    """

    version = models.ForeignKey(ModelVersion, on_delete=models.CASCADE, related_name="files")
    path = models.CharField(max_length=PATH_LIMIT)
    sha256 = models.CharField(max_length=64, db_index=True)
    size_bytes = models.BigIntegerField()
    made = models.BooleanField(default=False)

    class Meta:
        ordering = ["path"]
        constraints = [models.UniqueConstraint(fields=["version", "path"], name="one_model_file_per_path")]

    def __str__(self) -> str:
        return self.path


class ModelAlias(models.Model):
    """A name that points to one version of its model: "champion", "production"."""

    model = models.ForeignKey(RegisteredModel, on_delete=models.CASCADE, related_name="aliases")
    name = models.CharField(max_length=ALIAS_LIMIT)
    version = models.ForeignKey(ModelVersion, on_delete=models.CASCADE, related_name="aliases")

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["model", "name"], name="one_version_per_alias")]

    def __str__(self) -> str:
        return self.name


class ModelEvent(models.Model):
    """What somebody did to a model: registered a version, moved an alias, deleted a version. A sentence for people."""

    model = models.ForeignKey(RegisteredModel, on_delete=models.CASCADE, related_name="events")
    at = models.DateTimeField()
    by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    what = models.CharField(max_length=500)

    class Meta:
        ordering = ["-at", "-id"]
