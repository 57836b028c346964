"""A whole studio in a folder of its own, for tests and for pictures: real Valkey, Celery, node host and training processes.

The folder lies under the temporary directory and not below anybody's home, because user code runs as another user. Whatever happens,
`close` leaves no process and no folder.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import psutil
import psycopg

from tests import groups
from tests.e2e.shell import Shell

REPOSITORY = Path(__file__).resolve().parents[2]
T = TypeVar("T")


def wait_until(condition: Callable[[], T], what: str | Callable[[], str], *, deadline_s: float = 60.0, every_s: float = 0.1) -> T:
    """The first true value of `condition`; AssertionError with `what`, asked then, when it does not come in time."""
    end = time.monotonic() + deadline_s
    while True:
        if value := condition():
            return value
        assert time.monotonic() < end, f"after {deadline_s:.0f} s still not: {what() if callable(what) else what}"
        time.sleep(every_s)


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def printed_commands(heading: str) -> list[str]:
    """The lines that the section of docs/operations.md prints to be typed; with the interpreter that runs the tests."""
    section = (REPOSITORY / "docs" / "operations.md").read_text().split(f"{heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line.strip() for line in section.splitlines() if line.startswith("    ")]
    assert lines, f"nothing is printed under {heading}"
    return [line.replace(".venv/bin/python", sys.executable) for line in lines]


LIVE = "'queued', 'starting', 'running', 'suspended', 'stopping'"
IMPORTS = "from experiments import services\nfrom experiments.models import TrainingRun\nfrom experiments.models.runs import LIVE"
PEOPLE = {"alice": False, "bob": False, "admin": True}  # and whether they are administrators


@functools.cache
def prepared_home() -> tuple[Path, dict[str, str]]:
    """A home whose database and static files are as a first start makes them, with accounts, and their passwords: made once by this
    process, which removes it at its end."""
    home = Path(tempfile.mkdtemp(prefix="edt-prepared-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    environment = {**os.environ, "EDT_HOME": str(home), "DJANGO_SETTINGS_MODULE": "webapp.settings"}
    environment.pop("DATABASE_URL", None)
    subprocess.run([sys.executable, "manage.py", "prepare"], cwd=REPOSITORY, env=environment, check=True, capture_output=True)
    imports = (
        "from experiments.accounts.passwords import give_password\nfrom experiments.models import ClusterRules\nClusterRules.current()"
    )
    code = f"{imports}\nfor name, staff in {PEOPLE}.items():\n    print(give_password(name, staff=staff))"
    shell = [sys.executable, "manage.py", "shell", "--no-imports", "-c", code]
    said = subprocess.run(shell, cwd=REPOSITORY, env=environment, check=True, capture_output=True, text=True).stdout
    return home, dict(zip(PEOPLE, said.split(), strict=True))


@functools.cache
def keeps_people_apart(**settings: str) -> bool:
    """Whether the host's box does on this machine, with these settings of its own, as it would find out at its start."""
    code = (
        "import os, pathlib, sys\n"
        "from training_runtime.host.sandbox import probe; from training_runtime.host import settings\n"
        "from training_runtime.scheduling.isolation import KEEP_APART\n"
        "home = pathlib.Path(sys.argv[1])\n"
        "print(probe.strongest(home, settings.sandbox_policy(os.environ, home=home)).level in KEEP_APART)"
    )
    with tempfile.TemporaryDirectory(prefix="edt-probe-") as home:
        Path(home).chmod(0o755)
        command = [sys.executable, "-c", code, home]
        said = subprocess.run(command, cwd=REPOSITORY, env={**os.environ, **settings}, check=True, capture_output=True, text=True)
    return said.stdout.strip() == "True"


@dataclass
class Studio:
    """A running studio: `url`, its `home`, and the accounts made so far. `address`: where its machines say that others reach them.
    `settings`: more of its environment. `first`: whether it starts from an empty home, as on a new machine, and not from a prepared one.
    `trusting`: the people of a prepared one trust each other where the box of this machine does not keep their code apart. `host`: the
    address that it listens on. `code`: the folder of the release that it runs. `within`: what stands before its commands, and `owner` whose
    its home is, where it is somebody else's (see `tests.somebody`)."""

    slots: int = 4
    address: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    first: bool = False
    trusting: bool = True
    host: str = "127.0.0.1"
    code: Path = REPOSITORY
    within: tuple[str, ...] = ()
    owner: int | None = None
    home: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="edt-e2e-")))
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None
    others: list[subprocess.Popen[bytes]] = field(default_factory=list)
    passwords: dict[str, str] = field(default_factory=dict)  # of the accounts that there are
    open_shell: Shell | None = None

    @property
    def python(self) -> str:
        """Of the environment that the release is installed in."""
        return sys.executable if self.code == REPOSITORY else str(self.code / ".venv" / "bin" / "python")

    @property
    def _interpreter(self) -> list[str]:
        """For a program that is none of the studio's own, which are in its user namespace by themselves."""
        there = [*self.within, self.python, "-m", "training_runtime.host.rootless"] if self.within else []
        return [*there, self.python]

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        own = {"EDT_HOME": str(self.home), "DJANGO_SETTINGS_MODULE": "webapp.settings", "EDT_SLOTS": str(self.slots)}
        return {**os.environ, **own, "EDT_NODE_ADDRESS": self.address, **self.settings}

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def output(self) -> Path:
        return self.home.with_suffix(".log")

    def start(self) -> float:
        """Seconds until the first page was served."""
        self.close_shell()  # it is of the release that was there before
        if not self.first and not (self.home / "installation").exists():
            prepared, passwords = prepared_home()
            shutil.copytree(prepared, self.home, dirs_exist_ok=True)
            self.passwords = dict(passwords)
            box = {name: value for name, value in self.settings.items() if name in ("EDT_SANDBOX", "EDT_UID_BASE")}
            if self.trusting and not keeps_people_apart(**box):
                self.trust()
        self.home.chmod(0o755)  # mkdtemp makes it private; runs' own users must reach their folders in it
        self.give_to_owner()
        began = time.monotonic()
        self.process = subprocess.Popen(
            [*self.within, self.python, "manage.py", "studio", "--host", self.host, "--port", str(self.port)],
            cwd=self.code,
            env=self.environment,
            stdout=self.output.open("ab"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            wait_until(self._answers, f"the studio's first page (see its output):\n{self.tail()}", deadline_s=60, every_s=0.05)
        except AssertionError:
            raise AssertionError(f"the studio did not start:\n{self.tail()}") from None
        return time.monotonic() - began

    def give_to_owner(self) -> None:
        """What the tests, as root, have put into its home."""
        if self.owner is not None:
            subprocess.run(["chown", "-R", "--from=0:0", f"{self.owner}:{self.owner}", str(self.home)], check=True)

    def trust(self) -> None:
        """What an administrator says under Scheduling policy."""
        with contextlib.closing(sqlite3.connect(self.home / "db.sqlite3", timeout=20)) as database, database:
            database.execute("UPDATE experiments_clusterrules SET people_trust_each_other = 1")

    def join(self, node: str) -> None:
        """Let a second node take part, by the command that docs/operations.md prints for a machine that shares the studio's folders."""
        code = (
            "from experiments import services\nfrom experiments.models import User\n"
            f"admin = User.objects.get(username='admin')\nprint(services.add_node(by=admin, name={node!r}, slots={self.slots})[1])"
        )
        token = self.shell(code).strip().splitlines()[-1]
        own = {"STUDIO": self.url, "TOKEN": token, "EDT_NODE_HOME": str(self.home / "machines" / node)}
        (command,) = printed_commands("## Several machines")
        self.others.append(
            subprocess.Popen(
                ["sh", "-c", f"exec {command} --address {self.address or 'none'}"],
                cwd=REPOSITORY,
                env={**self.environment, **own},
                stdout=self.output.open("ab"),
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        )
        heard = "SELECT id FROM experiments_node WHERE name = ? AND last_seen_at IS NOT NULL"
        wait_until(lambda: self.rows(heard, node), lambda: f"node {node} is heard of\n{self.tail()}", deadline_s=60)

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"the studio ended with status {self.process.returncode}:\n{self.tail()}"
        with contextlib.suppress(OSError):
            return int(urllib.request.urlopen(f"{self.url}/login/", timeout=5).status) == 200
        return False

    def tail(self, lines: int = 60) -> str:
        return "\n".join(self.output.read_text(errors="replace").splitlines()[-lines:]) if self.output.exists() else ""

    def manage(self, *arguments: str) -> str:
        command = [*self.within, self.python, "manage.py", *arguments]
        done = subprocess.run(command, cwd=self.code, env=self.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def shell(self, code: str) -> str:
        """What the code prints in `manage.py shell`; it does not see what earlier code has named."""
        self.open_shell = self.open_shell or Shell(self._interpreter, code=self.code, environment=self.environment)
        return self.open_shell.says(code)

    def close_shell(self) -> None:
        if self.open_shell is not None:
            self.open_shell.close()
            self.open_shell = None

    def account(self, name: str, *, staff: bool = False, anew: bool = False) -> str:
        """The password of an account, which is made where there is none, as by `manage.py person`. `anew`: another one than before."""
        if anew or name not in self.passwords or staff != PEOPLE.get(name, staff):
            code = f"from experiments.accounts.passwords import give_password\nprint(give_password({name!r}, staff={staff}))"
            self.passwords[name] = self.shell(code).strip()
        return self.passwords[name]

    def stop_all_runs(self) -> None:
        """And wait until no slot is held."""
        if self.rows(f"SELECT id FROM experiments_trainingrun WHERE state IN ({LIVE})"):
            code = "for run in TrainingRun.objects.filter(state__in=LIVE): services.stop_run(run, by=run.submitted_by)"
            self.shell(f"{IMPORTS}\n{code}")
        wait_until(lambda: not self.held(), "every slot is free")

    def rows(self, query: str, *arguments: Any) -> list[tuple[Any, ...]]:
        """Read the studio's own database, as an auditor would."""
        if url := self.settings.get("DATABASE_URL"):
            with psycopg.connect(url) as server:
                return server.execute(query.replace("?", "%s").encode(), arguments).fetchall()
        with contextlib.closing(sqlite3.connect(f"file:{self.home}/db.sqlite3?mode=ro", uri=True, timeout=20)) as database:
            return database.execute(query, arguments).fetchall()

    def folder(self, run: int) -> Path:
        """Where the run's files are."""
        ((name,),) = self.rows("SELECT folder FROM experiments_trainingrun WHERE id = ?", run)
        return self.home / "runs" / str(name)

    def held(self) -> dict[int, int]:
        """Open grants by run id."""
        return dict(self.rows("SELECT run_id, COUNT(*) FROM experiments_grant WHERE released_at IS NULL GROUP BY run_id"))

    def processes(self, module: str | None = None) -> list[psutil.Process]:
        """Every process that belongs to this studio: its home is on the command line, in the environment or the working folder.

        `module`: of those only the ones that run this module.
        """
        mine = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                tests = (os.getpid(), self.open_shell.process.pid if self.open_shell is not None else 0)
                other = process.pid not in tests and process.status() != psutil.STATUS_ZOMBIE
                if other and self._is_mine(process) and module in (None, *process.cmdline()):
                    mine.append(process)
        return mine

    def _is_mine(self, process: psutil.Process) -> bool:
        home = str(self.home)
        if any(home in word for word in process.cmdline()):
            return True
        with contextlib.suppress(psutil.Error):
            if process.environ().get("EDT_HOME") == home:
                return True
        with contextlib.suppress(psutil.Error, OSError):  # a path may be too long to be read
            return process.cwd().startswith(home)
        return False

    def stop(self, *, deadline_s: float = 40.0) -> int:
        """Ctrl-C, as a person would; the exit status."""
        assert self.process is not None
        self.close_shell()
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(deadline_s)

    def close(self) -> None:
        self.close_shell()
        if self.is_running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.stop()
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                process.kill()
        for other in self.others:
            other.wait(10)
        if self.process is not None:
            self.process.wait(10)
        hosts = [*self.home.glob("host/*"), *self.home.glob("node/host/*")]
        wait_until(lambda: all(map(groups.are_gone, hosts)), "the end of all control groups", deadline_s=20)
        shutil.rmtree(self.home, ignore_errors=True)
        self.output.unlink(missing_ok=True)
