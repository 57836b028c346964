"""`manage.py doctor`: looks at the studio, changes nothing, and says what is wrong and what to do."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError
from django.utils import timezone

from webapp.doctor import of_cluster, of_database, of_files, of_folder, of_settings
from webapp.doctor.findings import Finding
from webapp.doctor.of_settings import SettingFacts


class Command(BaseCommand):
    help = (
        "Look at settings, folder, database, files and machines, and say what is wrong. Nothing is changed; the studio may run meanwhile."
    )
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--read", action="store_true", help="also read code, models and data, and compare what can be; takes a while")

    def handle(self, *, read: bool, **_: Any) -> None:
        now = timezone.now()
        found = [
            *self._part("settings", lambda: of_settings.check(_settings())),
            *self._part("folder", lambda: of_folder.check(of_folder.look(Path(settings.EDT_HOME)))),
        ]
        database = self._part("database", lambda: of_database.check(now))
        if not any(each.is_error for each in database) and of_database.is_current():
            found += self._part("cluster", lambda: of_cluster.check(now))
            found += self._part("files", lambda: of_files.check(now, read=read))
        found += database
        errors = sum(each.is_error for each in found)
        if errors:
            raise CommandError(f"{errors} things are wrong, {len(found) - errors} are worth a look.", returncode=1)
        self.stdout.write(f"{len(found)} things are worth a look." if found else "All is well.")

    def _part(self, name: str, look: Callable[[], Iterable[Finding]]) -> list[Finding]:
        """What is found there, each said as soon as it is."""
        found = []
        try:
            for each in look():
                found.append(each)
                self._say(name, each)
        except DatabaseError as error:
            found.append(Finding(f"The database cannot be used: {str(error).strip().splitlines()[0]}. Check DATABASE_URL and EDT_HOME."))
            self._say(name, found[-1])
        if not found:
            self.stdout.write(f"ok       {name}")
        return found

    def _say(self, name: str, each: Finding) -> None:
        self.stdout.write(f"{'error  ' if each.is_error else 'warning'}  {name}: {each.words}")


def _settings() -> SettingFacts:
    return SettingFacts(
        names=tuple(os.environ),
        public_url=settings.EDT_PUBLIC_URL,
        hosts=tuple(settings.ALLOWED_HOSTS),
        origins=tuple(settings.CSRF_TRUSTED_ORIGINS),
        proxies=tuple(settings.EDT_TRUSTED_PROXIES),
        https=settings.SESSION_COOKIE_SECURE,
        debug=settings.DEBUG,
        sends_mail=settings.EDT_EMAIL,
    )
