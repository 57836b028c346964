"""`manage.py restore FOLDER`: put a backup into an empty EDT_HOME and an empty database."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from webapp.studio import restore
from webapp.studio.backup import BackupRefused
from webapp.studio.checks import Refusal


class Command(BaseCommand):
    help = "Put a backup into an empty EDT_HOME and an empty database. Jobs that ran go on from their checkpoints when the studio starts."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("folder", type=Path, help="what `manage.py backup` wrote")

    def handle(self, *, folder: Path, **_: Any) -> None:
        try:
            made, counts = restore.put_back(folder.absolute(), now=timezone.now())
        except (BackupRefused, Refusal) as refusal:
            raise CommandError(str(refusal), returncode=2) from None
        except OSError as error:
            raise CommandError(
                f"Not all was restored: {error.strerror or error} ({error.filename or settings.EDT_HOME}). "
                f"Remove {settings.EDT_HOME}, make room, and restore anew.",
                returncode=1,
            ) from error
        self.stdout.write(f"Restored the backup of {made.made_at} (version {made.version}): {counts.files} files. Start the studio.")
