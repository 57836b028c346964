"""The name under which scripts import this; see training_runtime.fabric.elog."""

from training_runtime.fabric.elog import ELog

__all__ = ["ELog"]
