"""Two control sides of one studio on PostgreSQL, as two machines with its folder would have them, with a web process for both and the
studio's own machine, by the commands that docs/operations.md prints: for the test of a standby, and for what measures it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import psycopg

from tests import groups
from tests.domain import postgres
from tests.e2e.studio import REPOSITORY, free_port, printed_commands, wait_until
from webapp import home as homes
from webapp.studio import broker, own_machine, programs
from webapp.studio.processes import Child

SIDES = ("one", "two")
SUBMIT = """
from experiments import services
from experiments.accounts.passwords import give_password
from experiments.models import ClusterRules, TrainingRun, User
from tests import cast
alice = User.objects.filter(username="alice").first() or (give_password("alice", staff=False), User.objects.get(username="alice"))[1]
ClusterRules.current()
ClusterRules.objects.update(people_trust_each_other=True)
project = services.create_project(by=alice, name=f"Run {TrainingRun.objects.count()}")
version = cast.definition(project, by=alice, max_slots=1)
services.create_and_run(project, by=alice, name="one", versions=[version])
print(TrainingRun.objects.order_by("pk").last().pk)
"""
_HANGS = """
import os, signal
from django.db import transaction
from experiments.cluster import snapshot
with transaction.atomic():
    snapshot.lock_rules()
    os.kill(os.getpid(), signal.SIGSTOP)
"""
HANGS_WITH_THE_LOCK = f"{sys.executable} manage.py shell --no-imports --command '{_HANGS}'"
TWICE = """
SELECT a.id FROM experiments_grant a JOIN experiments_grant b ON a.slot_id = b.slot_id AND a.id < b.id
WHERE a.granted_at < COALESCE(b.released_at, 'infinity') AND b.granted_at < COALESCE(a.released_at, 'infinity')
"""


@dataclass
class ControlSides:
    """`processes`: by name, the control workers as "one" and "two"."""

    server: postgres.Server
    home: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        own = {"EDT_HOME": str(self.home), "DATABASE_URL": self.server.url, "EDT_NODE": "local", "EDT_SLOTS": "2"}
        return {**os.environ, **own, "DJANGO_SETTINGS_MODULE": "webapp.settings"}

    def start(self, name: str, command: str, **more: str) -> None:
        with open(self.home / "log" / f"{name}.log", "ab") as output:
            self.processes[name] = subprocess.Popen(
                ["sh", "-c", f"exec {command}"],
                cwd=REPOSITORY,
                env={**self.environment, **more},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def have_a_machine(self) -> None:
        """The studio's own, whose link reaches the pages of a web process."""
        (web,) = [line for line in printed_commands("## A standby") if "webapp.studio.web" in line]
        (join,) = printed_commands("## Several machines")
        port = free_port()
        self.start("web", web.replace("8000", str(port)))
        token = own_machine.token_file(self.home).read_text().strip()
        self.start("link", join, STUDIO=f"http://127.0.0.1:{port}", TOKEN=token, EDT_NODE_HOME=str(self.home / "node"))

    def start_side(self, name: str) -> None:
        (command,) = [line for line in printed_commands("## A standby") if "--queues control" in line]
        self.start(name, command, EDT_SIDE=name)

    def kill(self, name: str) -> None:
        self.processes[name].kill()
        self.processes[name].wait(10)

    def manage(self, *arguments: str) -> str:
        command = [sys.executable, "manage.py", *arguments]
        done = subprocess.run(command, cwd=REPOSITORY, env=self.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def submit(self) -> int:
        return int(self.manage("shell", "--no-imports", "--command", SUBMIT).split()[-1])

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        folder = self.server.url.rpartition("host=")[2]
        with psycopg.connect(host=folder, user="edt", dbname="postgres") as connection:
            return connection.execute(query).fetchall()

    def holder(self) -> str:
        """The side that has the clock; empty where neither has, or it has ended."""
        found = self.rows("SELECT split_part(holder, ':', 2) FROM experiments_lease WHERE name = 'beat' AND until > now()")
        live = {str(process.pid): name for name, process in self.processes.items() if process.poll() is None}
        return live.get(found[0][0], "") if found else ""

    def ticks(self) -> int:
        """Plans so far."""
        found = self.rows("SELECT tick FROM experiments_clusterrules")
        return int(found[0][0]) if found else 0

    def plan_go_on(self, what: str, *, deadline_s: float = 60.0) -> None:
        """Nobody nudges: it is the clock that asks for them."""
        before = self.ticks()
        wait_until(lambda: self.ticks() > before + 1, lambda: f"plans go on {what}\n{self.words()}", deadline_s=deadline_s)

    def words(self) -> str:
        return "\n".join("\n".join(path.read_text().splitlines()[-15:]) for path in sorted((self.home / "log").glob("*.log")))

    def close(self) -> None:
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait(20)
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.pid != os.getpid() and any(str(self.home) in word for word in process.cmdline()):
                    process.kill()
        wait_until(lambda: all(map(groups.are_gone, (self.home / "host").glob("*"))), "the end of all control groups", deadline_s=20)


@contextlib.contextmanager
def running() -> Iterator[ControlSides]:
    """Database, broker, pages, a machine and both sides; all of it is gone afterwards."""
    home = Path(tempfile.mkdtemp(prefix="edt-sides-"))
    home.chmod(0o755)
    homes.prepare(home)
    for name in ("run", "log", "redis"):
        (home / name).mkdir(mode=0o700, exist_ok=True)
    valkey = Child(programs._broker(home), home)
    try:
        with postgres.server() as server:
            broker.make_socket_folder(home)
            valkey.start()
            broker.wait(homes.broker_urls(home, "")[1])
            sides = ControlSides(server, home)
            try:
                sides.manage("prepare")
                sides.have_a_machine()
                (ingest,) = [line for line in printed_commands("## A standby") if "--queues ingest" in line]
                sides.start("ingest", ingest, EDT_SIDE="one")
                for name in SIDES:
                    sides.start_side(name)
                wait_until(sides.holder, lambda: f"one of them has the clock\n{sides.words()}")
                yield sides
            finally:
                sides.close()
    finally:
        valkey.kill()
        if valkey.popen is not None:
            valkey.popen.wait(20)
        shutil.rmtree(home, ignore_errors=True)
