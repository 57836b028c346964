"""What a script said when it submitted a run by WMLA's interface, for who asks it back there. Written by wmla.submissions."""

from __future__ import annotations

from django.db import models

from experiments.models.runs import TrainingRun


class Submission(models.Model):
    """`args` as they were sent; `framework` and `instance_group` in WMLA's names."""

    run = models.OneToOneField(TrainingRun, on_delete=models.CASCADE, related_name="submission")
    args = models.TextField()
    framework = models.CharField(max_length=64)
    instance_group = models.CharField(max_length=255, blank=True)
