"""The random generators of a process and of its data: their states as plain values (see `plain`), and back."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

KINDS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)


def belonging_to(owners: list[Any]) -> list[Any]:
    """Generators that these objects have as attributes, each once."""
    held = [value for owner in owners for value in list(getattr(owner, "__dict__", {}).values()) if isinstance(value, KINDS)]
    return list({id(each): each for each in held}.values())


def states(own: list[Any]) -> dict[str, Any]:
    """Of Python, numpy and torch in this process, and of these."""
    gpus = [each.numpy() for each in torch.cuda.get_rng_state_all()] if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(legacy=False),
        "torch": torch.get_rng_state().numpy(),
        "gpus": gpus,
        "own": [_state(each) for each in own],
    }


def restore(states: dict[str, Any], own: list[Any]) -> None:
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    torch.set_rng_state(torch.from_numpy(states["torch"]))
    if states["gpus"] and torch.cuda.is_available() and torch.cuda.device_count() == len(states["gpus"]):
        torch.cuda.set_rng_state_all([torch.from_numpy(each) for each in states["gpus"]])
    if len(own) == len(states["own"]):
        for each, state in zip(own, states["own"], strict=True):
            _set_state(each, state)


def _state(one: Any) -> Any:
    if isinstance(one, torch.Generator):
        return one.get_state().numpy()
    if isinstance(one, np.random.Generator):
        return one.bit_generator.state
    return one.get_state(legacy=False) if isinstance(one, np.random.RandomState) else one.getstate()


def _set_state(one: Any, state: Any) -> None:
    if isinstance(one, torch.Generator):
        one.set_state(torch.from_numpy(state))
    elif isinstance(one, np.random.Generator):
        one.bit_generator.state = state
    elif isinstance(one, np.random.RandomState):
        one.set_state(state)
    else:
        one.setstate(state)
