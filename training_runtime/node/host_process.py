"""The node host of a joined machine, as a process beside the link: it goes on when the link is killed, and is found again by the next."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from training_runtime.errors import HostUnavailable
from training_runtime.host import client, processes
from training_runtime.host.client import OtherVersion
from training_runtime.node.settings import TOKEN, Settings

log = logging.getLogger(__name__)
LOOK_S = 1.0
PAUSES_S = (0.5, 1.0, 2.0, 5.0, 15.0)


class HostProcess(threading.Thread):
    """Starts the host where none answers, and again when it has ended, until `end`. One that an earlier release has left and that speaks a
    version which this one does not work with is ended alone: the next finds its runs, which train on."""

    def __init__(self, settings: Settings, name: str, *, slots: int | None, lease_s: float) -> None:
        super().__init__(name="host", daemon=True)
        self.node = name
        self._settings, self._slots, self._lease_s = settings, slots, lease_s
        self._process: subprocess.Popen[bytes] | None = None
        self._ending = threading.Event()

    def run(self) -> None:
        failures = 0
        while not self._ending.is_set():
            if self._answers():
                failures = 0
                self._ending.wait(LOOK_S)
                continue
            self._process = self._start()
            began = time.monotonic()
            while self._process.poll() is None and not self._ending.is_set():
                self._ending.wait(0.2)
            if self._ending.is_set():
                return
            failures = 0 if time.monotonic() - began > 60 else failures + 1
            log.warning("the node host has ended (exit code %s), it is started again; see %s", self._process.returncode, self._log)
            self._ending.wait(PAUSES_S[min(failures, len(PAUSES_S) - 1)])

    def end(self, *, patience_s: float) -> bool:
        """Have it suspend its runs, write their states and end. Of a host that an earlier link has started as well. Whether it is certain
        that nothing of it is left."""
        self._ending.set()
        pid = self._process.pid if self._process is not None and self._process.poll() is None else self._written_down()
        if not pid:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        end = time.monotonic() + patience_s
        while time.monotonic() < end and (self._process.poll() is None if self._process is not None else self._answers()):
            time.sleep(0.1)
        return self._process is not None and self._process.poll() == 0

    @property
    def _log(self) -> Path:
        return self._settings.home / "host.log"

    def _answers(self) -> bool:
        try:
            for _ in client.subscribe(self._settings.home, self.node, timeout_s=5, connect_timeout_s=5):
                return True
        except OtherVersion as error:
            log.warning("%s: it is ended, and started as this release", error)
            if (process := processes.look(self._written_down())) is not None:
                processes.send_signal(process, signal.SIGKILL)
        except HostUnavailable:
            pass
        return False

    def _written_down(self) -> int:
        with contextlib.suppress(OSError, ValueError):
            return int((self._settings.home / "host" / self.node / "host.lock").read_text())
        return 0

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "training_runtime.host", "--home", str(self._settings.home), "--node", self.node]
        command += ["--lease", f"{self._lease_s:g}", *(["--slots", str(self._slots)] if self._slots is not None else [])]
        environment = {name: value for name, value in os.environ.items() if name not in (TOKEN, "EDT_NODE_ADDRESS")}
        with open(self._log, "ab") as output:
            return subprocess.Popen(
                command,
                env=environment,
                cwd=Path(__file__).resolve().parents[2],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
