"""A Keras model in a pickle of a notebook: Keras writes layers down by the names of their classes, and those of the notebook itself are
known to nobody else. So the classes travel along.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def reduced(model: Any) -> tuple[Any, ...]:
    """For a pickler, in the place of the model's own `__reduce__`."""
    made, arguments = model.__reduce__()[:2]
    classes = {type(layer) for layer in model._flatten_layers(include_self=True, recursive=True)}
    return read, (made, arguments, {each.__name__: each for each in classes if not each.__module__.startswith("keras.")})


def read(made: Callable[..., Any], arguments: tuple[Any, ...], classes: dict[str, type]) -> Any:
    import keras

    with keras.saving.custom_object_scope(classes):
        return made(*arguments)
