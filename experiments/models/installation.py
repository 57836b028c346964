"""What belongs to the installation as a whole: which EDT_HOME this database goes with, and what was deleted whose files are still there."""

from __future__ import annotations

import uuid

from django.db import models


class Installation(models.Model):
    """The key that this database shares with its EDT_HOME, where it is the file `installation`: one row, id 1. Written by installation."""

    key = models.UUIDField(default=uuid.uuid4)
    made_at = models.DateTimeField(auto_now_add=True)


class Tombstone(models.Model):
    """Something that was deleted: when, by whom, and the name of its files. No file of EDT_HOME is removed that none of these names.

    Written in the transaction that deletes, by services (and pruning for what nobody refers to any more); the times by pruning.
    """

    class Kind(models.TextChoices):
        RUN = "run", "Run"
        ASSET = "asset", "Data asset"
        UPLOAD = "upload", "Upload"
        BUNDLE = "bundle", "Code"
        MODEL = "model", "File of a model"
        CHECKPOINT = "ckpt", "Checkpoint"  # of a run that lives: a policy has removed it

    kind = models.CharField(max_length=8, choices=Kind)
    key = models.CharField(max_length=64)  # what its files are called in their store
    number = models.BigIntegerField(null=True)  # of a run: whose rows are to be removed
    by = models.CharField(max_length=150, blank=True)  # username; empty: nobody asked, nothing referred to it any more
    at = models.DateTimeField()
    trashed_at = models.DateTimeField(null=True)  # its files are in the trash, its rows are removed
    emptied_at = models.DateTimeField(null=True)  # its files are removed

    class Meta:
        ordering = ["at", "id"]
        indexes = [models.Index(fields=["at"], condition=models.Q(emptied_at=None), name="tombstones_to_clear")]
