"""Whether this script computes the same from the same: what is seen of it while the training goes on. Before it there is a look of its own
(see `look`).

Seen are operations of which torch says that they add in any order, generators of the script's own that were drawn from, what callbacks
change of that by which batches are loaded, and what test batches change of that by which callbacks go.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from training_runtime.elastic.job import Job
from training_runtime.elastic.state.allowance import Allowance
from training_runtime.elastic.state.generators import Watched
from training_runtime.elastic.state.used_values import UsedValues

TELLS = (
    "computing batches changes {}, which callbacks or hooks use: each worker knows what its own batches made of it. Keep it as a buffer or "
    "a number of a module of the model or of the loss, which are the first batch's everywhere, or have the callback compute it"
)
RELOADS = (
    "a callback changes {}, by which samples are loaded: batches that were loaded ahead and workers that join later do not know. Have it "
    "change a number of the model instead, and make in forward what depends on it"
)
ANY_KERNELS = "EDT_DETERMINISTIC=0 lets the GPU use kernels that add in any order"
_SAID = re.compile(r"(\S+) does not have a deterministic implementation|operation is not deterministic because it uses (\w+)")


class Exactness:
    """What a worker has seen of it. `tell` is called with reasons why not, and whether the first engine was computed twice."""

    def __init__(self, job: Job, tell: Callable[[list[str], bool], None]) -> None:
        self._job, self._watched, self._tell = job, Watched(parts_of(job)), tell
        self._drawn: list[str] = []
        self._tested = False
        self._allowance = Allowance()

    def begin(self, found: list[str] | None, *, on_device: bool) -> None:
        """`found`: what `look_twice` has; None: it was not asked, or could not tell."""
        watch_warnings(lambda reason: self._tell([reason], False))
        any_kernels = on_device and os.environ.get("EDT_DETERMINISTIC") == "0"
        self._tell([*(found or ()), *([ANY_KERNELS] if any_kernels else ())], found is not None and self._job.begin is None)

    def tell(self, reasons: list[str]) -> None:
        """What others have seen."""
        self._tell(reasons, False)

    def look(self) -> None:
        """Now and then."""
        drawn = self._watched.drawn()
        if drawn != self._drawn:
            self._drawn = drawn
            self._tell(reason_of(drawn), False)

    @contextmanager
    def callbacks(self) -> Iterator[None]:
        """Around the script's callbacks between epochs, as often as there is time."""
        if not (self._job.user_callbacks and self._allowance.is_left()):
            yield
            return
        with self._allowance.spending():
            values = UsedValues(loaded_by(self._job), known=self._job.live.modules(), caches=False)
        yield
        with self._allowance.spending():
            changed = values.changed()
        if changed:
            self._tell([RELOADS.format(joined(changed))], False)

    @contextmanager
    def tests(self) -> Iterator[None]:
        """Around the first validation that comes to its end."""
        if self._tested:
            yield
            return
        values = UsedValues(told_by(self._job), known=self._job.live.named().values())
        yield
        self._tested = True
        if changed := values.changed():
            self._tell([TELLS.format(joined(changed))], False)


def loaded_by(job: Job) -> Mapping[str, object]:
    """By what samples are loaded, as `parts_of` has it."""
    return {"the training dataset": job.train_set, "the test dataset": job.test_set, "fn_batch_collate": job.collate}


def told_by(job: Job) -> Mapping[str, object]:
    """What may go by what computing has left, besides what is computed next: callbacks, hooks of the optimizer and schedulers."""
    hooks = (*job.optimizer._optimizer_step_pre_hooks.values(), *job.optimizer._optimizer_step_post_hooks.values())
    named = [(type(each).__name__, each) for each in (*job.user_callbacks, *job.schedulers)]
    return {**{f"{name} {i + 1}" if name in dict(named[:i]) else name: each for i, (name, each) in enumerate(named)}, "a hook": hooks}


def joined(names: list[str]) -> str:
    """For people."""
    return ", ".join(names[:3]) + (" and more" if len(names) > 3 else "")


def parts_of(job: Job) -> Mapping[str, object]:
    """What of a script is computed with, by the names that its author gave or knows."""
    return {
        **loaded_by(job),
        "the model": job.model,
        "the loss": job.loss,
        "fn_step_train": job.train_function,
        "the optimizer's hooks": (*job.optimizer._optimizer_step_pre_hooks.values(), *job.optimizer._optimizer_step_post_hooks.values()),
    }


def reason_of(drawn: list[str]) -> list[str]:
    """In words, for people."""
    return [f"{name} is a random generator of its own, which is not seeded for each batch" for name in drawn[:5]]


def watch_warnings(tell: Callable[[str], None]) -> None:
    """Tell of each operation once of which torch warns that it is not deterministic. As long as this process lives."""
    show, told = warnings.showwarning, set[str]()

    def showwarning(message: Warning | str, *args: Any, **kwargs: Any) -> None:
        found = _SAID.search(str(message))
        if found is not None and (name := found[1] or found[2]) not in told:
            told.add(name)
            tell(f"{name} has no deterministic kernel on this device")
        show(message, *args, **kwargs)

    warnings.showwarning = showwarning
    for text in (r".*does not have a deterministic implementation", r".*is not deterministic because"):
        warnings.filterwarnings("default", message=text)  # whatever the script has them do
