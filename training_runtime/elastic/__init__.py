"""The exact elastic engine: one driver, one template and W workers compute the V engines of a global batch, and W may change at any step.

`membership` and `tree` are pure; `driver` is where a run begins, `coordinator` its watch over the workers, `worker` the training itself.
"""
