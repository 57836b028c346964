"""Notifications: what a person is told in the page, and what is sent on by e-mail and to webhooks."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from experiments.models.experiments import Experiment
from experiments.models.projects import Project, User
from experiments.models.runs import TrainingRun


class NotificationKind(models.TextChoices):
    """What can be told. The names stand in webhooks' bodies."""

    COMPLETED = "run.completed", "A run of mine has completed"
    FAILED = "run.failed", "A run of mine has failed"
    SUSPENDED = "run.suspended", "A run of mine has lost all its slots"
    STOPPED = "run.stopped", "Somebody else has stopped a run of mine"
    SEARCH = "search.ended", "A search for hyperparameters of mine has ended (of its runs I am not told one by one)"
    NOT_FINITE = "run.not_finite", "A metric of a run of mine has become NaN or infinite"
    THRESHOLD = "run.threshold", "A metric has crossed a threshold that I set"
    CHANGED = "run.changed", "Somebody else has changed a run of mine (priority, slots, pause)"
    MENTIONED = "run.mentioned", "Somebody has named me in a comment"
    SLOT = "cluster.slot", "A slot was taken out of service because it looks ill (told to administrators of the cluster)"
    MEMBER = "project.member", "I was added to a project, or my role has changed"


class Notification(models.Model):
    """Something that a person is told. Written by notifications; `read_at` by services.notifications."""

    person = models.ForeignKey(User, on_delete=models.CASCADE, related_name="notifications")
    kind = models.CharField(max_length=32, choices=NotificationKind)
    at = models.DateTimeField()
    text = models.CharField(max_length=600)
    run = models.ForeignKey(TrainingRun, null=True, on_delete=models.CASCADE, related_name="+")
    project = models.ForeignKey(Project, null=True, on_delete=models.CASCADE, related_name="+")
    read_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-at", "-id"]
        indexes = [
            models.Index(fields=["person", "-at"]),
            models.Index(fields=["person"], condition=Q(read_at=None), name="unread_notifications"),
        ]


class Threshold(models.Model):
    """A person wants to be told when a curve crosses a value."""

    person = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    group = models.CharField(max_length=8, choices=[("train", "Train"), ("test", "Test")])
    name = models.CharField(max_length=200)
    above = models.BooleanField()
    threshold = models.FloatField()

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.group} {self.name} {'above' if self.above else 'below'} {self.threshold:g}"


class ExperimentWatch(Threshold):
    """For the runs that an experiment will have: each gets a MetricWatch like it when it is made. Written by services.watches."""

    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, related_name="watches")

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["person", "experiment", "group", "name", "above", "threshold"], name="one_of_an_experiment")
        ]


class MetricWatch(Threshold):
    """A threshold of one run, told once. Written by services.watches, `told_*` by notifications. `inherited`: from the run's experiment."""

    run = models.ForeignKey(TrainingRun, on_delete=models.CASCADE, related_name="watches")
    inherited = models.BooleanField(default=False)
    told_at = models.DateTimeField(null=True)
    told_step = models.BigIntegerField(null=True)
    told_value = models.FloatField(null=True)

    class Meta:
        ordering = ["id"]
        indexes = [models.Index(fields=["run"], condition=Q(told_at=None), name="waiting_watches")]
        constraints = [models.UniqueConstraint(fields=["person", "run", "group", "name", "above", "threshold"], name="one_watch_each")]

    def is_crossed_by(self, value: float | None) -> bool:
        return value is not None and (value > self.threshold if self.above else value < self.threshold)


class Webhook(models.Model):
    """An address that is told of a person's or of a project's events, signed with its secret."""

    person = models.ForeignKey(User, null=True, on_delete=models.CASCADE, related_name="webhooks")
    project = models.ForeignKey(Project, null=True, on_delete=models.CASCADE, related_name="webhooks")
    url = models.CharField(max_length=500)
    secret = models.CharField(max_length=64)
    kinds = models.JSONField(default=list)
    active = models.BooleanField(default=True)
    failures = models.PositiveIntegerField(default=0)  # deliveries given up, one after the other
    last_outcome = models.CharField(max_length=200, blank=True)
    last_at = models.DateTimeField(null=True)
    created_by = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(condition=Q(person=None) ^ Q(project=None), name="webhook_of_a_person_or_a_project"),
        ]


class Delivery(models.Model):
    """A message on its way out: to a webhook, or to a person by e-mail where that is empty. Written by notifications and deliveries."""

    webhook = models.ForeignKey(Webhook, null=True, on_delete=models.CASCADE, related_name="deliveries")
    person = models.ForeignKey(User, null=True, on_delete=models.CASCADE, related_name="+")
    body = models.JSONField()
    created_at = models.DateTimeField()
    attempts = models.PositiveIntegerField(default=0)
    next_at = models.DateTimeField()
    done_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=200, blank=True)

    class Meta:
        ordering = ["id"]
        indexes = [models.Index(fields=["next_at"], condition=Q(done_at=None), name="due_deliveries")]
