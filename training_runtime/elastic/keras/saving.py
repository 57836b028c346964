"""Keras' own file of a model, for `keras.models.load_model`."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class KerasFile:
    """Writes `model`, with its optimizer."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __call__(self, path: Path) -> None:
        self._model.save(path)
