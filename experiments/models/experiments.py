"""Experiments: a logical group of training definitions; running one makes one training run for each."""

from __future__ import annotations

from django.db import models

from experiments.models.data import DataAsset
from experiments.models.definitions import DefinitionVersion
from experiments.models.projects import Project, User


class Experiment(models.Model):
    """What a run of it reads and does; never changed once it is made.

    `source_folder` is the data folder, below `data_asset` where there is one, else below the shared data root. `global_command`, where set,
    replaces each definition's own. `environment`: variables that its runs find in theirs.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="experiments")
    name = models.CharField(max_length=120)
    description = models.TextField(max_length=4000, blank=True)
    data_asset = models.ForeignKey(DataAsset, null=True, on_delete=models.PROTECT, related_name="experiments")
    source_folder = models.CharField(max_length=500, blank=True)
    global_command = models.CharField(max_length=2000, blank=True)
    environment = models.JSONField(default=dict, blank=True)
    checkpoints = models.JSONField(default=dict, blank=True)  # which its runs keep (checkpoint_policy.Policy); empty: all
    versions = models.ManyToManyField(DefinitionVersion, through="ExperimentDefinition", related_name="experiments")
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    idempotency_key = models.UUIDField(null=True, unique=True)

    class Meta:
        ordering = ["-created_at", "-id"]

    def __str__(self) -> str:
        return self.name


class ExperimentDefinition(models.Model):
    """A version that an experiment runs, in its order. `command`, where set, replaces the version's own."""

    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, related_name="parts")
    version = models.ForeignKey(DefinitionVersion, on_delete=models.PROTECT, related_name="+")
    position = models.PositiveIntegerField()
    command = models.CharField(max_length=2000, blank=True)

    class Meta:
        ordering = ["position"]
        constraints = [models.UniqueConstraint(fields=["experiment", "position"], name="one_definition_per_position")]
