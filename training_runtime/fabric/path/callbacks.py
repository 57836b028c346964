"""The name under which scripts import this; see training_runtime.fabric.callbacks."""

from training_runtime.fabric.callbacks import Callback, LoggerCallback

__all__ = ["Callback", "LoggerCallback"]
