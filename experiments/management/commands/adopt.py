"""`manage.py adopt`: say that this database and this EDT_HOME belong together, where the studio refuses to start because it cannot know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from django.utils import timezone

from experiments.files import pruning
from experiments.models import TrainingRun
from webapp.studio import prepare


class Command(BaseCommand):
    help = "Bind this database and this EDT_HOME to each other. Nothing is deleted."
    requires_system_checks = []

    def handle(self, **_: Any) -> None:
        prepare.database(adopt=True)
        stray = len(pruning.orphans(timezone.now()))
        self.stdout.write(
            f"{Path(settings.EDT_HOME)} and this database, with {TrainingRun.objects.count()} runs, belong together from now on. "
            f"{stray} things in the folder belong to nothing in the database; they are kept (manage.py prune --dry-run lists them)."
        )
