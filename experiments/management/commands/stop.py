"""`manage.py stop`: ends the studio that runs with this EDT_HOME, as Ctrl-C does; or all of it but the node host, for an upgrade while runs
train; or the host alone, which the studio starts again as the release that is installed now. The work is done in webapp.studio."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from webapp.studio import stopping
from webapp.studio.checks import Refusal

KEEP_TRAINING = "leave the node host and its runs; the next start takes them over, also as the next release"
HOST_ONLY = "end the node host alone: a studio that runs starts it again as the release that is installed, and its runs train on"


class Command(BaseCommand):
    help = "Stop the studio that runs with this EDT_HOME; running jobs are suspended, unless --keep-training."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        which = parser.add_mutually_exclusive_group()
        which.add_argument("--keep-training", action="store_true", help=KEEP_TRAINING)
        which.add_argument("--host-only", action="store_true", help=HOST_ONLY)

    def handle(self, *, keep_training: bool, host_only: bool, **_: Any) -> None:
        home = Path(settings.EDT_HOME)
        try:
            if host_only:
                self.stdout.write(f"The node host (process {stopping.end_host(home, settings.EDT_NODE)}) has ended; its runs train on.\n")
                return
            stopping.end_studio(home, keep_host=keep_training)
        except Refusal as refusal:
            raise CommandError(str(refusal), returncode=2) from None
        self.stdout.write(f"The studio has stopped{'; the node host and its runs go on' if keep_training else ''}.\n")
