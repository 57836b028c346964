"""Gives a run its MLflow endpoint. Its figures take the way of all that a script logs (`logged`), parameters and tags are notes in the
journal, and artifacts are files that the client itself writes, below the results.
"""

from __future__ import annotations

import sys
import time
import urllib.parse
from collections.abc import Iterable, MutableMapping
from pathlib import Path

from training_runtime import journal
from training_runtime.elastic.script_logs.logged import ScriptMetrics
from training_runtime.protocol import RunSpec
from training_runtime.tracking.answers import ARTIFACTS, Group, Run
from training_runtime.tracking.endpoint import OTHERS, Endpoint
from training_runtime.tracking.tracker import EXPERIMENT, Tracker


class Unrecorded:
    """At a remote agent: it runs the script up to the training as the run's driver does, and what that logs is in the journal already."""

    def figures(self, group: Group, step: int, metrics: dict[str, float], *, t: float) -> None:
        pass

    def note(self, noted: journal.Noted) -> None:
        pass


def begin(spec: RunSpec, logged: ScriptMetrics | None, environment: MutableMapping[str, str]) -> None:
    """Open the endpoint and say so in the environment; not where the run has been given a server of its own."""
    if any(environment.get(name) for name in OTHERS):
        return
    try:
        endpoint = Endpoint(lambda: _tracker(spec, logged))
    except OSError as error:  # no descriptor or no port is free: the script may not want one
        print(f"there is no MLflow endpoint, because: {error}", file=sys.stderr)  # noqa: T201 - the driver's log
        return
    endpoint.tell(environment, run=spec.run)


def _tracker(spec: RunSpec, logged: ScriptMetrics | None) -> Tracker:
    now_ms = int(1000 * time.time())
    artifacts = f"file://{urllib.parse.quote(spec.result_dir)}/{ARTIFACTS}"
    run = Run(str(spec.run), spec.name, EXPERIMENT, spec.user, artifacts, began_ms=now_ms)
    before: Iterable[journal.Line] = () if logged is None else journal.follow(Path(spec.result_dir, journal.FILE_NAME))
    return Tracker(run, Unrecorded() if logged is None else logged, before, lambda: int(1000 * time.time()))
