"""What a person sees of a training: in a log one line a second at most, in a terminal a bar of progress in place; and a line for every
change of members, validation and warning.

The lines of the log are the default driver logger: a script's own replaces them. The bar and the events it does not.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections import deque
from collections.abc import Mapping

from training_runtime.elastic.job import Job
from training_runtime.journal import Train

LOG_EVERY_S = 1.0
DRAW_EVERY_S = 0.1
RATE_OVER_S = 5.0
BAR_WIDTH = 20
_CLEAR = "\r\x1b[2K"
_PLAIN = str.maketrans("━─", "=-")


class Console:
    """Prints to the standard output. Its first two methods are those of a driver logger."""

    def __init__(self, job: Job, *, in_studio: bool) -> None:
        self._job, self._prefix = job, "" if in_studio else "edt: "
        self._tty = not in_studio and sys.stdout.isatty()
        self._steps, self._shown, self._line = 0, 0.0, ""
        self._past: deque[tuple[float, int]] = deque()

    def log_train_metrics(self, metrics: dict[str, float], iteration: int, epoch: int, workers: int) -> None:
        """In a log: a line with the means of the epoch so far, LOG_EVERY_S apart at least. In a terminal nothing, as the bar says it."""
        now = time.monotonic()
        if not self._tty and now - self._shown >= LOG_EVERY_S:
            self._shown = now
            held = f"{workers} worker{'s' * (workers != 1)}"
            line = f"{self._prefix}epoch {epoch}/{self._job.epochs}  batches {iteration}  {values(metrics)}  {held}"
            print(writable(line), flush=True)

    def begin(self, steps: int) -> None:
        """The training has so many steps."""
        self._steps = steps

    def trained(self, event: Train, means: Mapping[str, float], generation: int) -> None:
        """A step is done; `means` over its epoch so far."""
        if not self._tty:
            return
        now = time.monotonic()
        self._past.append((now, event.step))
        while now - self._past[0][0] > RATE_OVER_S and len(self._past) > 2:
            self._past.popleft()
        if now - self._shown >= DRAW_EVERY_S or event.step == self._steps:
            self._shown = now
            (t0, first), (t1, last) = self._past[0], self._past[-1]
            rate = (last - first) / (t1 - t0) if t1 > t0 else 0.0
            self._line = bar(event, means, steps=self._steps, epochs=self._job.epochs, rate=rate, generation=generation)
            self._draw()

    def _draw(self) -> None:
        width = shutil.get_terminal_size().columns - 1
        sys.stdout.write(writable(_CLEAR + self._line[:width]))
        sys.stdout.flush()

    def say(self, line: str) -> None:
        """An event: a line of its own, above the bar."""
        sys.stdout.write(writable(f"{_CLEAR * bool(self._line)}{self._prefix}{line}\n"))
        if self._line:
            self._draw()
        sys.stdout.flush()

    def end(self) -> None:
        """Leave the bar as it is and go below it."""
        if self._line:
            sys.stdout.write("\n")
            sys.stdout.flush()
        self._line = ""


def bar(event: Train, means: Mapping[str, float], *, steps: int, epochs: int, rate: float, generation: int) -> str:
    """The line of progress; what matters most comes first, as a narrow terminal cuts the rest. `rate` in steps a second, 0: unknown."""
    part = event.step / steps
    done = int(BAR_WIDTH * part)
    pace = f"{rate:.3g} steps/s  ETA {clock((steps - event.step) / rate)}" if rate else "-- steps/s  ETA --"
    held = f"{event.workers} worker{'s' * (event.workers != 1)} (generation {generation})"
    drawn = "━" * done + "─" * (BAR_WIDTH - done)
    return f"epoch {event.epoch}/{epochs} {drawn} {part:4.0%}  {event.step}/{steps}  {pace}  {held}  {values(means)}"


def writable(text: str) -> str:
    """In characters that the output has: one set to Latin-1, say, has no lines to draw with, and that ends no training."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_PLAIN).encode(encoding, "replace").decode(encoding)
    return text


def clock(seconds: float) -> str:
    """ "0:42", "12:05" or "3:07:00"."""
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"


def values(metrics: Mapping[str, float]) -> str:
    """ "loss 0.1234  accuracy 0.97": four significant digits each."""
    return "  ".join(f"{name} {value:.4g}" for name, value in metrics.items())
