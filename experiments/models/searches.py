"""Searches for hyperparameters: an experiment whose runs are begun one after the other, with values that are chosen as results come in."""

from __future__ import annotations

from django.db import models

from experiments.models.experiments import Experiment
from experiments.models.runs import TrainingRun


class Search(models.Model):
    """`spec` is what was sent (`searches.wishes`); `seed` what is drawn with. It is over once `ended_at` is set, with `state` and why.
    Its person is the experiment's. Written by services.searches."""

    class State(models.TextChoices):
        RUNNING = "running", "Running"
        FINISHED = "finished", "Finished"
        STOPPED = "stopped", "Stopped"  # ended on request
        FAILED = "failed", "Failed"  # no trial came to a result

    experiment = models.OneToOneField(Experiment, on_delete=models.CASCADE, related_name="search")
    spec = models.JSONField()
    seed = models.BigIntegerField()
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, db_index=True)
    state = models.CharField(max_length=16, choices=State, default=State.RUNNING)
    reason = models.CharField(max_length=500, blank=True)


class SearchTrial(models.Model):
    """A run of a search. `number` is what its maker calls it; `values` what it was given by name; `result` what its metric came to once it
    is `settled`, None for none; `course` how it came there (`searches.falling_behind`), where the search asks. `ended_early`: the search
    has ended it, since it fell behind."""

    search = models.ForeignKey(Search, on_delete=models.CASCADE, related_name="trials")
    run = models.OneToOneField(TrainingRun, on_delete=models.CASCADE, related_name="trial")
    place = models.PositiveIntegerField()
    number = models.BigIntegerField()
    values = models.JSONField()
    settled = models.BooleanField(default=False)
    result = models.FloatField(null=True)
    course = models.JSONField(default=dict)
    ended_early = models.BooleanField(default=False)

    class Meta:
        ordering = ["place"]
        constraints = [models.UniqueConstraint(fields=["search", "place"], name="one_trial_per_place")]
        indexes = [models.Index(fields=["search"], condition=models.Q(settled=False), name="trials_that_go_on")]
