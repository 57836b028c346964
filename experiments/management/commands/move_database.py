"""`manage.py move_database`: from SQLite to the PostgreSQL of DATABASE_URL, while no studio runs."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from webapp.studio import checks, database_move
from webapp.studio.checks import Refusal

NAMED = 20  # so many of what was changed are listed


class Command(BaseCommand):
    help = "Move all rows of the studio's SQLite database into the empty PostgreSQL database of DATABASE_URL. Nothing is deleted."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--from", dest="source", type=Path, help="the SQLite database (default: db.sqlite3 in EDT_HOME)")

    def handle(self, *, source: Path | None, **_: Any) -> None:
        home = Path(settings.EDT_HOME)
        try:
            checks.make_folders(home)
            with checks.hold(home, address="its database is being moved"):
                moved = database_move.move((source or home / "db.sqlite3").absolute())
        except Refusal as refusal:
            raise CommandError(str(refusal), returncode=2) from None
        for line in moved.changed[:NAMED]:
            self.stdout.write(f"changed, since PostgreSQL cannot hold it as it was: {line}")
        if len(moved.changed) > NAMED:
            self.stdout.write(f"and {len(moved.changed) - NAMED} more")
        filled = sum(1 for rows in moved.rows.values() if rows)
        self.stdout.write(
            f"Moved {sum(moved.rows.values())} rows of {filled} tables. Start the studio, with this DATABASE_URL from now on. "
            f"The SQLite database is kept and used no more."
        )
