"""`import edt; edt.log(loss=0.3, step=10)`: figures of any script on the charts of its run."""

from training_runtime.fabric.logging import log

__all__ = ["log"]
