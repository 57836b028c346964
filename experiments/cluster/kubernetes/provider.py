"""What the studio asks of Kubernetes. A Job's name follows from the pilot's, so a studio that ends while it asks finds it again. The
kubelet ends a pod when its time is over, with the same notice as one whose Job is deleted: so there is no guard as in a job of Ray.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from django.conf import settings

from experiments.cluster.kubernetes import leases, manifests, nodes, pod_options
from experiments.cluster.kubernetes.api import Refused, ask, namespace
from experiments.cluster.providers import EngineProblem, Lease, Offer, Order

OURS = {"labelSelector": manifests.SELECTOR}
HURRY_S = 1  # for a pod that is ended and not told; 0 would let the API server forget it before its node has ended it


class Kubernetes:
    """See `providers.Provider`."""

    options_of = "a pod"
    example = "--cpu=8 --memory=32Gi --gpus=1"

    def offers(self) -> Sequence[Offer]:
        """Kinds of nodes and classes of priority, each where the studio's account may list them: they belong to no namespace."""
        offered: list[Offer] = []
        refused: list[EngineProblem] = []
        for path, read in (("/api/v1/nodes", nodes.offers), ("/apis/scheduling.k8s.io/v1/priorityclasses", _classes)):
            try:
                offered += read(_items(ask("GET", path)), settings.EDT_KUBERNETES_GPU)
            except Refused as problem:
                if problem.status != 403:
                    raise
                refused.append(problem)
        if not offered and refused:
            raise EngineProblem(f"the studio's account may not see the cluster's nodes, so type what a pilot needs: {refused[0]}")
        return offered

    def hold(self, order: Order) -> str:
        chosen = pod_options.parse(order.options, gpu=settings.EDT_KUBERNETES_GPU)
        image, command = settings.EDT_KUBERNETES_IMAGE, settings.EDT_KUBERNETES_COMMAND
        job = manifests.job(order, chosen, image=image, command=command, pod=_pod())
        if not all(each.get("image") for each in job["spec"]["template"]["spec"]["containers"]):
            raise EngineProblem("the setting EDT_KUBERNETES_IMAGE, which says in what image a pilot runs, is empty.")
        made = ask("POST", _path("apis/batch/v1", "jobs"), body=job)
        name, uid = str(job["metadata"]["name"]), str(made.get("metadata", {}).get("uid", ""))
        try:
            ask("POST", _path("api/v1", "secrets"), body=manifests.secret(order, owner=uid))
        except EngineProblem:
            with contextlib.suppress(EngineProblem):  # it waits for a Secret that does not come; what stays is ended as unknown
                self.release(name, begun=False, hurry=False)
            raise
        return name

    def leases(self) -> Mapping[str, Lease]:
        pods = _items(ask("GET", _path("api/v1", "pods"), parameters=OURS))
        jobs = _items(ask("GET", _path("apis/batch/v1", "jobs"), parameters=OURS))  # after the pods: see leases_of
        return leases.leases_of(jobs, pods, now=time.time())

    def ending(self, lease: str) -> str:
        try:
            pods = _pods_of(lease)
            job = ask("GET", _path("apis/batch/v1", "jobs", lease))
        except Refused as problem:
            return f"the Job {lease} has been deleted" if problem.status == 404 else ""
        except EngineProblem:
            return ""
        found = leases.leases_of([job], pods, now=time.time()).get(lease)
        return found.words if found is not None else ""

    def release(self, lease: str, *, begun: bool, hurry: bool) -> None:  # noqa: ARG002
        """The Job stays until its pod has ended, which is told first. With `hurry` the pod is ended at once."""
        if hurry:
            for pod in _pods_of(lease):
                _delete(_path("api/v1", "pods", str(pod.get("metadata", {}).get("name", ""))), {"gracePeriodSeconds": HURRY_S})
        _delete(_path("apis/batch/v1", "jobs", lease), {"propagationPolicy": "Foreground"})  # by itself a Job leaves its pod behind

    def check(self, options: str) -> Sequence[str]:
        words = shlex.split(options)
        pod_options.parse(words, gpu=settings.EDT_KUBERNETES_GPU)
        return words


def _pod() -> Mapping[str, Any]:
    """The spec that is filled in: as it is by itself, but for what who runs the studio says in a file."""
    file = settings.EDT_KUBERNETES_POD
    if not file:
        return manifests.POD
    try:
        found = json.loads(Path(file).read_text())
    except (OSError, ValueError) as error:
        raise EngineProblem(f"EDT_KUBERNETES_POD names no file with the spec of a pod as JSON: {error}") from None
    spec = {**manifests.POD, **found} if isinstance(found, dict) else {}
    containers = spec.get("containers")
    if not isinstance(containers, list) or not containers or not all(isinstance(each, dict) for each in containers):
        raise EngineProblem(f"EDT_KUBERNETES_POD: in {file} is no spec of a pod, in which containers are a list.")
    return spec


def _classes(items: Iterable[Mapping[str, Any]], gpu: str) -> list[Offer]:  # noqa: ARG001
    """Of priority; those of the cluster itself are not for pilots."""
    found = [(str(each.get("metadata", {}).get("name", "")), each) for each in items]
    return [
        Offer(
            f"--priority-class={name}",
            f"priority {each.get('value', 0)}" + (", waits and pushes out nobody" if each.get("preemptionPolicy") == "Never" else ""),
            usable=True,
        )
        for name, each in sorted(found, key=lambda pair: pair[0])
        if not name.startswith("system-")
    ]


def _pods_of(lease: str) -> list[Mapping[str, Any]]:
    return _items(ask("GET", _path("api/v1", "pods"), parameters={"labelSelector": f"batch.kubernetes.io/job-name={lease}"}))


def _delete(path: str, how: Mapping[str, Any]) -> None:
    """Harmless where it is gone."""
    try:
        ask("DELETE", path, body={"apiVersion": "v1", "kind": "DeleteOptions", **how})
    except Refused as problem:
        if problem.status != 404:
            raise


def _items(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = answer.get("items")
    if not isinstance(found, list):
        raise EngineProblem("what the API server answers is no list.")
    return [each for each in found if isinstance(each, dict)]


def _path(group: str, kind: str, *name: str) -> str:
    return "/".join(["", group, "namespaces", quote(namespace(), safe=""), kind, *(quote(each, safe="") for each in name)])
