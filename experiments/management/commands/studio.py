"""`manage.py studio` (make up): starts the whole studio, watches it, and stops it on Ctrl-C. The work is done in webapp.studio."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from experiments.accounts.passwords import give_password
from experiments.models import User
from webapp.studio.checks import Refusal
from webapp.studio.launch import Options, studio

ADMINISTRATOR = "admin"


class Command(BaseCommand):
    help = "Start the studio: broker, node host and link, control worker and web. Ctrl-C stops them; running jobs go on at the next start."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: only this machine)")
        parser.add_argument("--port", type=int, default=8000)
        parser.add_argument("--slots", type=int, help="slots of this machine (default: EDT_SLOTS, one per GPU, or 4 CPU slots)")

    def handle(self, *, host: str, port: int, slots: int | None, **_: Any) -> None:
        if slots is not None and slots < 1:
            raise CommandError("--slots must be at least 1.", returncode=2)
        try:
            self._run(Options(host=host, port=port, slots=slots))
        except Refusal as refusal:
            raise CommandError(str(refusal), returncode=2) from None
        except KeyboardInterrupt:  # before anything was started
            sys.exit(130)

    def _run(self, options: Options) -> None:
        with studio(options, prepared=self._first_account) as running:
            if running is None:
                return
            self.stdout.write(f"\nEDT Studio is at {running.address}\n")
            if self.password:
                self.stdout.write(f"Log in as {ADMINISTRATOR} with the password {self.password} (shown only this once).\n")
            self.stdout.write("Ctrl-C stops it; running jobs are suspended and go on at the next start.\n\n")
            self.stdout.flush()
            while running.supervisor.turn():
                pass
            suspends = "running jobs are suspended first (Ctrl-C again: do not wait)"
            self.stdout.write(f"\nStopping: {'running jobs of this machine train on' if running.supervisor.keeps_host else suspends}.\n")
            self.stdout.flush()
        self.stdout.write("The studio has stopped.\n")

    password = ""

    def _first_account(self) -> None:
        """An empty studio gets an administrator; his password is generated and shown once."""
        if not User.objects.exists():
            self.password = give_password(ADMINISTRATOR, staff=True)
