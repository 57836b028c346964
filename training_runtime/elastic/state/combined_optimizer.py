"""Several optimizers of one training, shown to the engine as one: their groups one after the other, and the state of each parameter where
its own optimizer has it.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

import torch

from training_runtime.errors import UserError


class CombinedOptimizer(torch.optim.Optimizer):
    """`step` steps all of them. UserError where two hold the same parameter."""

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        held = [p for each in optimizers for group in each.param_groups for p in group["params"]]
        if len({id(p) for p in held}) != len(held):
            raise UserError("two of the optimizers hold the same parameter: give each parameter to one of them")
        super().__init__([{"params": held}], {})
        self.optimizers = tuple(optimizers)
        self.param_groups = [group for each in optimizers for group in each.param_groups]
        self.state: MutableMapping[torch.Tensor, Any] = _States(self.optimizers)  # type: ignore[assignment]

    def step(self, _closure: Any = None) -> None:  # type: ignore[override]
        for each in self.optimizers:
            each.step()


class _States(MutableMapping[torch.Tensor, Any]):
    """Parameter -> its state, in the optimizer that holds it."""

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self._optimizers = optimizers
        self._of = {id(p): each for each in optimizers for group in each.param_groups for p in group["params"]}

    def __getitem__(self, p: torch.Tensor) -> Any:
        state = self._of[id(p)].state
        if p not in state:
            raise KeyError(p)  # each of them would make one
        return state[p]

    def __setitem__(self, p: torch.Tensor, value: Any) -> None:
        self._of[id(p)].state[p] = value

    def __delitem__(self, p: torch.Tensor) -> None:
        del self._of[id(p)].state[p]

    def __contains__(self, p: object) -> bool:
        return id(p) in self._of and p in self._of[id(p)].state

    def __iter__(self) -> Iterator[torch.Tensor]:
        for each in self._optimizers:
            yield from each.state

    def __len__(self) -> int:
        return sum(len(each.state) for each in self._optimizers)
