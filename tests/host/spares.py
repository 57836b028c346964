"""Runs in environments, as the studio would start them one after the other, and the spare processes that their host keeps for them."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from tests.host.building import told_of, wish
from tests.host.conftest import HostUnderTest, until
from tests.index import Index
from training_runtime.host import client, processes
from training_runtime.host.sandbox import kernel
from training_runtime.host.settings import DRIVER
from training_runtime.protocol import Apply, RunObservation, RunSpec

IN_A_SPARE, THE_USUAL_WAY = "a run is started in a spare process", "a run is started the usual way"


def start(host: HostUnderTest, index: Index, **environment: str) -> None:
    host.home.chmod(0o755)
    host.start(environment={**told_of(index), **environment})


def start_with_the_real_driver(host: HostUnderTest, index: Index) -> None:
    host.home.chmod(0o755)
    host.start(environment=told_of(index), driver=DRIVER)


class Runs:
    """Of scripts with these requirements on one machine; `puppet`: its driver is the one of the tests."""

    def __init__(self, host: HostUnderTest, requirements: str, *, puppet: bool = True) -> None:
        self.host, self.wish, self.puppet = host, wish(requirements), puppet
        self.tell()
        seen = until(self._built, what="the environment is built", deadline_s=60)
        assert seen.state == "ready", f"{seen.problem}\n{seen.log}"
        self.environment: str = seen.folder

    def tell(self, *, drop: tuple[str, ...] = ()) -> None:
        host = self.host
        host.revision += 1
        wishes = () if drop else (self.wish,)
        client.apply(host.home, host.node, Apply(host.revision, tuple(host.wanted.values()), environments=wishes, drop=drop))

    def _built(self) -> Any:
        found = self.host.look().environments or ()
        return next((each for each in found if each.key == self.wish.key and each.state in ("ready", "failed")), None)

    def spec(self, number: int, script: str, *argv: str, **changed: Any) -> RunSpec:
        """Code is stored by its content in a studio, so runs of the same script have the same folder."""
        folder = self.host.home / "code" / f"{abs(hash(script))}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "main.py").write_text(script)
        spec = dataclasses.replace(
            self.host.spec(number), name="same", argv=(*(("imports",) if self.puppet else ()), "main.py", *argv), code_dir=str(folder)
        )
        return dataclasses.replace(spec, environment=self.environment, **changed)

    def ends(self, spec: RunSpec, *slots: int) -> RunObservation:
        """Runs it to its end."""
        self.host.want(spec, *slots)
        self.tell()
        seen = self.host.until_run(spec.run, lambda run: run.exit_code is not None, deadline_s=60)
        del self.host.wanted[spec.run]
        return seen

    def said(self, number: int) -> Any:
        """What the run's script has printed last, as JSON."""
        lines = self.host.console(number).strip().splitlines()
        assert lines, self.host.log()
        return json.loads(lines[-1])

    def run(self, number: int, script: str, *argv: str, slots: tuple[int, ...] = (), **changed: Any) -> Any:
        """What it has printed last."""
        seen = self.ends(self.spec(number, script, *argv, **changed), *slots)
        assert seen.exit_code == 0, f"{seen}\n{self.host.console(number)}\n{self.host.log()}"
        return self.said(number)

    def how(self, number: int) -> str:
        """How this run was started, and why so."""
        lines = [line for line in self.host.log().splitlines() if f"run={number}" in line and "a run is started" in line]
        assert lines, self.host.log()
        return lines[-1].partition("INFO ")[2]

    def until_spare(self) -> int:
        """Its number as a process, once it is ready."""

        def ready() -> int | None:
            assert "are started the usual way" not in self.host.log(), self.host.log()
            found = [
                int(line.rpartition("pid=")[2].split()[0]) for line in self.host.log().splitlines() if "a spare process is ready" in line
            ]
            waiting = [pid for pid in found if pid in spares(self.host)]
            return waiting[-1] if waiting else None

        pid = until(ready, what=lambda: f"a spare process is ready\n{self.host.log()}", deadline_s=60)
        assert pid is not None
        return pid


def spares(host: HostUnderTest) -> list[int]:
    """The processes that wait for a run, and those that import what they will."""
    return [process.pid for process in host.processes() if processes.name(process.pid) == kernel.SPARE_NAME]
