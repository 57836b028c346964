"""A Ray cluster of two nodes on this machine, with a token of its own: everything in a folder, on ports that are free, and gone with it."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.slurm import kill_all_of
from tests.e2e.studio import REPOSITORY, free_port, wait_until

RAY = REPOSITORY / ".cache" / "ray" / "bin" / "ray"
needs_ray = pytest.mark.skipif(not RAY.exists(), reason="Ray is not installed in .cache/ray (tools/setup.sh test)")
NODE = (
    *("--num-cpus=2", "--num-gpus=0", '--resources={"apart": 1}', "--object-store-memory=100000000", "--disable-usage-stats"),
    *("--min-worker-port=0", "--max-worker-port=0"),
)


@dataclass
class Cluster:
    """A running one. `settings`: of a studio that is to use it."""

    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="edt-ray-")))
    token: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)
    ports: dict[str, int] = field(default_factory=lambda: {name: free_port() for name in ("gcs", "dashboard", "client", "first", "second")})

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.ports['dashboard']}"

    @property
    def settings(self) -> dict[str, str]:
        return {"EDT_RAY_ADDRESS": self.address, "EDT_RAY_TOKEN": self.token, "EDT_PILOT_FOLDER": str(self.folder / "pilots")}

    def start(self) -> None:
        self.folder.chmod(0o755)
        (self.folder / "pilots").mkdir(mode=0o755)
        ports = self.ports
        head = (f"--port={ports['gcs']}", "--dashboard-host=127.0.0.1", f"--dashboard-port={ports['dashboard']}")
        head += (f"--ray-client-server-port={ports['client']}", f"--temp-dir={self.folder}")
        self.says("start", "--head", *head, f"--dashboard-agent-listen-port={ports['first']}", *NODE)
        self.says("start", f"--address=127.0.0.1:{ports['gcs']}", f"--dashboard-agent-listen-port={ports['second']}", *NODE)
        wait_until(lambda: self._nodes() == 2, self.tail, deadline_s=60)

    def says(self, *arguments: str) -> str:
        """What a command of Ray answers."""
        mine = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(self.folder), "RAY_USAGE_STATS_ENABLED": "0"}
        mine |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token, "RAY_ADDRESS": self.address}
        if arguments[0] == "start":
            del mine["RAY_ADDRESS"]
        with open(self.folder / "commands.log", "a+b") as output:
            begins = output.tell()
            done = subprocess.run(
                [RAY, *arguments], env=mine, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=90
            )
            output.seek(begins)
            said = output.read().decode(errors="replace")
        assert done.returncode == 0, said
        return said

    def shows(self, path: str) -> str:
        """What the dashboard shows to who has its token."""
        answer = httpx.get(self.address + path, headers={"Authorization": f"Bearer {self.token}"}, timeout=20)
        assert answer.status_code in (200, 404), f"{path}: {answer.text}"
        return answer.text

    def asks(self, path: str) -> Any:
        return json.loads(self.shows(path))

    def jobs(self, *states: str) -> list[str]:
        return [each["submission_id"] for each in self.asks("/api/jobs/") if each["status"] in (states or ("PENDING", "RUNNING"))]

    def _nodes(self) -> int:
        with contextlib.suppress(httpx.HTTPError, AssertionError, ValueError, KeyError, TypeError):
            return len(self.asks("/api/v0/nodes")["data"]["result"]["result"])
        return 0

    def tail(self) -> str:
        logs = [
            *self.folder.glob("*.log"),
            *self.folder.glob("session_latest/logs/job-driver-*.log"),
            *self.folder.glob("pilots/*/home/host.log"),
        ]
        return "\n".join(f"{path.name}: " + "\n".join(path.read_text(errors="replace").splitlines()[-15:]) for path in sorted(logs))

    def close(self) -> None:
        kill_all_of(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def ray() -> Iterator[Cluster]:
    cluster = Cluster()
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
