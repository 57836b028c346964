"""A studio as the Helm chart has it, beside a stand-in for its cluster (tests/e2e/kubernetes.py): the processes of its pod with the
commands, environment and probe that Helm renders, a PostgreSQL and a Valkey by address, and folders for what is mounted."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from tests.domain import postgres
from tests.domain.kubernetes_server import NAMESPACE
from tests.e2e.kubernetes import Cluster, kubernetes, with_folders
from tests.e2e.slurm import kill_all_of
from tests.e2e.studio import REPOSITORY, free_port, wait_until
from tests.platform.test_helm import of, rendered
from webapp.studio import broker

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


class ChartStudio:
    """`pod`: what Helm renders for its processes. `url`: of its pages, on a port of this machine in place of the pod's."""

    def __init__(self, cluster: Cluster, server: postgres.Server, folder: Path) -> None:
        self.cluster, self.server, self.folder = cluster, server, folder
        self.port, broker_port, password = free_port(), free_port(), secrets.token_hex(16)
        self.url = f"http://127.0.0.1:{self.port}"
        self.connections = {"DATABASE_URL": server.url, "EDT_REDIS_URL": f"redis://:{password}@127.0.0.1:{broker_port}/0"}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        where = {name: cluster.settings[name] for name in ("EDT_KUBERNETES_ADDRESS", "EDT_KUBERNETES_CA")}
        values = {
            "pilots": {"command": f"{Path(sys.executable).with_name('edt-node')} join"},
            "studio": {"settings": {**where, "EDT_KUBERNETES_TOKEN_FILE": f"{ACCOUNT}/token"}},
        }
        words = [word for name, value in values.items() for word in ("--set-json", f"{name}={json.dumps(value)}")]
        objects = rendered(folder / "helm", "--namespace", NAMESPACE, *words)
        self.pod = of(objects, "StatefulSet")["spec"]["template"]["spec"]
        self.cluster.server.rules = of(objects, "Role", "edt-studio-pilots")["rules"]
        self.volumes = {volume["name"]: folder / volume["name"] for volume in self.pod["volumes"]}
        for path in self.volumes.values():
            path.mkdir(mode=0o755)
        (self.volumes["account"] / "token").write_text(cluster.server.token)
        self._broker_configuration = f"port {broker_port}\nbind 127.0.0.1\nrequirepass {password}\nsave ''\ndir {folder}\n"

    def _start_broker(self) -> None:
        process = subprocess.Popen([broker.server_binary(), "-"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)
        self.processes["broker"] = process
        assert process.stdin is not None
        process.stdin.write(self._broker_configuration.encode())
        process.stdin.close()
        broker.wait(self.connections["EDT_REDIS_URL"])

    def start(self) -> None:
        """The first containers one after the other, then all others, as a kubelet does."""
        self._start_broker()
        for container in self.pod["initContainers"]:
            assert self._start(container).wait(60) == 0, self.tail()
        for container in self.pod["containers"]:
            self._start(container)
        wait_until(self.is_ready, lambda: f"its pages are there\n{self.tail()}", deadline_s=90)

    def is_ready(self) -> bool:
        """By the probe of the pod."""
        probe = next(each for each in self.pod["containers"] if each["name"] == "web")["readinessProbe"]["httpGet"]
        headers = {each["name"]: each["value"] for each in probe["httpHeaders"]}
        with contextlib.suppress(OSError):
            return int(urllib.request.urlopen(urllib.request.Request(self.url + probe["path"], headers=headers), timeout=5).status) == 200
        return False

    def environment(self, container: dict[str, Any]) -> dict[str, str]:
        given = {each["name"]: str(each.get("value", "")) for each in container["env"]}
        mounts = [each for each in container["volumeMounts"] if each["mountPath"] != "/tmp"]  # paths of this machine may lie in it
        told = {name: with_folders(value, mounts, self.volumes) for name, value in given.items()} | self.connections
        return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "DJANGO_SETTINGS_MODULE": "webapp.settings", **told}  # as the image has it

    def _start(self, container: dict[str, Any]) -> subprocess.Popen[bytes]:
        tools = str(Path(sys.executable).parent)
        words = [word.replace("8000", str(self.port)) for word in container["command"]]
        environment = self.environment(container)
        environment["PATH"] = f"{tools}:{environment['PATH']}"
        with open(self.folder / f"{container['name']}.log", "ab") as log:
            process = subprocess.Popen(words, cwd=REPOSITORY, env=environment, stdout=log, stderr=log, start_new_session=True)
        self.processes[container["name"]] = process
        return process

    def manage(self, *arguments: str) -> str:
        """As `kubectl exec` does in the container web."""
        web = next(each for each in self.pod["containers"] if each["name"] == "web")
        command = [sys.executable, "manage.py", *arguments]
        done = subprocess.run(command, cwd=REPOSITORY, env=self.environment(web), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        folder = self.server.url.rpartition("host=")[2]
        with psycopg.connect(host=folder, user="edt", dbname="postgres") as connection:
            return connection.execute(query).fetchall()

    def tail(self) -> str:
        logs = ["\n".join(path.read_text(errors="replace").splitlines()[-20:]) for path in sorted(self.folder.glob("*.log"))]
        return "\n".join([*logs, self.cluster.tail()])

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait(20)
        kill_all_of(self.folder)


@contextlib.contextmanager
def chart_studio() -> Iterator[ChartStudio]:
    folder = Path(tempfile.mkdtemp(prefix="edt-chart-"))
    folder.chmod(0o755)
    try:
        with kubernetes() as cluster, postgres.server() as server:
            studio = ChartStudio(cluster, server, folder)
            try:
                studio.start()
                yield studio
            finally:
                studio.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
