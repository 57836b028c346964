"""`import edt`. `edt.log(loss=0.3, step=10)`: figures of any script on the charts of its run. `for step in edt.elastic(...)`: exact elastic
training in a loop of the script's own."""

from collections.abc import Callable, Iterator
from typing import Any

from training_runtime.fabric.logging import log

__all__ = ["elastic", "log"]

elastic: Callable[..., Iterator[Any]]  # `native.elastic`


def __getattr__(name: str) -> object:
    """`elastic` needs torch, which a script that only logs may not have: it is imported when it is asked for."""
    if name != "elastic":
        raise AttributeError(f"module 'edt' has no attribute {name!r}")
    from training_runtime.fabric import native

    return native.elastic
