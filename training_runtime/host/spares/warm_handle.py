"""The host's end of the warm process: starts it with a scrubbed environment, asks it to fork, starts it again when it dies."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from training_runtime.host.spares import warm

log = logging.getLogger(__name__)
_LONGEST_PAUSE_S = 30.0


class WarmProcess:
    """One at a time. Runs that it forked do not depend on it: they are children of the host."""

    def __init__(self, *, preload: tuple[str, ...], environment: Mapping[str, str], log_file: Path) -> None:
        self._preload = preload
        self._environment = dict(environment)
        self._log_file = log_file
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self.ready = False
        self.problem = ""
        self._deaths_in_a_row = 0
        self.restart_at: float | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def fileno(self) -> int:
        return self._control.fileno() if self._control else -1

    def start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        command = [sys.executable, "-m", "training_runtime.host.spares.warm", str(theirs.fileno()), ",".join(self._preload)]
        with open(self._log_file, "wb") as output:
            self._process = subprocess.Popen(
                command,
                env=self._environment,
                cwd=Path(warm.__file__).resolve().parents[3],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C in a terminal is for the host alone
            )
        theirs.close()
        self._control = ours
        self.ready = False
        self.restart_at = None
        log.info("starting the warm process pid=%d", self._process.pid)

    def receive(self, now: float) -> bool:
        """Call when its socket is readable. False when it is gone: it is started again at `restart_at`."""
        assert self._control is not None
        try:
            message = self._control.recv(1 << 16)
        except BlockingIOError:
            return True
        except OSError:
            message = b""
        if not message:
            self._gone(now)
            return False
        report = json.loads(message)
        self.ready, self.problem, self._deaths_in_a_row = True, "; ".join(report["problems"]), 0
        log.info("the warm process is ready pid=%s threads=%d", self.pid, report["threads"])
        if self.problem:
            log.warning("the warm process could not import everything: %s", self.problem)
        if report["threads"] != 1:
            log.warning("the warm process has %d threads; forking from it is not safe", report["threads"])
        return True

    def _gone(self, now: float) -> None:
        assert self._control is not None
        self._control.close()
        self._control = None
        self.ready = False
        pause_s = 0.0 if self._deaths_in_a_row == 0 else min(_LONGEST_PAUSE_S, 0.5 * 2**self._deaths_in_a_row)
        self._deaths_in_a_row += 1
        self.restart_at = now + pause_s
        self.problem = self._log_tail()
        log.error("the warm process is gone, starting it again in %.1f s: %s pid=%s", pause_s, self.problem, self.pid)

    def _log_tail(self) -> str:
        try:
            lines = self._log_file.read_text(errors="replace").strip().splitlines()
        except OSError:
            lines = []
        return lines[-1][:300] if lines else "it said nothing"

    def reaped(self) -> None:
        if self._process is not None:
            self._process.returncode = 0  # the host reaps all children itself; keeps Popen from waiting for a stranger of the same number

    def fork(self, gate: socket.socket, listener: socket.socket, exit_file: Path) -> None:
        """Ask for a shim and a driver that talks through `gate`. Raises OSError when it cannot be asked now."""
        if self._control is None or not self.ready:
            raise ConnectionError("the warm process is not ready")
        socket.send_fds(self._control, [os.fsencode(exit_file)], [gate.fileno(), listener.fileno()])

    def end(self) -> None:
        """It leaves when its socket closes; killed as well, in case it is in the middle of an import."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None and self._process.returncode is None:
            os.kill(self._process.pid, 9)
            self._process.wait()
