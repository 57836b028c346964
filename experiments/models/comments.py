"""What people say to each other about a run."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from experiments.models.projects import User
from experiments.models.runs import TrainingRun

COMMENT_LIMIT = 4000


class RunComment(models.Model):
    """Markdown, by whoever may write in the run's project. Written by services.comments; what is deleted is kept for EDT_TRASH_DAYS,
    shown to nobody, and removed by pruning. `author`: null where that person's account has been deleted, and of a run that was imported:
    `imported_author` is who wrote it there."""

    run = models.ForeignKey(TrainingRun, on_delete=models.CASCADE, related_name="comments")
    author = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    imported_author = models.CharField(max_length=150, blank=True)
    text = models.TextField(max_length=COMMENT_LIMIT)
    at = models.DateTimeField()
    edited_at = models.DateTimeField(null=True)
    deleted_at = models.DateTimeField(null=True)
    idempotency_key = models.UUIDField(null=True, unique=True)  # of the form that made it: sent twice, it makes one

    class Meta:
        ordering = ["at", "id"]
        indexes = [models.Index(fields=["deleted_at"], condition=~Q(deleted_at=None), name="deleted_comments")]

    def __str__(self) -> str:
        return f"comment {self.pk} on run {self.run_id}"
