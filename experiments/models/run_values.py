"""What tables of runs are found, sorted and grouped by: the arguments and tags of runs, a row each; which columns the runs of an experiment
have; and the tables that people keep. Metrics are not copied: `MetricSeries` has the last, the least and the greatest value of each.

Values and columns are written by `run_values`, kept tables by `services.saved_views`.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from experiments.models.experiments import Experiment
from experiments.models.projects import Project, User
from experiments.models.runs import TrainingRun

NAME_LIMIT = 200


class RunValue(models.Model):
    """An argument of a run (or a parameter that it logs) by its plain name ("batch_size"), or a tag, whose name it is.

    `number`: the text as a finite number, where it is one. Deleted after the run, as all that a run has many rows of (see `history`).
    """

    class Kind(models.TextChoices):
        ARGUMENT = "argument", "Argument"
        TAG = "tag", "Tag"

    run = models.ForeignKey(TrainingRun, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    kind = models.CharField(max_length=8, choices=Kind)
    name = models.CharField(max_length=NAME_LIMIT)
    text = models.CharField(max_length=500, blank=True)
    number = models.FloatField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "kind", "name"], name="one_value_per_name")]
        indexes = [models.Index(fields=["kind", "name", "number"], name="values_by_number")]


class RunColumn(models.Model):
    """A name that a value or a curve of one of the experiment's runs has, or has had. `varies`: not all of them have the value `first`."""

    class Kind(models.TextChoices):
        ARGUMENT = "argument", "Argument"
        TRAIN = "train", "Train"
        TEST = "test", "Test"

    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, db_index=False, related_name="columns")
    kind = models.CharField(max_length=8, choices=Kind)
    name = models.CharField(max_length=NAME_LIMIT)
    first = models.CharField(max_length=500, blank=True)
    varies = models.BooleanField(default=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["experiment", "kind", "name"], name="one_column_per_name")]


class SavedView(models.Model):
    """A table of runs that somebody keeps: the query of its address, and whose runs it shows (of `experiment`, else of all the project's).

    `person`: whose it is; nobody's is the project's, which all its members see.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="saved_views")
    experiment = models.ForeignKey(Experiment, null=True, on_delete=models.CASCADE, related_name="+")
    person = models.ForeignKey(User, null=True, on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=80)
    query = models.CharField(max_length=4000, blank=True)
    saved_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    saved_at = models.DateTimeField()

    class Meta:
        ordering = ["name", "id"]
        constraints = [
            models.UniqueConstraint(fields=["project", "name"], condition=Q(person=None), name="one_shared_view_per_name"),
            models.UniqueConstraint(fields=["project", "person", "name"], condition=~Q(person=None), name="one_own_view_per_name"),
        ]

    def __str__(self) -> str:
        return self.name
