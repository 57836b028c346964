"""`manage.py backup FOLDER`: everything that the studio needs to go on elsewhere, also while it runs."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from webapp.studio import backup


class Command(BaseCommand):
    help = "Write database, code, data, results and keys into a new folder. The studio may run meanwhile, and jobs may train."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("folder", type=Path, help="a folder that is not there yet")
        parser.add_argument("--previous", type=Path, help="an earlier backup on the same disk: unchanged files are shared with it")
        parser.add_argument("--without-data", action="store_true", help="leave the shared data root out")

    def handle(self, *, folder: Path, previous: Path | None, without_data: bool, **_: Any) -> None:
        try:
            made = backup.make(
                folder.absolute(), previous=previous.absolute() if previous else None, with_data=not without_data, now=timezone.now()
            )
        except backup.BackupRefused as refusal:
            raise CommandError(str(refusal), returncode=2) from None
        except OSError as error:
            raise CommandError(
                f"The backup is not complete, and cannot be restored: {error.strerror or error} ({error.filename or folder}). "
                f"Remove {folder}, make room where it lies, and make it again.",
                returncode=1,
            ) from error
        counts = made.counts
        self.stdout.write(f"{folder}: {counts['files']} files ({counts['bytes'] >> 20} MiB) copied, {counts['shared']} shared.")
        if counts["left_out"]:
            self.stdout.write(f"{counts['left_out']} things were left out: sockets, pipes, folders nested too deep, or gone meanwhile.")
        self.stderr.write("It holds the studio's keys and everybody's results: keep it where only administrators can read it.")
