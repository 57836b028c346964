"""The default driver logger and what a person sees: one line a second at most in a log, a line in place in a terminal, and every
change of members.
"""

from __future__ import annotations

import sys
import time

from training_runtime.elastic.job import Job

LOG_EVERY_S = 1.0
DRAW_EVERY_S = 0.2


class Console:
    """A logger callback (third form) that prints. In a terminal it also draws the line of progress."""

    def __init__(self, job: Job, *, in_studio: bool) -> None:
        self._job, self._prefix = job, "" if in_studio else "edt: "
        self._tty = not in_studio and sys.stdout.isatty()
        self._shown = 0.0
        self._drawn = False

    def log_train_metrics(self, metrics: dict[str, float], iteration: int, epoch: int, workers: int) -> None:
        now = time.monotonic()
        if now - self._shown < (DRAW_EVERY_S if self._tty else LOG_EVERY_S):
            return
        self._shown = now
        values = "  ".join(f"{name} {value:.4g}" for name, value in metrics.items())
        line = f"{self._prefix}epoch {epoch}/{self._job.epochs}  batches {iteration}  {values}  {workers} worker{'s' * (workers != 1)}"
        if self._tty:
            sys.stdout.write(f"\r\x1b[2K{line}")
            sys.stdout.flush()
            self._drawn = True
        else:
            print(line, flush=True)

    def say(self, line: str) -> None:
        """An event: a line of its own."""
        self.end()
        print(f"{self._prefix}{line}", flush=True)

    def end(self) -> None:
        if self._drawn:
            sys.stdout.write("\n")
            self._drawn = False
