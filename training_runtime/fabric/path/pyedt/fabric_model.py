"""The name under which scripts import this; see training_runtime.fabric.model."""

from training_runtime.fabric import laptop
from training_runtime.fabric.model import FabricModel

__all__ = ["FabricModel"]

laptop.set_defaults()
