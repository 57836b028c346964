"""Launches runs: from the warm process, which it keeps up, or from a spare process that has imported what the run will.

A run is launched at once where all that it needs is there. Where something is missing, its `problem` says what, and it stays `launching`:
`launch` is to be called again at its `retry_at`, and is by the launcher itself once the warm process is ready. In the host's one thread.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path

from training_runtime import storage
from training_runtime.errors import SandboxRefused
from training_runtime.host.environments.builds import Environments
from training_runtime.host.node import Node
from training_runtime.host.runs import begin, fabric, script_environment
from training_runtime.host.runs.launch import Launch
from training_runtime.host.runs.live import LiveRun
from training_runtime.host.sandbox.levels import Abilities
from training_runtime.host.settings import Settings
from training_runtime.host.spares.pool import Spares
from training_runtime.host.spares.warm_handle import WarmProcess

_LOOK_S = 0.5
_NO_WALL = (
    "EDT_SANDBOX_DEVICES asks that a run can open the GPUs of its slots alone, and on this machine it could open all of them. The notes of "
    "the machine's page say what is missing"
)


class Launcher:
    """`own`: the host's own environment variables, of which the warm process gets those that are safe. Owns both kinds of processes that
    runs are forked from: `end` ends them."""

    def __init__(
        self, settings: Settings, *, node: Node, abilities: Abilities, environments: Environments, own: Mapping[str, str], gpus: bool
    ) -> None:
        self._settings, self._node, self._abilities, self._environments = settings, node, abilities, environments
        programs = map(str, fabric.programs(fabric.folder(settings.folder)))
        self._variables = script_environment.warm_environment(own, home=str(settings.folder), programs=programs)
        self.warm = WarmProcess(preload=settings.preload, environment=self._variables, log_file=settings.folder / "warm.log")
        self.spares = Spares(settings, node=node, fork=self.warm.fork, gpus=gpus)

    def begin(self) -> None:
        self.spares.begin()
        self._start_warm()

    def end(self) -> None:
        self.spares.end()
        self._node.unwatch(self.warm)
        self.warm.end()

    def launch(self, run: LiveRun) -> None:
        """Fork the run's process, if all that it needs is there; refuses the run where that can never be."""
        if not self.warm.ready:
            run.problem = "waiting for the warm process" + (f": {self.warm.problem}" if self.warm.problem else "")
            return
        assert run.spec is not None
        if run.remote and run.spec.meeting is None and not begin.driver_has_begun(run.spec):
            run.problem, run.retry_at = "waiting for the run's driver on its own machine", time.monotonic() + _LOOK_S
            return
        packages = self._environments.path(run.spec.environment) if run.spec.environment else None
        if run.spec.environment and packages is None:
            run.problem, run.retry_at = "its environment is not there, it is built again", time.monotonic() + _LOOK_S
            return
        run.problem = ""
        try:
            request = self._compose(run, packages)
        except (SandboxRefused, OSError) as error:
            if storage.cause(error):
                begin.put_off(run, str(error))
            else:
                begin.refuse(self._node, run, str(error))
            return
        if not self.spares.give(run, request):
            begin.launch(self._node, run, request, self.warm.fork)

    def _compose(self, run: LiveRun, packages: Path | None) -> Launch:
        if self._settings.policy.devices and not self._node.groups.keep_devices:
            raise SandboxRefused(_NO_WALL)
        return begin.compose(run, settings=self._settings, abilities=self._abilities, warm=self._variables, packages=packages)

    def look_at_spares(self, now: float) -> None:
        """Note what live runs have imported, and start or end spare processes by it."""
        for run in self._node.runs.values():
            imported, run.imported = run.imported, None
            if imported is None:
                continue
            with contextlib.suppress(SandboxRefused, OSError):
                if run.spec is not None and (packages := self._environments.path(run.spec.environment)) is not None:
                    self.spares.note(self._compose(run, packages), imported)
        self.spares.look(now, built=self._environments.folders)

    def restart_warm_if_due(self, now: float) -> None:
        if self.warm.restart_at is not None and now >= self.warm.restart_at:
            self._start_warm()

    def _start_warm(self) -> None:
        self.warm.start()
        self._node.warm_pid = self.warm.pid
        self._node.watch(self.warm, self._on_warm)

    def _on_warm(self, _mask: int) -> None:
        before = self.warm.fileno()
        if not self.warm.receive(time.monotonic()):
            self._node.unwatch(before)
        self._node.changed = True
        if self.warm.ready:
            for run in [run for run in self._node.runs.values() if run.phase == "launching"]:
                if run.gate is None and not run.pid:
                    self.launch(run)
