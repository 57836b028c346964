"""The name under which scripts import this; see training_runtime.fabric.edtcallback."""

from training_runtime.fabric.edtcallback import EDTLoggerCallback

__all__ = ["EDTLoggerCallback"]
