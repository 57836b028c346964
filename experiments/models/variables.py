"""Environment variables that runs of a project, or of a training definition, find in theirs. Written by services.variables."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from experiments.models.definitions import TrainingDefinition
from experiments.models.projects import Project, User


class EnvironmentVariable(models.Model):
    """A variable of a project or of a training definition: of one of them.

    `value` is shown; of a secret it is encrypted (`experiments.definitions.variables`), reaches runs, and is shown to nobody.
    """

    project = models.ForeignKey(Project, null=True, on_delete=models.CASCADE, related_name="variables")
    definition = models.ForeignKey(TrainingDefinition, null=True, on_delete=models.CASCADE, related_name="variables")
    name = models.CharField(max_length=200)
    secret = models.BooleanField(default=False)
    value = models.TextField(blank=True)
    set_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    set_at = models.DateTimeField()

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["project", "name"], name="one_variable_per_name_of_project"),
            models.UniqueConstraint(fields=["definition", "name"], name="one_variable_per_name_of_definition"),
            models.CheckConstraint(
                condition=Q(project__isnull=True, definition__isnull=False) | Q(project__isnull=False, definition__isnull=True),
                name="variable_of_project_or_definition",
            ),
        ]

    def __str__(self) -> str:
        return self.name
