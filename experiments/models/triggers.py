"""Triggers: what runs an experiment without anybody clicking, and what came in. Written by services.triggers."""

from __future__ import annotations

import uuid

from django.db import models

from experiments.models.definitions import TrainingDefinition
from experiments.models.experiments import Experiment
from experiments.models.projects import Project, User


class Trigger(models.Model):
    """An address that others send signed messages to, and what is done then, in the name of who made it.

    `event`: "push" fetches `definition` again and runs `experiment` with it, where it was of `branch` (empty: any) and brought a commit;
    "data" runs it with a data asset called `data_name` that is new in the project; "call" runs it as it is.
    """

    class Event(models.TextChoices):
        PUSH = "push", "A push to a git repository"
        DATA = "data", "A new data asset"
        CALL = "call", "Any signed call"

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="triggers")
    key = models.UUIDField(default=uuid.uuid4, unique=True)  # its address
    secret = models.TextField()  # sealed: a signature needs it as it is
    event = models.CharField(max_length=8, choices=Event)
    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, related_name="triggers")
    definition = models.ForeignKey(TrainingDefinition, null=True, on_delete=models.CASCADE, related_name="+")
    branch = models.CharField(max_length=255, blank=True)
    data_name = models.CharField(max_length=120, blank=True)
    created_by = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    created_at = models.DateTimeField()

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.get_event_display()}: {self.experiment.name}"


class TriggerDelivery(models.Model):
    """A message that came in, or data that did. `number`: who sent it calls it so; the same is done once. `outcome`: what became of it, in
    a sentence; empty while it waits."""

    trigger = models.ForeignKey(Trigger, on_delete=models.CASCADE, related_name="deliveries")
    number = models.CharField(max_length=100)
    at = models.DateTimeField()
    facts = models.JSONField(default=dict)  # what is acted on: the branch, or the data asset
    begun_at = models.DateTimeField(null=True)
    done_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=500, blank=True)
    made = models.ForeignKey(Experiment, null=True, on_delete=models.SET_NULL, related_name="+")

    class Meta:
        ordering = ["-id"]
        constraints = [models.UniqueConstraint(fields=["trigger", "number"], name="one_delivery_per_number")]
