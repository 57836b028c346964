"""Training runs: one execution each, with its state, its wishes (slots, priority), its progress and what the planner last said of it."""

from __future__ import annotations

import datetime as dt
import uuid

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q

from experiments.models.definitions import MAX_SLOTS_LIMIT, DefinitionVersion
from experiments.models.experiments import Experiment
from experiments.models.projects import User

DEFAULT_PRIORITY = 5000
RUN_NAME_LIMIT = 160


class RunState(models.TextChoices):
    QUEUED = "queued", "Queued"  # holds nothing, never has
    STARTING = "starting", "Starting"  # has slots or a driver, no step yet
    RUNNING = "running", "Running"  # steps
    SUSPENDED = "suspended", "Suspended"  # its slots went elsewhere or it was paused; its state is kept
    STOPPING = "stopping", "Stopping"  # asked to end
    COMPLETED = "completed", "Completed"
    FAILED = "failed", "Failed"
    STOPPED = "stopped", "Stopped"  # ended on request


ENDED = (RunState.COMPLETED, RunState.FAILED, RunState.STOPPED)
LIVE = tuple(s for s in RunState if s not in ENDED)
TRAINED = "trained"  # outcome of a run whose steps are all done: the rest of its script needs no slot


def new_folder() -> str:
    """A name that no other run has, whatever the database has forgotten. Runs of earlier versions are called by their number."""
    return str(uuid.uuid4())


class TrainingRun(models.Model):
    """One execution of a definition version.

    Its state is written by `states.transition`, its wishes by services, the planner's word by scheduling, its progress by ingest.
    """

    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, related_name="runs")
    version = models.ForeignKey(DefinitionVersion, on_delete=models.PROTECT, related_name="runs")
    outside = models.BooleanField(default=False)  # not started here: somebody's own machine logs it (services.outside); no plan knows it
    folder = models.CharField(max_length=36, unique=True, default=new_folder, editable=False)  # its name below EDT_HOME/runs
    name = models.CharField(max_length=RUN_NAME_LIMIT)
    submitted_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="runs")
    submitted_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)  # first step; of a run that trains none with FabricModel, when it got its slots
    ended_at = models.DateTimeField(null=True)

    state = models.CharField(max_length=16, choices=RunState, default=RunState.QUEUED)
    state_reason = models.TextField(blank=True)
    tell_at = models.DateTimeField(null=True)  # when people are to be told of the state, if it is still the same: of a suspension
    command = models.CharField(max_length=2000)
    data_folder = models.CharField(max_length=500, blank=True)
    environment = models.JSONField(default=dict, blank=True)
    idempotency_key = models.UUIDField(null=True)  # of the form that started it: sent twice, it starts one
    position = models.PositiveIntegerField(default=0)  # of its definition in the experiment
    continues = models.BigIntegerField(null=True)  # the run whose last checkpoint it begins with, which may have been deleted since
    reproduces = models.BigIntegerField(null=True)  # the run that it repeats, to see whether the same comes out; may be deleted too

    # what people write beside it: written by services
    tags = models.JSONField(default=list, blank=True)
    note = models.TextField(max_length=4000, blank=True)

    # wishes: written by services
    priority = models.PositiveIntegerField(default=DEFAULT_PRIORITY, validators=[MinValueValidator(1), MaxValueValidator(10_000)])
    priority_agreed = models.PositiveIntegerField(default=0)  # up to which an administrator has agreed
    min_slots = models.PositiveIntegerField(default=1, validators=[MinValueValidator(1)])
    max_slots = models.PositiveIntegerField(default=4, validators=[MinValueValidator(1), MaxValueValidator(MAX_SLOTS_LIMIT)])
    paused = models.BooleanField(default=False)
    any_kind = models.BooleanField(default=False)  # it may go on on machines of another kind than it has trained on (machine_pools.kind)
    checkpoints = models.JSONField(default=dict, blank=True)  # which are kept (checkpoint_policy.Policy); empty: all
    stop_requested_at = models.DateTimeField(null=True)
    stop_reason = models.CharField(max_length=500, blank=True)

    # the planner's word: written by scheduling
    # where its driver lives, from the first promise of slots on
    head_node = models.ForeignKey("experiments.Node", null=True, on_delete=models.PROTECT, related_name="runs")
    # set while it holds nothing and is to go on elsewhere: the number of its head node's snapshot when that was asked to let it go
    leave_revision = models.BigIntegerField(null=True)
    plan_reason = models.TextField(blank=True)
    queue_position = models.PositiveIntegerField(null=True)
    expected_start_s = models.FloatField(null=True)
    moved_at = models.DateTimeField(null=True)  # when its driver last got a machine
    # of the machine that it trained on last (machine_pools.kind), which another has to be of, unless any_kind
    kind = models.CharField(max_length=1000, blank=True)
    waits_since = models.DateTimeField(null=True)  # holds nothing although it wants something
    favoured_at = models.DateTimeField(null=True)  # when it was last let first because it had waited too long

    # progress: written by ingest
    engines = models.PositiveIntegerField(null=True)  # V
    batch_size = models.PositiveIntegerField(null=True)
    epochs = models.PositiveIntegerField(null=True)
    steps_per_epoch = models.PositiveIntegerField(null=True)
    parameters = models.BigIntegerField(null=True)
    step = models.BigIntegerField(default=0)
    epoch = models.PositiveIntegerField(default=0)
    step_rate = models.FloatField(null=True)  # steps a second, recent
    last_step_at = models.DateTimeField(null=True)
    bar_done = models.FloatField(null=True)  # what its script's own progress bar says, of bar_total units
    bar_total = models.FloatField(null=True)
    bar_left_s = models.FloatField(null=True)
    bar_label = models.CharField(max_length=200, blank=True)
    bar_is_whole = models.BooleanField(default=False, db_default=False)  # it is of all of the training: its library's trainer says it
    workers = models.PositiveIntegerField(default=0)
    final_metrics = models.JSONField(default=dict, blank=True)
    error_message = models.TextField(blank=True)
    error_traceback = models.TextField(blank=True)
    outcome = models.CharField(max_length=16, blank=True)  # of the journal's end, or TRAINED; the state follows when the process is gone
    exact = models.BooleanField(
        null=True
    )  # whether its results depend on its script, data and seed alone, by what was seen; null: nothing yet
    exact_checked = models.BooleanField(default=False)  # its first engine was computed twice, and came out the same
    exact_reasons = models.JSONField(default=list, blank=True)  # why not
    attempt = models.PositiveIntegerField(default=1)
    exit_code = models.IntegerField(null=True)
    prologue_s = models.FloatField(
        null=True
    )  # what its script took, the last time, from getting a machine until train(): written by ingest

    # what its folder takes of the disk: written by diskuse
    disk_bytes = models.BigIntegerField(null=True)
    disk_files = models.PositiveIntegerField(null=True)  # and folders
    disk_counted_at = models.DateTimeField(null=True)

    # how long its slots were at work, where its machine can tell: written by fleet
    busy_s = models.FloatField(null=True)  # slot-seconds, of all attempts; null: not known
    busy_counted_s = models.FloatField(null=True, default=0)  # the host's count of this attempt when last heard of; null: it cannot tell

    class Meta:
        ordering = ["-submitted_at", "-id"]
        indexes = [
            models.Index(fields=["state"]),
            models.Index(fields=["experiment", "-submitted_at"]),
            models.Index(fields=["-submitted_at", "-id"], name="newest_runs"),
            models.Index(fields=["ended_at"], name="runs_by_end"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["idempotency_key", "position"], name="one_run_per_request"),
            models.CheckConstraint(condition=Q(min_slots__gte=1) & Q(max_slots__gte=F("min_slots")), name="run_slots_in_order"),
            models.CheckConstraint(condition=Q(priority__gte=1) & Q(priority__lte=10_000), name="run_priority_in_range"),
        ]

    def __str__(self) -> str:
        return self.name

    def is_live(self) -> bool:
        return self.state in LIVE

    def total_steps(self) -> int | None:
        return self.epochs * self.steps_per_epoch if self.epochs and self.steps_per_epoch else None

    def global_batch(self) -> int | None:
        """Samples of a step, whatever the number of workers: each of the engines takes batch_size of them."""
        return self.batch_size * self.engines if self.batch_size and self.engines else None

    def bar(self) -> dict[str, object] | None:
        """What its script's own progress bar says: units done and in all, seconds left, and its label; None where it draws none, and of a
        run that has ended where its last one was done and there is a step to show."""
        if self.bar_done is None or not self.bar_total or (not self.is_live() and self.step and self.bar_done >= self.bar_total):
            return None
        return {"done": self.bar_done, "total": self.bar_total, "left": self.bar_left_s, "label": self.bar_label}

    def counted_priority(self, ceiling: int, asked: int | None = None) -> int:
        """The priority that the planner goes by, where people may have up to `ceiling`; of `asked`, where that is to be its priority."""
        return min(self.priority if asked is None else asked, max(ceiling, self.priority_agreed))

    def remaining_s(self) -> float | None:
        """Seconds to the end, which plans go by: at the recent rate of its steps, else as its library's trainer says; None while nobody
        knows. (What a progress bar says may be of one epoch.)"""
        total = self.total_steps()
        if not total:
            return self.bar_left_s if self.bar_is_whole else None
        return max(0, total - self.step) / self.step_rate if self.step_rate else None

    def left_s(self) -> float | None:
        """The same for people, who are told what the script's own progress bar says where nobody counts its steps."""
        return self.remaining_s() if self.total_steps() else self.bar_left_s

    def duration(self, now: dt.datetime) -> dt.timedelta | None:
        """From the first step to the end or `now`, none where the clock was put back meanwhile; None before the first step."""
        return max(dt.timedelta(0), (self.ended_at or now) - self.started_at) if self.started_at else None

    def average_rate(self) -> float | None:
        """Steps a second from the first step to the end, with all that came between them, as its chart shows them; None while it lives."""
        seconds = (self.ended_at - self.started_at).total_seconds() if self.started_at and self.ended_at else 0.0
        return self.step / seconds if self.step and seconds > 0 else None
