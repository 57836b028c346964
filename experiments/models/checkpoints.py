"""Checkpoints that a run's policy has removed."""

from __future__ import annotations

import uuid

from django.db import models

from experiments.models.runs import TrainingRun


class DroppedCheckpoint(models.Model):
    """What a policy has removed of a run, and why. Written by retention, with a tombstone of the same key, by which pruning moves the
    files to the trash."""

    run = models.ForeignKey(TrainingRun, on_delete=models.DO_NOTHING, db_constraint=False, related_name="dropped_checkpoints")
    key = models.UUIDField(unique=True, default=uuid.uuid4)
    at = models.DateTimeField()
    step = models.BigIntegerField()
    epoch = models.PositiveIntegerField()
    paths = models.JSONField(default=list)
    size_bytes = models.BigIntegerField()
    reason = models.TextField()

    class Meta:
        ordering = ["step"]
        constraints = [models.UniqueConstraint(fields=["run", "step"], name="one_drop_per_checkpoint")]

    @property
    def kind(self) -> str:
        """As of the run's other events."""
        return "removed"

    @property
    def message(self) -> str:
        return f"Removed the model files of step {self.step}. {self.reason}"
