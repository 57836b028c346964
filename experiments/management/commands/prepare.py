"""`manage.py prepare`: bring database and static files up to date, start nothing. For set-ups that run the processes themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from webapp.studio import checks, prepare


class Command(BaseCommand):
    help = "Bring the database tables and the static files up to date; start nothing."
    requires_system_checks = []

    def handle(self, **_: Any) -> None:
        home = Path(settings.EDT_HOME)
        try:
            checks.make_folders(home)
            database, static_files = prepare.database(), prepare.static_files(home)
            prepare.own_token(home)
            changed = [what for what, done in (("database", database), ("static files", static_files)) if done]
        except checks.Refusal as refusal:
            raise CommandError(str(refusal), returncode=2) from None
        self.stdout.write(f"Brought up to date: {', '.join(changed)}." if changed else "Everything was up to date.")
