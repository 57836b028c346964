"""What happened to a run: its states, generations, rare events, metrics, and how far its journal has been read. Written by ingest, but for
RunTransition, which `transition` writes, and UtilizationSample and LatestUtilization, which `cluster.utilization` does.

What a run may have very many rows of (DO_NOTHING below) is not deleted with it, in one statement that everybody would wait for, but
afterwards in pieces, by `pruning`. No page shows such rows meanwhile: all of them are looked up through their run.
"""

from __future__ import annotations

from django.db import models

from experiments.models.projects import User
from experiments.models.runs import RunState, TrainingRun


class RunTransition(models.Model):
    """The run went from one state to another, when, why, and who asked (nobody: the system)."""

    run = models.ForeignKey(TrainingRun, on_delete=models.CASCADE, related_name="transitions")
    at = models.DateTimeField()
    old = models.CharField(max_length=16, choices=RunState, blank=True)
    new = models.CharField(max_length=16, choices=RunState)
    reason = models.TextField(blank=True)
    actor = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")

    class Meta:
        ordering = ["at", "id"]
        indexes = [models.Index(fields=["-at", "-id"], name="newest_transitions")]


class JournalCursor(models.Model):
    """How far a run's journal is in the database. Moves in the transaction that stores the lines."""

    run = models.OneToOneField(TrainingRun, on_delete=models.CASCADE, related_name="cursor", primary_key=True)
    offset = models.BigIntegerField(default=0)
    seq = models.BigIntegerField(default=0)
    mark = models.CharField(max_length=64, blank=True)  # of the bytes before `offset`, see training_runtime.journal
    rejected = models.PositiveIntegerField(default=0)  # lines that did not parse
    left_out = models.JSONField(default=dict, blank=True)  # what was not stored: how much, by reason (ingest.LEFT_OUT)
    redone_to = models.BigIntegerField(default=0)  # steps up to this one may come again: they were done again after an interruption
    lines_of = models.BigIntegerField(null=True)  # what its lines call the run, where that was imported: its number where it ran


class GenerationRecord(models.Model):
    """A membership of the run: who computed from `step` on, why, what the change cost."""

    run = models.ForeignKey(TrainingRun, on_delete=models.DO_NOTHING, db_constraint=False, related_name="generations")
    seq = models.BigIntegerField()  # of its journal line
    generation = models.PositiveIntegerField()
    at = models.DateTimeField()
    step = models.BigIntegerField()
    epoch = models.PositiveIntegerField()
    workers = models.PositiveIntegerField()
    workers_before = models.PositiveIntegerField()
    slots = models.JSONField(default=list)  # slot ids by rank
    reason = models.TextField()
    pause_ms = models.FloatField()
    redone = models.PositiveIntegerField()

    class Meta:
        ordering = ["seq"]
        indexes = [models.Index(fields=["-at", "-id"], name="newest_generations")]
        constraints = [models.UniqueConstraint(fields=["run", "seq"], name="one_generation_per_line")]

    def is_restart(self) -> bool:
        """Whether the workers were started anew, from their script's checkpoint, instead of going on with the next step."""
        return bool(self.run.version.torchrun)


class RunEvent(models.Model):
    """A rare journal line that people want to read: checkpoint, warning, error, suspended, resumed, started, finished."""

    run = models.ForeignKey(TrainingRun, on_delete=models.DO_NOTHING, db_constraint=False, related_name="events")
    seq = models.BigIntegerField()
    at = models.DateTimeField()
    kind = models.CharField(max_length=16)
    message = models.TextField()
    detail = models.JSONField(default=dict, blank=True)

    class Meta:
        ordering = ["seq"]
        constraints = [models.UniqueConstraint(fields=["run", "seq"], name="one_event_per_line")]


class StateDigest(models.Model):
    """The digest of the run's whole state after the last step of an epoch: the same bits have the same. The first that its journal said."""

    run = models.ForeignKey(TrainingRun, on_delete=models.DO_NOTHING, db_constraint=False, related_name="digests")
    epoch = models.PositiveIntegerField()
    step = models.BigIntegerField()
    digest = models.CharField(max_length=16)

    class Meta:
        ordering = ["epoch"]
        constraints = [models.UniqueConstraint(fields=["run", "epoch"], name="one_digest_per_epoch")]


class MetricSeries(models.Model):
    """A named curve of a run: ("train", "loss"), ("test", "accuracy")."""

    run = models.ForeignKey(TrainingRun, on_delete=models.DO_NOTHING, db_constraint=False, related_name="series")
    group = models.CharField(max_length=8, choices=[("train", "Train"), ("test", "Test")])
    name = models.CharField(max_length=200)
    points = models.BigIntegerField(default=0)
    last_step = models.BigIntegerField(default=0)
    last_value = models.FloatField(null=True)
    least = models.FloatField(null=True)  # of its finite values, where it has any
    least_step = models.BigIntegerField(null=True)
    greatest = models.FloatField(null=True)
    greatest_step = models.BigIntegerField(null=True)
    not_finite_from = models.BigIntegerField(null=True)  # the first step whose value was no finite number

    class Meta:
        ordering = ["group", "name"]
        constraints = [models.UniqueConstraint(fields=["run", "group", "name"], name="one_series_per_name")]


class Metric(models.Model):
    """One point. A value that is not a finite number is stored as null: SQLite has no NaN, and JSON neither that nor infinity."""

    series = models.ForeignKey(MetricSeries, on_delete=models.CASCADE, related_name="+", db_index=False)  # the constraint's index has it
    step = models.BigIntegerField()
    seq = models.BigIntegerField()  # of its journal line
    epoch = models.PositiveIntegerField()
    t = models.FloatField()  # Unix seconds
    value = models.FloatField(null=True)
    workers = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["series", "step"], name="one_point_per_step")]


class MetricRollup(models.Model):
    """The least and the greatest point of STEPS steps of a curve (`index` of them): what a long curve is drawn from. Kept by ingest."""

    STEPS = 64

    series = models.ForeignKey(MetricSeries, on_delete=models.CASCADE, related_name="+", db_index=False)  # the constraint's index has it
    index = models.BigIntegerField()
    least_step = models.BigIntegerField()
    least_t = models.FloatField()
    least = models.FloatField(null=True)
    greatest_step = models.BigIntegerField()
    greatest_t = models.FloatField()
    greatest = models.FloatField(null=True)

    class Meta:
        # Named when these were called stretches: under another name the index of a large table would be made anew.
        constraints = [models.UniqueConstraint(fields=["series", "index"], name="one_stretch_per_place")]


class LoggedFacts(models.Model):
    """What the run's script has said of itself by name: parameters and tags, of MLflow's client; and what its process had: `arguments` as
    argparse has parsed them, defaults too, `packages` that it imported, with their versions, Python's, and the seed. Written by ingest."""

    run = models.OneToOneField(TrainingRun, on_delete=models.CASCADE, related_name="logged_facts", primary_key=True)
    parameters = models.JSONField(default=dict)
    tags = models.JSONField(default=dict)
    arguments = models.JSONField(default=dict)
    packages = models.JSONField(default=dict)
    python = models.CharField(max_length=40, blank=True, default="")
    seed = models.BigIntegerField(null=True)


class UtilizationSample(models.Model):
    """What the run's slots did and took at a moment, as its machine has measured it; null where that cannot tell.

    `busy_s` of `counted_s` slot-seconds of this attempt so far were work: two rows of an attempt give the share in between, also where rows
    between them are left out. Shares since the row before: of the slot that worked least and of the one that worked most. Bytes: of all
    slots together, and of those that have least and most. `slots`: the same of each (`utilization.Counted`).
    """

    EVERY_S = 5

    run = models.ForeignKey(TrainingRun, on_delete=models.DO_NOTHING, db_constraint=False, related_name="utilization_samples")
    tick = models.BigIntegerField()  # Unix time in units of EVERY_S: there is one row in each, however many write at once
    t = models.FloatField()  # Unix seconds
    busy_s = models.FloatField(null=True)
    counted_s = models.FloatField()
    least_share = models.FloatField(null=True)
    greatest_share = models.FloatField(null=True)
    memory_bytes = models.BigIntegerField(null=True)
    least_bytes = models.BigIntegerField(null=True)
    largest_bytes = models.BigIntegerField(null=True)
    slots = models.JSONField(default=list)

    class Meta:
        ordering = ["tick"]
        constraints = [models.UniqueConstraint(fields=["run", "tick"], name="one_use_per_tick")]


class LatestUtilization(models.Model):
    """What the run's slots did in the last seconds, and the memory that they have: one row a run, written again and again.

    `slots`: a `utilization.Entry` for each slot on which its machine has seen a worker.
    """

    run = models.OneToOneField(TrainingRun, on_delete=models.CASCADE, related_name="latest_utilization", primary_key=True)
    t = models.FloatField()  # Unix seconds
    slots = models.JSONField(default=list)
