"""What the body of a script's loop changes that not every worker knows, as it is seen in some steps: names that are not in the loop's
`state`, what the loop over a step's batches leaves behind, and what samples are loaded by.

It is looked at, and nothing is changed: how a run says that it is not exact. In the first steps of a worker and at the end of its first
epochs, where there is time left for it, as a look goes through all that the body's names lead to.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

from training_runtime.elastic.job import Job
from training_runtime.elastic.state.allowance import Allowance
from training_runtime.elastic.state.generators import Watched
from training_runtime.elastic.state.registered import Registered
from training_runtime.elastic.state.used_values import UsedValues
from training_runtime.elastic.verify import joined, loaded_by
from training_runtime.elastic.worker import loop_names
from training_runtime.elastic.worker.loop_step import Step

FIRST, MOST = 3, 8  # steps that are looked at: the first, and with those that end an epoch
UNNAMED = (
    "the loop over the steps changes {}, which a worker that joins does not have: name it in `state`, a number in a dict. What is of a "
    "step alone is assigned in it before it is read"
)
INSIDE = (
    "the loop over a step's batches changes {}, which is known to the worker alone that computed them: use step.measure(...) or "
    "step.mean_loss, or make the change behind that loop"
)
BEHIND = (
    "{} is read behind the loop over a step's batches, in which it is made, and is of this worker's batches alone: step.mean_loss and "
    "step.means are the same on every worker"
)
COUNTED = "{} is counted by each worker from the step on with which it began: step.number is the same on every worker"
RELOADS = (
    "the body of the loop changes {}, by which samples are loaded: batches that were loaded ahead and workers that join later do not know. "
    "Have it change what the body does with a batch instead"
)


class LoopWatch:
    """One worker's. `tell` is called with reasons why the run is not exact."""

    def __init__(self, job: Job, tell: Callable[[list[str]], None]) -> None:
        self._job, self._tell = job, tell
        self._seen, self._watched = 0, False
        self._body: tuple[FrameType, range] | None = None
        self._allowance = Allowance()

    def begin_step(self, *, is_last_of_epoch: bool) -> None:
        """A pass of the body begins: called by the generator that the loop goes through."""
        is_one_of_them = self._seen < FIRST or (is_last_of_epoch and self._seen < MOST)
        self._watched = is_one_of_them and self._allowance.is_left()
        if not self._watched:
            return
        with self._allowance.spending():
            self._begin(loop_names.script_frame(sys._getframe(1)))

    def _begin(self, frame: FrameType) -> None:
        body = loop_names.body_of(frame)
        self._watched = bool(body)
        if not self._watched:
            return
        self._seen += 1
        self._body = frame, body
        live = self._job.live
        named = live.named()
        self._own = [*named.values(), *loaded_by(self._job).values()]
        known = [*self._own, *live.held(named).values(), *self._state().values()]
        roots = loop_names.values(frame, loop_names.carried(frame, body))
        self._values, self._drawn = UsedValues(roots, known=known), Watched(roots, known=known)
        self._note_loads()

    def begin_batches(self) -> None:
        """The loop over the step's batches begins: called by the generator that it goes through."""
        if self._watched and self._body is not None:
            with self._allowance.spending():
                self._begin_batches(*self._body, loop_names.script_frame(sys._getframe(1)))

    def _begin_batches(self, frame: FrameType, body: range, inner_frame: FrameType) -> None:
        self._reloads()
        inner = loop_names.body_of(inner_frame)
        end = body.stop if inner_frame is frame else len(inner_frame.f_code.co_code)
        counted = loop_names.values(frame, loop_names.targets(frame, body))
        if names := [name for name, value in counted.items() if not isinstance(value, Step)]:
            self._tell([COUNTED.format(joined(names))])
        if inner and (names := loop_names.read_behind(inner_frame, inner, end)):
            self._tell([BEHIND.format(joined(names))])
        roots = loop_names.values(frame, loop_names.carried(frame, body)) | {"state": self._state()}
        self._inside, self._drawn_inside = UsedValues(roots, known=self._own), Watched(roots, known=self._own)

    def end_batches(self) -> None:
        if not self._watched:
            return
        with self._allowance.spending():
            changed = [*self._inside.changed(), *self._drawn_inside.drawn()]
            if changed:
                self._tell([INSIDE.format(joined(changed))])
            self._note_loads()

    def end_step(self) -> None:
        """Its body is done."""
        if self._watched and self._body is not None:
            with self._allowance.spending():
                self._end_step(self._body[0])
        self._watched = False
        self._body = None

    def _end_step(self, frame: FrameType) -> None:
        self._reloads()
        now = loop_names.values(frame, list(self._values.roots))
        changed = [name for name in self._values.changed(now) if not _is_clock(now.get(name))]
        if changed or (changed := self._drawn.drawn()):
            self._tell([UNNAMED.format(joined(changed))])
        del self._values, self._drawn, self._inside, self._drawn_inside, self._loads, self._own  # which hold what is the step's

    def _state(self) -> Mapping[str, Any]:
        """What the script has named."""
        registered = self._job.registered["state"]
        assert isinstance(registered, Registered)
        return registered.given

    def _note_loads(self) -> None:
        self._loads = UsedValues(loaded_by(self._job), known=self._job.live.modules(), caches=False)

    def _reloads(self) -> None:
        if changed := self._loads.changed():
            self._tell([RELOADS.format(joined(changed))])


def _is_clock(value: object) -> bool:
    """Whether it is the time now, by one of the clocks: what a body that prints its speed keeps."""
    clocks = (time.time(), time.monotonic(), time.perf_counter())
    return isinstance(value, float) and any(abs(value - clock) < 60 for clock in clocks)
