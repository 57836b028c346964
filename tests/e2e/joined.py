"""A machine that joins a studio under test: a link and a host in a home of their own, which share no folder with it."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests import groups
from tests.e2e.studio import REPOSITORY, Studio, wait_until


@dataclass
class Joined:
    """`home`: all that the machine keeps. `line`: the command that the studio has printed, but for its home. `code`: the folder of the
    release that is installed there, where it is not this one's environment."""

    studio: Studio
    name: str
    line: str
    data: Path | None = None
    home: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="edt-joined-")))
    process: subprocess.Popen[bytes] | None = None
    within: tuple[str, ...] = ()  # the command in which it is run, as of a network namespace
    code: Path | None = None
    settings: dict[str, str] = field(default_factory=dict)  # of its host

    def start(self, *more: str) -> None:
        """The line as it was printed, with the command of the environment that runs the tests, and with `more` words."""
        self.home.chmod(0o755)  # mkdtemp makes it private; runs' own users must reach their folders in it
        program, *arguments = shlex.split(self.line)
        assert program == "edt-node"
        commands = Path(sys.executable).parent if self.code is None else self.code / ".venv" / "bin"
        command = [*self.within, str(commands / program), *arguments, "--home", str(self.home), *more]
        if self.data is not None:
            command += ["--data-root", str(self.data)]
        mine = {**{name: value for name, value in os.environ.items() if not name.startswith("EDT_")}, **self.settings}
        with open(self.log, "ab") as output:
            self.process = subprocess.Popen(
                command,
                cwd=self.code or REPOSITORY,
                env=mine,
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def arrives(self) -> None:
        self.start()
        wait_until(self.is_heard_of, lambda: f"{self.name} is heard of\n{self.tail()}\n{self.studio.tail()}")

    def is_heard_of(self) -> bool:
        fresh = "SELECT 1 FROM experiments_node WHERE name = ? AND last_seen_at > strftime('%Y-%m-%d %H:%M:%f', 'now', '-2 seconds')"
        return bool(self.studio.rows(fresh, self.name))

    @property
    def log(self) -> Path:
        return self.home / "link.log"

    def tail(self) -> str:
        logs = [path.read_text(errors="replace") for path in (self.log, self.home / "host.log") if path.exists()]
        return "\n".join("\n".join(text.splitlines()[-40:]) for text in logs)

    def folder(self, run: int) -> Path:
        """Where the run's files are on this machine, also when it was put away: of its stays the last, which the trash has by time."""
        name = self.studio.folder(run).name
        put_away = sorted((self.home / "runs" / ".trash").glob(f"*-{name}"), reverse=True)
        (found,) = [*(self.home / "runs").glob(name), *put_away][:1] or [self.home / "runs" / name]
        return found

    def processes(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):  # the path of a working folder may be too long to be read
                if process.status() != psutil.STATUS_ZOMBIE and (self._names_home(process) or process.cwd().startswith(str(self.home))):
                    found.append(process)
        return found

    def _names_home(self, process: psutil.Process) -> bool:
        if process.pid == os.getpid():
            return False
        if any(str(self.home) in word for word in process.cmdline()):
            return True
        with contextlib.suppress(psutil.Error):
            return any(str(self.home) in value for value in process.environ().values())
        return False

    def burns(self) -> None:
        """Every process of the machine is gone at once, as when its power is cut."""
        for _ in range(3):  # one that was forked meanwhile
            for process in self.processes():
                with contextlib.suppress(psutil.Error, OSError):  # the path of a working folder may be too long to be read
                    process.kill()
        if self.process is not None:
            self.process.wait(10)
        wait_until(lambda: not self.processes(), "no process of the machine is left", deadline_s=20)

    def leaves(self, *, deadline_s: float = 60.0) -> int:
        """Ctrl-C, as a person would; the exit status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(deadline_s)

    def close(self) -> None:
        self.burns()
        wait_until(lambda: all(map(groups.are_gone, (self.home / "host").glob("*"))), "the end of its control groups", deadline_s=20)
        shutil.rmtree(self.home, ignore_errors=True)


def line_for(studio: Studio, name: str, *, slots: int) -> str:
    """What an administrator runs there, made without a browser."""
    code = (
        "from experiments import services\nfrom experiments.models import User\n"
        f"admin = User.objects.get(username='admin')\n_, secret = services.add_node(by=admin, name={name!r}, slots={slots})\n"
        f"print(services.join_line({studio.url!r}, secret))"
    )
    return studio.shell(code).strip().splitlines()[-1]
