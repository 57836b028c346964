"""A real studio with two people who do not know each other: Alice, whose job trains, and Charlie, who is after it. All that they do, they
do as people do it, by the studio's pages and its REST interface."""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
import uuid
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.attack.visitor import Visitor, errors, number
from tests.e2e.studio import REPOSITORY, Studio, wait_until
from training_runtime.host import processes
from training_runtime.host.sandbox import network

HOSTILE = Path(__file__).with_name("hostile")
SLOTS = 4
HURRIED = {"EDT_STOP_GRACE_S": "1", "EDT_TERM_GRACE_S": "0.5"}
ROLES = {
    "web": "edt-studio: web",
    "host": "training_runtime.host",
}
WORKERS = ("edt-studio: ingest", "edt-studio: control")
ENDED = ("completed", "failed", "stopped")
MACHINE_FILES = (
    "/etc/shadow",
    "/etc/gshadow",
    "/etc/sudoers",
    "/root/.bashrc",
    "/root/.profile",
    "/var/log/dpkg.log",
    "/proc/kcore",
    "/proc/1/environ",
)


@dataclass
class Person:
    name: str
    browser: Visitor
    password: str
    project: int

    @property
    def token(self) -> str:
        """Of the REST interface."""
        basic = base64.b64encode(f"{self.name}:{self.password}".encode()).decode()
        return str(self.browser.get("/auth/v1/logon", Authorization=f"Basic {basic}").json()["accessToken"])


@dataclass
class Scene:
    """`mark`: what is Alice's alone, in her code, data, log, results and variables. `hers`: her run."""

    studio: Studio
    folder: Path
    people: dict[str, Person] = field(default_factory=dict)
    mark: str = field(default_factory=lambda: f"alice-{secrets.token_hex(8)}")
    hers: int = 0

    @property
    def alice(self) -> Person:
        return self.people["alice"]

    @property
    def charlie(self) -> Person:
        return self.people["charlie"]

    def meet(self, name: str, *, staff: bool = False) -> Person:
        """Log in, and make a project."""
        password = self.studio.account(name, staff=staff)
        browser = Visitor(self.studio.url).log_in(name, password)
        made = browser.post("/projects/new/", {"idempotency_key": uuid.uuid4(), "name": f"{name}'s", "description": ""})
        self.people[name] = Person(name, browser, password, number(made, "projects"))
        return self.people[name]

    def submit(self, who: Person, files: Mapping[str, str | Path], command: str, *, name: str, **changes: Any) -> int:
        """Create and run, on the form of a new experiment; the run's number."""
        code = self.folder / f"{uuid.uuid4().hex}.zip"
        with zipfile.ZipFile(code, "w", zipfile.ZIP_DEFLATED) as archive:
            for inside, content in files.items():
                archive.writestr(inside, content.read_text() if isinstance(content, Path) else content)
        definition = {"name": name, "framework": "pytorch", "command": command, "device": "any", "distributed": "single", "max_slots": 1}
        definition |= {"network": "none", "packages": "studio", "idempotency_key": uuid.uuid4(), **changes}
        fields = {"idempotency_key": uuid.uuid4(), "name": name, "description": "", "environment": ""}
        fields |= {f"new-{key}": value for key, value in definition.items()}
        made = who.browser.post(f"/projects/{who.project}/experiments/new/", fields, {"new-upload": code})
        experiment = number(made, "experiments")
        ((run,),) = self.studio.rows("SELECT id FROM experiments_trainingrun WHERE experiment_id = ?", experiment)
        return int(run)

    def begin_alices_training(self) -> None:
        """With a secret, a data set and a log of her own."""
        alice = self.meet("alice")
        sent = {"name": "TOKEN", "secret": "yes", "value": f"secret-{self.mark}"}
        saved = alice.browser.post(f"/projects/{alice.project}/variables/", sent)
        assert saved.status in (200, 302), errors(saved.text)
        data = self.folder / "hers.csv"
        data.write_text(self.mark)
        kept = alice.browser.post(
            f"/projects/{alice.project}/data/new/",
            {"name": "hers", "description": "", "idempotency_key": uuid.uuid4()},
            {"upload": data},
        )
        number(kept, "data")
        script = (HOSTILE / "victim.py").read_text() + f"\n# {self.mark}\n"
        self.hers = self.submit(alice, {"main.py": script}, f"main.py {self.mark}", name="hers", distributed="elastic", max_slots=2)
        wait_until(
            lambda: self.step(self.hers) > 2, lambda: f"Alice's job trains: {self.state(self.hers)}\n{self.studio.tail()}", deadline_s=90
        )

    def state(self, run: int) -> str:
        ((state,),) = self.studio.rows("SELECT state FROM experiments_trainingrun WHERE id = ?", run)
        return str(state)

    def step(self, run: int) -> int:
        ((step,),) = self.studio.rows("SELECT step FROM experiments_trainingrun WHERE id = ?", run)
        return int(step)

    def plan(self, run: int) -> str:
        ((words,),) = self.studio.rows("SELECT plan_reason FROM experiments_trainingrun WHERE id = ?", run)
        return str(words)

    def until_ended(self, run: int, *, deadline_s: float = 150.0) -> str:
        wait_until(
            lambda: self.state(run) in ENDED,
            lambda: f"run {run} ends: {self.state(run)}, {self.plan(run)}\n{self.console(run)[-3000:]}\n{self.studio.tail(20)}",
            deadline_s=deadline_s,
        )
        return self.state(run)

    def console(self, run: int) -> str:
        path = self.studio.folder(run) / "log" / "driver" / "console.log"
        return path.read_text(errors="replace") if path.is_file() else ""

    def processes_of(self, run: int) -> list[psutil.Process]:
        """What is left of it, by its folder and by the mark on command lines."""
        return [each for each in self.studio.processes() if str(self.studio.folder(run)) in _words(each)]


def _words(process: psutil.Process) -> str:
    try:
        return " ".join([*process.cmdline(), process.environ().get("RESULT_DIR", ""), process.cwd()])
    except (psutil.Error, OSError):  # a path may be too long to be read
        return ""


def hostile_files(scene: Scene, mark: str) -> dict[str, str | Path]:
    """The attacker's zip: its modules, and what it is told of this machine."""
    modules: dict[str, str | Path] = {path.name: path for path in HOSTILE.glob("*.py") if path.name != "victim.py"}
    return {**modules, "targets.json": json.dumps(targets(scene, mark))}


def targets(scene: Scene, mark: str) -> dict[str, Any]:
    """All that there is to attack, told by somebody who sees everything (this test, as root): no stranger would know so much."""
    home = scene.studio.home
    open_to_all = {home / "static", home / "data", home / "host" / "local" / "fabric"}
    below = [path for path in home.rglob("*") if not open_to_all & {path, *path.parents}]
    runtime = REPOSITORY / "training_runtime"
    library = Path(os.__file__).parent
    return {
        "home": str(home),
        "run": str(scene.studio.folder(scene.hers)),
        "victim": scene.hers,
        "mark": mark,
        "secret": str(home / "secrets" / "secret_key"),
        "files": sorted(str(path) for path in below if path.is_file() and not path.is_symlink()),
        "folders": sorted(str(path) for path in (home, *below) if path.is_dir() and not path.is_symlink()),
        "sockets": [(_kind(path), str(path)) for path in sorted(below) if path.is_socket()],
        "abstract": sorted(
            {line.split()[-1][1:] for line in Path("/proc/net/unix").read_text().splitlines() if line.split()[-1].startswith("@")}
        )[:20],
        "ports": sorted({each.laddr.port for each in psutil.net_connections("tcp4") if each.status == psutil.CONN_LISTEN}),
        "addresses": network.own_addresses(Path("/proc/net/fib_trie").read_text()),
        "processes": [(role, pid, ticks) for role, pid in _processes(scene) if (ticks := _ticks(pid))],
        "machine": [path for path in MACHINE_FILES if os.path.lexists(path)],
        "devices": [
            str(path) for path in Path("/dev").iterdir() if path.is_block_device() or path.name in ("mem", "kmsg", "port", "kvm", "fuse")
        ],
        "read-only": [str(runtime / "errors.py"), str(library / "os.py"), str(home / "data" / "shared.txt")],
        "read-only folders": [str(runtime), str(library), str(home / "data"), "/usr/bin", "/etc", "/root", "/var/tmp", "/"],
        "shared memory": f"/dev/shm/{mark}",
    }


def _kind(path: Path) -> str:
    if path.name == "broker.sock":
        return "broker"
    return "host" if path.name == "host.sock" else "driver" if re.match(r"run-", path.name) else "other"


def _ticks(pid: int) -> int:
    found = processes.look(pid)
    return found.start_ticks if found is not None else 0


def _processes(scene: Scene) -> list[tuple[str, int]]:
    """(what it is, its number) of each process of the studio, these tests, and the machine's first."""
    found = [("the tests", os.getpid()), ("the first process", 1)]
    for process in scene.studio.processes():
        words = _words(process)
        role = next((name for name, module in ROLES.items() if module in words), "")
        if str(scene.studio.folder(scene.hers)) in words:
            role = "Alice's job"
        elif not role:
            role = (
                "the broker" if "valkey" in words or "redis-server" in words else "a worker" if words.startswith(WORKERS) else "the studio"
            )
        found.append((f"{role} {process.pid}", process.pid))
    return found
