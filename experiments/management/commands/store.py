"""`manage.py store`: how the object store stands (EDT_STORE), and what can be done about it by hand."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from experiments.files.store import checking, copies, things, turns
from experiments.files.store.objects import StoreAway
from experiments.ops import clock
from experiments.selectors import store as selected

BUSY = "The studio is at work with the object store at this moment: try again in a minute."


class Command(BaseCommand):
    help = "The object store behind the studio's files: what waits for it; copy now; fetch what is missing here; check what is there."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("do", choices=("status", "copy", "fetch", "check", "adopt"))
        parser.add_argument("--read", action="store_true", help="with check: read and compare every object, which takes a while")

    def handle(self, *, do: str, read: bool, **_: Any) -> None:
        if not copies.is_on():
            raise CommandError("There is no object store: set EDT_STORE, such as EDT_STORE=s3://bucket/studio.", returncode=2)
        try:
            match do:
                case "check":
                    self._check(read=read)
                case "status":
                    self._status()
                case "copy":
                    self._copy()
                case "fetch":
                    self._fetch()
                case "adopt":
                    self._adopt()
        except StoreAway as error:
            turns.say_away(error)
            raise CommandError(str(error), returncode=2) from None

    def _status(self) -> None:
        found = selected.store_status(clock.now())
        self.stdout.write(f"{found.url}: {found.words}")
        if found.state.away_since is not None:
            self.stdout.write(f"Since {found.state.away_since:%Y-%m-%d %H:%M} UTC: {found.state.error}")
        for row in found.rows:
            since = f", since {row.since:%Y-%m-%d %H:%M}" if row.since else ""
            self.stdout.write(f"{row.kind}: {row.copied} there ({row.size}), {row.waits} wait{since}")
        for each in found.failed:
            self.stdout.write(f"{each.kind} {each.key}: {each.error}")

    def _copy(self) -> None:
        """All that waits, until nothing does."""
        while turns.turn():
            self.stdout.write(f"{selected.store_status(clock.now()).waits} things wait.")
        found = selected.store_status(clock.now())
        if found.state.error:
            raise CommandError(found.state.error, returncode=2)
        self.stdout.write(found.words)
        if found.waits:
            raise CommandError("Not all was copied: see `manage.py store status`, or try again in a minute.", returncode=1)

    def _fetch(self) -> None:
        """What the database has and EDT_HOME has not; also where another studio writes to the store."""
        with turns.alone() as allowed:
            if not allowed:
                raise CommandError(BUSY, returncode=2)
            store = turns.opened(to_write=False)
            missing = [thing for thing in things.every() if not thing.local_path.exists()]
            came, left = 0, 0
            for number, thing in enumerate(missing, 1):
                is_well = turns.bring(store, thing, over=lambda: False)
                is_here = thing.local_path.exists()  # else it never had files: a run that was stopped before it began
                came, left = came + is_here, left + (not is_well)
                if is_here or not is_well:
                    self.stdout.write(f"{number} of {len(missing)}: {thing.kind} {thing.key}{'' if is_here else ' did not come'}")
        self.stdout.write(f"{came} things came back." if came or left else "Nothing is missing here.")
        if left:
            raise CommandError(f"{left} things are missing here and could not be brought back: see `manage.py store status`.", returncode=1)

    def _check(self, *, read: bool) -> None:
        with turns.alone() as allowed:
            if not allowed:
                raise CommandError(BUSY, returncode=2)
            problems = 0
            for words in checking.check(turns.opened(), read=read):
                problems += 1
                self.stdout.write(words)
        if problems:
            raise CommandError(f"{problems} things are not as they should be.", returncode=1)
        self.stdout.write("What is said to be in the object store is there." if not read else "All of it is there, as it was.")

    def _adopt(self) -> None:
        turns.adopt()
        self.stdout.write("From now on this studio writes to the object store, and no other.")
