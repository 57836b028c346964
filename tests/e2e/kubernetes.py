"""A stand-in for a Kubernetes cluster on this machine: the API server of tests/domain/kubernetes_server.py, and a node that runs the pods
which that is asked for, as processes. A volume is a folder, and where the command of a container names its path it is told that folder,
because nothing is mounted; who a container's user is, its image and its limits are not carried out.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.domain.kubernetes_server import NAMESPACE, ApiServer, now, running
from tests.e2e.slurm import kill_all_of

LOOKS_EVERY_S = 0.1


@dataclass
class Container:
    """A process that stands for one, and when it is to be gone: as the monotonic clock has it."""

    process: subprocess.Popen[bytes]
    ends_at: float
    killed_at: float | None = None


class Cluster:
    """A running one. `room`: so many pods at once; others wait."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.room = 2
        self.folder = Path(tempfile.mkdtemp(prefix="edt-kubernetes-"))
        self.folder.chmod(0o755)
        trusted = server.secure(self.folder)
        self.settings = {
            "EDT_KUBERNETES_CA": str(trusted),
            "EDT_KUBERNETES_ADDRESS": server.address,
            "EDT_KUBERNETES_TOKEN": server.token,
            "EDT_KUBERNETES_NAMESPACE": NAMESPACE,
            "EDT_KUBERNETES_IMAGE": "edt-studio:test",
        }
        self._containers: dict[str, Container] = {}
        self._closed = threading.Event()
        self._node = threading.Thread(target=self._live)
        self._node.start()

    # --- what a person does with kubectl ------------------------------------------------------------------------------------------------

    def jobs(self) -> list[str]:
        return self.server.names("jobs")

    def deletes(self, job: str) -> None:
        """As `kubectl delete job` does: the Job is gone at once, and its pod has the notice that it has asked for."""
        self.server.delete("jobs", job)

    def told_to_everybody(self) -> str:
        """What all may read who may look at Jobs and pods, and at the logs of these."""
        with self.server.lock:
            objects = str([self.server.objects[kind] for kind in ("jobs", "pods")])
        return objects + self.logs()

    def logs(self) -> str:
        return "".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("*.log")))

    def tail(self) -> str:
        return "\n".join([*self.logs().splitlines()[-40:], *(str(each) for each in self.server.objects["pods"].values())])

    # --- the node -----------------------------------------------------------------------------------------------------------------------

    def _live(self) -> None:
        while not self._closed.wait(LOOKS_EVERY_S):
            with self.server.lock:
                for pod in list(self.server.objects["pods"].values()):
                    self._look_after(pod)

    def _look_after(self, pod: dict[str, Any]) -> None:
        name, leaving = pod["metadata"]["name"], "deletionTimestamp" in pod["metadata"]
        container = self._containers.get(name)
        if container is None:
            if pod["status"]["phase"] == "Pending" and not leaving and len(self._containers) < self.room:
                self._schedule(pod)
            return
        grace_s = pod["metadata"].get("deletionGracePeriodSeconds", pod["spec"].get("terminationGracePeriodSeconds", 30))
        if leaving or time.monotonic() > container.ends_at:
            self._end(container, grace_s)
        if container.process.poll() is not None:
            self._has_ended(pod, container.process.returncode)

    def _schedule(self, pod: dict[str, Any]) -> None:
        """Its node takes it; its container begins when its volumes are there, and waits for a Secret that is not yet."""
        self.server.put_on_a_node(pod)
        (container,) = pod["spec"]["containers"]
        folders = self._volumes(pod)
        if folders is None:
            pod["status"]["containerStatuses"] = [{"name": container["name"], "state": {"waiting": {"reason": "ContainerCreating"}}}]
            return
        words = [with_folders(word, container["volumeMounts"], folders) for word in container["command"]]
        own = {each["name"]: each["value"] for each in container.get("env", [])}
        environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(self.folder), **own}
        with open(self.folder / f"{pod['metadata']['name']}.log", "ab") as log:
            process = subprocess.Popen(
                words, env=environment, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        lasts_s = pod["spec"]["activeDeadlineSeconds"]
        self._containers[pod["metadata"]["name"]] = Container(process, time.monotonic() + lasts_s)
        state = {"running": {"startedAt": now()}}
        pod["status"] |= {"phase": "Running", "containerStatuses": [{"name": container["name"], "state": state}]}
        self.server.touch(pod)

    def _volumes(self, pod: dict[str, Any]) -> dict[str, Path] | None:
        """The folder of each, by name; None while a Secret is missing."""
        folders = {each["name"]: self.folder / pod["metadata"]["name"] / each["name"] for each in pod["spec"]["volumes"]}
        for volume in pod["spec"]["volumes"]:
            folder = folders[volume["name"]]
            folder.mkdir(parents=True, exist_ok=True)
            if "secret" in volume:
                found = self.server.objects["secrets"].get(volume["secret"]["secretName"])
                if found is None:
                    return None
                for name, text in found["stringData"].items():
                    (folder / name).write_text(text)
                    (folder / name).chmod(volume["secret"]["defaultMode"])
        return folders

    def _end(self, container: Container, grace_s: float) -> None:
        """SIGTERM to the container's first process alone, and SIGKILL to all of it when the grace is over."""
        if container.killed_at is None:
            container.process.send_signal(signal.SIGTERM)
            container.killed_at = time.monotonic() + grace_s
        container.killed_at = min(container.killed_at, time.monotonic() + grace_s)
        if time.monotonic() > container.killed_at:
            container.process.kill()

    def _has_ended(self, pod: dict[str, Any], code: int) -> None:
        """With its first process all others of a container end, and its volumes go."""
        name = pod["metadata"]["name"]
        folder = self.folder / name
        kill_all_of(folder)
        shutil.rmtree(folder, ignore_errors=True)
        del self._containers[name]
        state = {"terminated": {"exitCode": code if code >= 0 else 128 - code, "reason": "Completed" if code == 0 else "Error"}}
        containers = [{"name": pod["spec"]["containers"][0]["name"], "state": state}]
        pod["status"] |= {"phase": "Succeeded" if code == 0 else "Failed", "containerStatuses": containers}
        self.server.touch(pod)
        self.server.settle()

    def close(self) -> None:
        self._closed.set()
        self._node.join(10)
        kill_all_of(self.folder)
        for container in self._containers.values():
            container.process.kill()
            container.process.wait(10)
        shutil.rmtree(self.folder, ignore_errors=True)


def with_folders(word: str, mounts: list[dict[str, Any]], folders: dict[str, Path]) -> str:
    """A word of a container that may name its mounts, for a process that has folders in their place."""
    for mount in mounts:
        word = word.replace(mount["mountPath"], str(folders[mount["name"]]))
    return word


@contextlib.contextmanager
def kubernetes() -> Iterator[Cluster]:
    with running() as server:
        cluster = Cluster(server)
        try:
            yield cluster
        finally:
            cluster.close()
