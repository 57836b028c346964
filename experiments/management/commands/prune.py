"""`manage.py prune`: remove what was deleted, now instead of within the hour, and look at what belongs to nothing."""

from __future__ import annotations

import datetime as dt
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError
from django.utils import timezone

from experiments.files import pruning, removal
from experiments.ops import installation
from experiments.services import deletion


class Command(BaseCommand):
    help = "Remove what was deleted and what has expired. What belongs to nothing in the database is listed, and kept."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="say what would be removed, and what belongs to nothing; remove nothing")
        parser.add_argument("--empty-trash", action="store_true", help="do not wait for EDT_TRASH_DAYS: make room now")
        parser.add_argument("--orphans", action="store_true", help="also remove what belongs to nothing in the database, for good")
        parser.add_argument("--most", type=int, default=100, help="with --orphans: refuse where there are more (default: 100)")

    def handle(self, *, dry_run: bool, empty_trash: bool, orphans: bool, most: int, **_: Any) -> None:
        now = timezone.now()
        if not installation.matches():
            raise CommandError("EDT_HOME and the database do not belong together: nothing is removed. See manage.py adopt.", returncode=2)
        kept = dt.timedelta(0) if empty_trash else dt.timedelta(days=settings.EDT_TRASH_DAYS)
        found = pruning.orphans(now)
        if dry_run:
            for stone in pruning.due(now, kept):
                self.stdout.write(f"deleted by {stone.by or 'the studio'} on {stone.at:%Y-%m-%d}: {stone.kind} {stone.key}")
            for path in found:
                self.stdout.write(f"belongs to nothing: {path}")
            self.stdout.write("Nothing was removed.")
            return
        if orphans and len(found) > most:
            raise CommandError(
                f"{len(found)} things belong to nothing, which is more than {most}: is this the right database? Look at them with "
                f"--dry-run, then give --most {len(found)}. Nothing was removed.",
                returncode=2,
            )
        try:
            stuck = self._remove(now, kept, found if orphans else [])
        except (OSError, OperationalError) as error:
            raise CommandError(
                f"Not all was removed: {str(error).strip().splitlines()[0]}. It can be tried again.", returncode=1
            ) from error
        if found and not orphans:
            self.stdout.write(
                f"{len(found)} things belong to nothing in the database and are kept: --dry-run lists them, --orphans removes them."
            )
        if stuck is not None:
            raise CommandError(f"A deleted project could not be removed, all else was: {stuck}") from stuck

    def _remove(self, now: dt.datetime, kept: dt.timedelta, strays: list[Path]) -> Exception | None:
        """What keeps a deleted project from being removed, if anything does."""
        stuck = _deleted_projects(now)
        pruning.prune(now)
        while pruning.clear(now, kept=kept):
            pass
        for path in strays:
            removal.remove(path)
            self.stdout.write(f"removed {path}")
        return stuck


def _deleted_projects(now: dt.datetime) -> Exception | None:
    """Remove what is left of deleted projects; what came between, which keeps nothing else from being removed."""
    try:
        while deletion.go_on(now):
            pass
    except Exception as error:
        return error
    return None
