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
from training_runtime.log_rotation import rotate
from training_runtime.node.settings import TOKEN, Settings

log = logging.getLogger(__name__)
TURN_S = 0.2
LOOK_S = 1.0
ANSWER_S = 5.0
ASKING_S = 2 * ANSWER_S + 1.0
STEADY_S = 60.0
SILENT_S = 30.0  # as long as the studio waits for its own processes
PAUSES_S = (0.5, 1.0, 2.0, 5.0, 15.0)
ROTATE_S = 60.0


class HostProcess(threading.Thread):
    """Starts the host where none runs, and again when it has ended, until `end`. One that does not answer for `silent_s`, or that an
    earlier release has left and that speaks a version which this one does not work with, is ended alone: the next finds its runs, which
    train on."""

    def __init__(self, settings: Settings, name: str, *, slots: int | None, lease_s: float, silent_s: float = SILENT_S) -> None:
        super().__init__(name="host", daemon=True)
        self.node = name
        self._settings, self._slots, self._lease_s, self._silent_s = settings, slots, lease_s, silent_s
        self._process: subprocess.Popen[bytes] | None = None
        self._ending = threading.Event()

    def run(self) -> None:
        failures, asked, rotated = 0, -LOOK_S, -ROTATE_S
        began = heard = time.monotonic()
        while not self._ending.wait(TURN_S):
            now = time.monotonic()
            if now > rotated + ROTATE_S:
                rotated = now
                with contextlib.suppress(OSError):  # none has written yet
                    rotate(self._log)
            if self._process is not None and self._process.poll() is not None:
                failures = 0 if now > began + STEADY_S else failures + 1
                log.warning("the node host has ended (exit code %s), it is started again; see %s", self._process.returncode, self._log)
                self._process = None
                self._ending.wait(PAUSES_S[min(failures, len(PAUSES_S) - 1)])
            elif self._process is None and processes.holder(self._lock) is None:
                try:
                    self._process = self._start()
                except OSError as error:  # no room for a process, or for its log
                    log.warning("the node host cannot be started now: %s", error)
                    self._ending.wait(PAUSES_S[-1])
                began = heard = time.monotonic()
            elif now > asked + LOOK_S:
                asked = now
                if self._answers():
                    heard = time.monotonic()
                elif time.monotonic() > heard + self._silent_s:
                    self._kill(f"the node host has not answered for {self._silent_s:g} s")
                    heard = time.monotonic()

    def end(self, *, patience_s: float) -> bool:
        """Have it suspend its runs, write their states and end. Of a host that an earlier link has started as well. Whether it is certain
        that nothing of it is left."""
        self._ending.set()
        self.join(ASKING_S)  # from here on nobody starts one
        process = processes.look(self._process.pid) if self._process is not None else processes.holder(self._lock)
        if process is None:
            return False
        processes.send_signal(process, signal.SIGTERM)
        end = time.monotonic() + patience_s
        while time.monotonic() < end and (self._process.poll() is None if self._process is not None else self._answers()):
            time.sleep(0.1)
        return self._process is not None and self._process.poll() == 0

    @property
    def _lock(self) -> Path:
        return self._settings.work / "host" / self.node / "host.lock"

    @property
    def _log(self) -> Path:
        return self._settings.home / "host.log"

    def _answers(self) -> bool:
        try:
            for _ in client.subscribe(self._settings.work, self.node, timeout_s=ANSWER_S, connect_timeout_s=ANSWER_S):
                return True
        except OtherVersion as error:
            self._kill(str(error))
        except HostUnavailable:
            pass
        return False

    def _kill(self, why: str) -> None:
        """The host alone: its runs train on, and the next one finds them."""
        if (process := processes.holder(self._lock)) is not None:
            log.warning("%s: it is ended, and started anew", why)
            processes.send_signal(process, signal.SIGKILL)

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "training_runtime.host", "--home", str(self._settings.work), "--node", self.node]
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
