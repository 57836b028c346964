"""The name under which scripts import this; see training_runtime.fabric.emetrics."""

from training_runtime.fabric.emetrics import EMetrics

__all__ = ["EMetrics"]
