"""Environments of training scripts: what a requirements file asks for, and on what base it is resolved and built.

`requirements` reads the file, `base` says what every environment stands on, `problems` puts uv's errors into a sentence, `readiness`
decides what a run waits for. Who builds is `training_runtime.host.environments.builder`.
"""
