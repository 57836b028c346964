"""Which batches of an epoch a training of Lightning's has had: one that goes on has the others.

Lightning knows how many these were, and draws a new order. So of a single process the random generators are set to what they were when the
order of the epoch was drawn, the batches that were done are drawn once more and dropped, and the generators set to what they were when the
next one was drawn. Of several workers the order is the sampler's own (`DistributedSampler` draws it by the epoch): there they are dropped.

Nor does Lightning save gradients that wait for the optimizer's next step, where several batches make one: of a single process they are
kept.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from training_runtime.elastic.trainers import generators
from training_runtime.elastic.trainers.interruption import Interruption

States = dict[str, Any]
SAVED = "studio_batches"  # in a checkpoint of ours
ITSELF = "_DataLoaderIterDataFetcher"  # for scripts that draw batches themselves
_followed: list[FollowedBatches] = []  # of the fit that goes on


class FollowedBatches:
    """While a fit goes on. resumed: what a checkpoint of ours had of them; goes_on: from some checkpoint."""

    def __init__(self, trainer: Any, interruption: Interruption) -> None:
        self._trainer, self._interruption = trainer, interruption
        self._is_one = trainer.world_size == 1
        self._own = list[Any]()
        self._at_creation: States | None = None
        self._at_first: States | None = None
        self._at_next: States | None = None
        self.resumed: dict[str, Any] = {}
        self.goes_on = False

    def __enter__(self) -> FollowedBatches:
        _followed.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _followed.remove(self)
        vars(self._trainer.fit_loop.epoch_loop).pop("on_run_start", None)

    def begin(self) -> None:
        """The training begins."""
        loop = self._trainer.fit_loop.epoch_loop
        begin_epoch = loop.on_run_start

        def on_run_start(fetcher: Any) -> Any:
            if self.goes_on:
                self.goes_on = False
                self._resume(fetcher, loop.batch_progress.current.ready)
            return begin_epoch(fetcher)

        loop.on_run_start = on_run_start

    def hear_of_pass(self, fetcher: Any) -> None:
        """Somebody begins to go through data: this training, or its validation."""
        if self._is_own(fetcher):
            self._begin_pass(fetcher.combined_loader.flattened)
        else:
            self._at_next = self._states()

    def hear_of_next(self, fetcher: Any) -> None:
        """The next batch is drawn."""
        if not self._is_own(fetcher):
            return
        if self._at_first is None:
            self._at_first = self._states()
        self._at_next = self._states() if self._interruption.is_told else None

    def _is_own(self, fetcher: Any) -> bool:
        """Not where the script draws batches itself, within its step."""
        return getattr(self._trainer.fit_loop, "_data_fetcher", None) is fetcher and type(fetcher).__name__ != ITSELF

    def _begin_pass(self, loaders: list[Any]) -> None:
        """The order of an epoch is drawn now, or as its first batch is."""
        parts = [getattr(each, name, None) for each in loaders for name in ("sampler", "batch_sampler", "dataset")]
        self._own = generators.belonging_to([*loaders, *(each for each in parts if each is not None)])
        self._at_creation, self._at_first, self._at_next = self._states(), None, None

    @property
    def is_known(self) -> bool:
        """Where it stands. Not for a batch that was drawn before anybody told the training to end: then after the next one."""
        return self._at_next is not None or self._at_creation is None or not self._is_one

    def position(self) -> dict[str, Any]:
        """For a checkpoint."""
        if not self._is_one:
            return {}
        waits = self._trainer.fit_loop.epoch_loop.batch_progress.current.completed % self._trainer.accumulate_grad_batches
        gradients = [each.grad if each.grad is None else each.grad.detach() for each in self._parameters() if waits]
        return {"at_creation": self._at_creation, "at_first": self._at_first, "at_next": self._at_next, "gradients": gradients}

    def resume_step(self) -> None:
        """Before the first batch: with the gradients of those before it that make a step with it."""
        gradients = self.resumed.pop("gradients", [])
        parameters = self._parameters() if gradients and self._is_one else []
        if len(parameters) == len(gradients):
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = None if gradient is None else gradient.to(parameter.device)

    def _parameters(self) -> list[Any]:
        return list(self._trainer.lightning_module.parameters())

    def _states(self) -> States | None:
        return generators.states(self._own) if self._is_one else None

    def _resume(self, fetcher: Any, done: int) -> None:
        """Before its first epoch, of which so many batches have been done."""
        resumed = self.resumed if self._is_one else {}
        if not self._is_own(fetcher):
            return
        if done < self._trainer.num_training_batches:
            self._restore(resumed.get("at_creation"))
            iter(fetcher)
            self._restore(resumed.get("at_first"))
            for _ in range(done):
                if self._interruption.is_told and self._is_one:
                    self._interruption.leave()  # what was saved before is there still
                if next(fetcher, None) is None:
                    break
            fetcher.fetched -= min(done, fetcher.fetched)  # Lightning adds them
        self._restore(resumed.get("at_next"))

    def _restore(self, states: States | None) -> None:
        if states is not None:
            generators.restore(states, self._own)


def follow(trainers: str) -> None:
    """The library whose trainers this module has, once it is imported."""
    fetchers = sys.modules.get(f"{trainers.removesuffix('.trainer.trainer')}.loops.fetchers")
    kind = getattr(fetchers, "_DataFetcher", None)
    if kind is None or not hasattr(fetchers, ITSELF):  # of an older Lightning
        return
    kind.__iter__ = _watched(kind.__iter__, FollowedBatches.hear_of_pass)
    kind.__next__ = _watched(kind.__next__, FollowedBatches.hear_of_next)


def _watched(function: Callable[[Any], Any], hear: Callable[[FollowedBatches, Any], None]) -> Callable[[Any], Any]:
    @wraps(function)
    def watched(fetcher: Any) -> Any:
        if _followed:
            hear(_followed[-1], fetcher)
        return function(fetcher)

    return watched
