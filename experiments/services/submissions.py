"""What a submission to WMLA's interface said of its run, kept as it was sent: the interface shows it again."""

from __future__ import annotations

from experiments.models import Submission, TrainingRun

GROUP_LIMIT = 255


def keep_submission(run: TrainingRun, *, args: str, framework: str, instance_group: str) -> Submission:
    """`instance_group` is cut to what is kept of it."""
    group = instance_group.replace("\0", "")[:GROUP_LIMIT]
    return Submission.objects.create(run=run, args=args, framework=framework, instance_group=group)
