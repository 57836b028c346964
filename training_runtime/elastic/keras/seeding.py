"""TensorFlow's own random operations (tf.random.*), seeded for each part of a batch that is computed."""

from __future__ import annotations

import random
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import random_seed

_drawn = True  # since they were seeded last
_get_seed = random_seed.get_seed


def watch() -> None:
    """Notice from now on when one of them is used."""

    def get_seed(op_seed: Any) -> Any:
        global _drawn
        _drawn = True
        return _get_seed(op_seed)

    random_seed.get_seed = get_seed


def seed(value: int) -> None:
    """To seed them anew drops all that TensorFlow has prepared for single operations, hundreds of milliseconds, so it is done where one was
    used; else what the next one will draw from is set alone."""
    global _drawn
    if _drawn:
        tf.random.set_seed(value)
        _drawn = False
    else:
        it = context.context()
        it._seed, it._rng = value, random.Random(value)
