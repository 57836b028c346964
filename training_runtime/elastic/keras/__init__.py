"""Keras models by the same engine. What the engine trains stays a torch module with a torch optimizer; here is what makes them of a Keras
model: a module that stands for its variables, an optimizer that has Keras' own make the step, its losses and metrics.

Nothing outside of this package knows Keras, and none of it is imported before a script has given FabricModel a Keras model; `kind` and
`finder` are, and import the standard library only.
"""
