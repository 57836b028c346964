"""`manage.py demo` (make demo): starts the studio and shows two people's jobs sharing its slots, live. With `--exit` it ends by itself."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from experiments.files import runfiles
from experiments.management.demonstration import picture, story, verdict
from experiments.management.demonstration.picture import Picture
from experiments.management.demonstration.story import DemonstrationFailed, Story
from experiments.management.demonstration.verdict import Held
from experiments.models import Grant, RunState, TrainingRun
from training_runtime import journal
from webapp.studio.checks import Refusal
from webapp.studio.launch import Options, Running, studio

LOOK_EVERY_S = 0.5
STALLED_S = 300.0


class Command(BaseCommand):
    help = "Start the studio and show how two people's jobs share its slots: all, half and half, all again, and nobody stops."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--port", type=int, default=8000)
        parser.add_argument(
            "--exit", action="store_true", help="end when both have; status 0 only if everything that was promised was seen"
        )
        parser.add_argument("--epochs", type=int, help="of both jobs (default: the example's own, some two minutes in all)")

    def handle(self, *, port: int, exit: bool, epochs: int | None, **_: Any) -> None:
        try:
            with studio(Options(port=port, show_logs=False), prepared=story.put_data) as running:
                if running is not None:
                    self._show(running, Story(epochs=epochs), leave=exit)
                    self._say("\nStopping everything.")
        except Refusal as refusal:
            raise CommandError(str(refusal), returncode=2) from None
        except DemonstrationFailed as failure:
            raise CommandError(str(failure), returncode=1) from None
        except KeyboardInterrupt:  # before anything was started
            sys.exit(130)
        self._say("The studio has stopped.")

    def _show(self, running: Running, tale: Story, *, leave: bool) -> None:
        passwords = story.cast()  # now that pages can be told of it
        heading = [f"EDT Studio is at {running.address}", *(f"  {n:<6} password {p}" for n, p in passwords.items())]
        self._say("\n".join(["", *heading, "Watch the cluster page there, or the picture here. Ctrl-C stops everything.", ""]))
        drawing = Picture(sys.stdout)
        last, moved_at, due, told = "", time.monotonic(), 0.0, False
        while running.supervisor.turn(0.1):
            if told or time.monotonic() < due:
                continue
            due = time.monotonic() + LOOK_EVERY_S
            now = timezone.now()
            tale.turn(now)
            if tale.said:
                self._say(f"{tale.said}\n")
                tale.said = ""
            drawing.show(picture.look(tale.runs, began_at=tale.began_at or now, now=now))
            if tale.over():
                told = True
                self._conclude(tale)
                if leave:
                    return
                self._say(f"\nThe studio goes on at {running.address}. Ctrl-C stops it.")
            elif (seen := tale.progress()) != last:
                last, moved_at = seen, time.monotonic()
            elif time.monotonic() > moved_at + STALLED_S:
                raise DemonstrationFailed(f"Nothing has moved for {STALLED_S / 60:.0f} minutes: {last or 'no run'}.")
        if leave:
            raise DemonstrationFailed("It was interrupted.")

    def _conclude(self, tale: Story) -> None:
        """Raises DemonstrationFailed unless all of it was really seen."""
        alice, bob = tale.runs
        grants = Grant.objects.filter(run__in=tale.runs).values_list("run_id", "granted_at", "released_at")
        seen = verdict.shares((Held(*grant) for grant in grants), first=alice.pk, second=bob.pk)
        steps = [_steps(run) for run in tale.runs]
        times = [[line.t for line in lines] for lines in steps]
        faults = [
            verdict.missing_shares(seen, slots=tale.slots),
            verdict.missing_work(seen, slots=tale.slots, first=times[0], second=times[1]),
            *(_fault(run, lines) for run, lines in zip(tale.runs, steps, strict=True)),
        ]
        if any(faults):
            raise DemonstrationFailed("Not as promised: " + "; ".join(filter(None, faults)) + ".")
        walk = " → ".join(f"{share.first}+{share.second}" for share in seen if share.first + share.second == tale.slots)
        self._say(f"\nBoth completed. Slots of alice+bob: {walk}. No step was lost or repeated.")

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()


def _steps(run: TrainingRun) -> list[journal.Line]:
    """The lines of its journal that tell of a step."""
    lines = journal.follow(runfiles.folder(run) / journal.FILE_NAME)
    return [line for line in lines if isinstance(line.event, journal.Train)]


def _fault(run: TrainingRun, lines: Sequence[journal.Line]) -> str:
    """What is wrong with a run that has ended; empty if nothing is."""
    if run.state != RunState.COMPLETED:
        return f"{run.submitted_by}'s run {run.state}"
    steps = [line.event.step for line in lines if isinstance(line.event, journal.Train)]
    fault = verdict.missing_steps(steps, total=run.total_steps() or 0)
    return f"in {run.submitted_by}'s run {fault}" if fault else ""
