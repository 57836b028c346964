"""One child process of the studio: started in a session of its own, written down so that a later studio finds it, reaped, stopped.

It is a program that is executed, or is forked from the studio's process and runs what that has loaded (`forked`).

A child is either `tied` (it ends when the studio ends, however that happens) or it survives its studio and is taken over by the next one.
No policy: when a child is restarted or stopped is decided in `supervisor`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from training_runtime.host.processes import Process, alive, boot_id, descendants, look, send_signal, table
from training_runtime.version_skew import ProtocolVersion, too_far_behind
from webapp.studio import forked, log
from webapp.studio.checks import Refusal
from webapp.studio.forked import Forked, Main, Setting


@dataclass(frozen=True)
class Program:
    """What is run. `standard_input` is asked for at every start (it may hold a secret); `stop_s`: the time it has to end when asked.
    `version`: of what one that outlives its studio speaks; one that is too far from it is not taken over, and one that is to start `anew`
    never is. `stops`: those with a lower number are stopped first. `load`: where there is one, the child is forked, and what this returns
    runs in it with `argv` as its command line; without standard input."""

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    folder: Path
    standard_input: Callable[[], bytes] | None = None
    inherited: tuple[int, ...] = ()
    tied: bool = True
    version: ProtocolVersion | None = None
    anew: bool = False
    stops: int = 0
    stop_s: float = 8.0
    load: Callable[[], Main] | None = None


@dataclass
class Child:
    """A program and, once started or taken over, its process."""

    program: Program
    home: Path
    process: Process | None = None
    popen: subprocess.Popen[bytes] | Forked | None = None

    @property
    def name(self) -> str:
        return self.program.name

    @property
    def note(self) -> Path:
        """Where its process is written down: "pid start-ticks version oldest-version", and below it the id of the boot that they are of."""
        return self.home / "run" / f"{self.name}.pid"

    def start(self) -> None:
        program = self.program
        main = forked.loaded(program.load) if program.load is not None else None
        said = program.standard_input() if program.standard_input is not None else b""  # where there is none nothing is started
        with log.open_for(self.home, self.name) as output:
            self.popen = self._executed(output) if main is None else self._forked(main, output)
        self.process = look(self.popen.pid)
        assert self.process is not None, "a child that is not reaped has an entry in /proc"
        self._write_down()
        if isinstance(self.popen, subprocess.Popen) and self.popen.stdin:
            with contextlib.suppress(BrokenPipeError):
                self.popen.stdin.write(said)
                self.popen.stdin.close()

    def _executed(self, output: IO[bytes]) -> subprocess.Popen[bytes]:
        program = self.program
        return subprocess.Popen(
            program.argv,
            cwd=program.folder,
            env=dict(program.environment),
            stdin=subprocess.PIPE if program.standard_input else subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=program.inherited,
            preexec_fn=forked.tie_to_this_process() if program.tied else None,  # safe here: the studio's process has one thread
        )

    def _forked(self, main: Main, output: IO[bytes]) -> Forked:
        program = self.program
        assert program.tied, "what outlives its studio is a program of its own"
        setting = Setting(
            f"edt-studio: {self.name}",
            program.argv,
            program.environment,
            program.folder,
            output,
            inherited=program.inherited,
            tie=forked.tie_to_this_process(),
        )
        return forked.fork(main, setting)

    def _write_down(self) -> None:
        """Where that cannot be, as on a full disk, one that outlives the studio is ended, with OSError, for no later one would find it."""
        assert self.process is not None
        assert self.popen is not None
        try:
            version = self.program.version
            spoken = f" {version.version} {version.oldest}" if version is not None else ""
            self.note.write_text(f"{self.process.pid} {self.process.start_ticks}{spoken}\n{boot_id()}\n")
        except OSError:
            self.note.unlink(missing_ok=True)
            if self.program.tied:
                return
            kill_family(self.process)
            self.popen.wait()
            self.process = self.popen = None
            raise

    def take_over(self) -> bool:
        """Adopt the process that an earlier studio left; False where there is none, or where it is not to be: that one is ended alone, and
        whatever outlives it is found by the next."""
        program, self.process, self.popen = self.program, written_down(self.note), None
        if self.process is not None and (program.anew or (program.version and not _works_with(program.version, self.note))):
            end_alone(self.process)
            self.process = None
        return self.process is not None

    def alive(self) -> bool:
        """Also reaps it. What a dead tied child has forked is killed with it."""
        if self.process is None:
            return False
        if self.popen is None:
            return alive(self.process.pid, self.process.start_ticks)
        if os.waitid(os.P_PID, self.popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return True
        if self.program.tied:  # before it is reaped: until then its number, which is also its group's, cannot be given to another
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()
        self.process = self.popen = None
        self.note.unlink(missing_ok=True)
        return False

    def ask_to_stop(self) -> None:
        if self.process is not None:
            send_signal(self.process, signal.SIGTERM)

    def kill(self) -> None:
        """At once, with everything below it."""
        if self.process is not None:
            kill_family(self.process)

    def kill_alone(self) -> None:
        """At once, and nothing else: what it has started may outlive it, or goes with it by itself (see `alive`)."""
        if self.process is not None:
            send_signal(self.process, signal.SIGKILL)


def _works_with(ours: ProtocolVersion, note: Path) -> bool:
    """Whether what is written down there speaks a version with which this one works."""
    match note.read_text().partition("\n")[0].split()[2:]:
        case [version, oldest] if version.isdecimal() and oldest.isdecimal():
            return not too_far_behind(ours, ProtocolVersion(int(version), int(oldest)))
        case [version]:  # from before versions one apart worked together
            return version == str(ours.version)
    return False


def end_alone(process: Process, *, deadline_s: float = 10.0) -> None:
    """SIGKILL for this process and nothing else, and wait until it is gone; no longer than the deadline."""
    send_signal(process, signal.SIGKILL)
    end = time.monotonic() + deadline_s
    while alive(process.pid, process.start_ticks) and time.monotonic() < end:
        time.sleep(0.02)


def kill_family(process: Process) -> None:
    """SIGKILL for a process, its descendants and its session."""
    processes = table()
    family = descendants([process.pid], processes) | {p.pid for p in processes.values() if p.session == process.pid}
    for pid in {process.pid} | family:
        if pid in processes:
            send_signal(processes[pid], signal.SIGKILL)


def written_down(note: Path) -> Process | None:
    """The process that a studio wrote down here, if it still runs."""
    try:
        said, _, boot = note.read_text().partition("\n")
        pid, ticks = map(int, said.split()[:2])
    except (FileNotFoundError, ValueError):
        return None
    if boot.strip() not in ("", boot_id()):  # an earlier release wrote none; pids and ticks begin anew with the machine
        return None
    process = look(pid)
    return process if process is not None and process.start_ticks == ticks and process.state not in "ZX" else None


def clear_leftovers(home: Path, *, survivor: str = "host", deadline_s: float = 10.0) -> None:
    """End the tied processes of a studio that was killed: they are ending already, and must be gone before others take their place.

    Raises Refusal where one does not go even when it is killed: it waits for a device or a file system.
    """
    notes = [note for note in (home / "run").glob("*.pid") if note.stem != survivor]
    left = [process for note in notes if (process := written_down(note))]
    for process in left:
        send_signal(process, signal.SIGTERM)
    end = time.monotonic() + deadline_s
    while left := [process for process in left if alive(process.pid, process.start_ticks)]:
        if time.monotonic() > end + deadline_s:
            raise Refusal(
                f"Processes of an earlier studio cannot be ended ({', '.join(str(process.pid) for process in left)}): they wait for a "
                "device or a file system. Make that answer, or restart the machine."
            )
        if time.monotonic() > end:
            for process in left:
                kill_family(process)
        time.sleep(0.02)
    for note in notes:
        note.unlink(missing_ok=True)
