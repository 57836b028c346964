"""The objects that a pilot of Kubernetes is: a Job with one pod, and a Secret that the Job owns, with the pilot's token in it. Pure.

The Job comes first and the pod waits for the Secret's volume: so the Secret is owned from its first moment, goes when the Job goes, and a
studio needs no right to read, change or delete a Secret. The token is nowhere else: commands, environment, labels and annotations are there
for all who may look at pods.
"""

from __future__ import annotations

import copy
import hashlib
import shlex
from collections.abc import Mapping
from typing import Any

from experiments.cluster.kubernetes.pod_options import PodOptions
from experiments.cluster.providers import Order

OURS = {"app.kubernetes.io/name": "edt-pilot", "app.kubernetes.io/managed-by": "edt-studio"}
SELECTOR = ",".join(f"{key}={value}" for key, value in OURS.items())
PILOT, NODE = "edt-studio/pilot", "edt-studio/node"  # annotations: names that may be longer than a label
CONTAINER, HOME, TOKEN = "edt-node", "/var/lib/edt-node", "/run/edt-pilot"
LONGEST_NAME = 63  # of a Job, whose name is a label of its pod
LONGEST_WAIT_S = 24 * 3600  # in the cluster's queue: a pod that nobody wants any more should not begin next week
KEPT_S = 3600  # after its end, for `kubectl describe` and `kubectl logs`
USER = 10001  # of the studio's image

# What a pod is as far as who runs the studio says nothing else (EDT_KUBERNETES_POD): it may do nothing to its node, and meets the strictest
# of Kubernetes' own standards, which is "restricted".
POD: Mapping[str, Any] = {
    "securityContext": {"runAsNonRoot": True, "runAsUser": USER, "fsGroup": USER, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [
        {"name": CONTAINER, "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}},
    ],
}


def job_name(name: str) -> str:
    """What a pilot's Job is called: as the pilot, or where that is too long its beginning and a digest of it all."""
    return name if len(name) <= LONGEST_NAME else f"{name[:46]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def job(order: Order, options: PodOptions, *, image: str, command: str, pod: Mapping[str, Any] = POD) -> dict[str, Any]:
    """`command`: what starts `edt-node join` in the image: one, as a shell reads it. `pod`: the spec that is filled in; its container is
    the one called edt-node, or the first. `order.notice_s` before its time is over the pod is told."""
    annotations = {PILOT: order.name, NODE: order.node}
    lasts_s = order.walltime_minutes * 60
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": job_name(order.name), "labels": dict(OURS), "annotations": annotations},
        "spec": {
            "parallelism": 1,
            "completions": 1,
            "backoffLimit": 0,
            "podReplacementPolicy": "Failed",  # no second pod while the first one ends
            "activeDeadlineSeconds": LONGEST_WAIT_S + lasts_s,  # a pod's own begins when it has a node
            "ttlSecondsAfterFinished": KEPT_S,
            "template": {
                "metadata": {"labels": dict(OURS), "annotations": annotations},
                "spec": _pod(order, options, image=image, command=command, given=pod),
            },
        },
    }


def secret(order: Order, *, owner: str) -> dict[str, Any]:
    """`owner`: the uid of the Job."""
    name = job_name(order.name)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "labels": dict(OURS),
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": owner}],
        },
        "type": "Opaque",
        "immutable": True,
        "stringData": {"token": f"{order.token}\n"},
    }


def _pod(order: Order, options: PodOptions, *, image: str, command: str, given: Mapping[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = copy.deepcopy(dict(given))
    containers = spec["containers"]
    container = next((each for each in containers if each.get("name") == CONTAINER), containers[0])
    _fill(container, order, options, image=image, command=command)
    name = job_name(order.name)
    spec["volumes"] = [
        *spec.get("volumes", []),
        {"name": "edt-home", "emptyDir": {}},
        {"name": "edt-token", "secret": {"secretName": name, "defaultMode": 0o440}},
        {"name": "edt-shared-memory", "emptyDir": {"medium": "Memory"}},  # bounded by the memory of the pod
    ]
    classes = {"priority-class": "priorityClassName", "runtime-class": "runtimeClassName"}
    spec |= {field: options.names[each] for each, field in classes.items() if each in options.names}
    if options.node_selector:
        spec["nodeSelector"] = {**spec.get("nodeSelector", {}), **options.node_selector}
    if options.tolerations:
        spec["tolerations"] = [*spec.get("tolerations", []), *options.tolerations]
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        **spec,
        "restartPolicy": "Never",
        "activeDeadlineSeconds": max(1, order.walltime_minutes * 60 - order.notice_s),
        "terminationGracePeriodSeconds": order.notice_s,
    }


def _fill(container: dict[str, Any], order: Order, options: PodOptions, *, image: str, command: str) -> None:
    facts = {"EDT_STUDIO": order.studio}
    script = f'exec {command} "$EDT_STUDIO" --token - --home {shlex.quote(HOME)} --slots {order.slots} < {TOKEN}/token'
    if image:
        container["image"] = image
    container["command"] = ["sh", "-c", script]
    container["env"] = [*container.get("env", []), *({"name": name, "value": value} for name, value in facts.items())]
    resources = container.setdefault("resources", {})
    for kind, amounts in (("requests", options.requests), ("limits", options.limits)):
        if amounts:
            resources[kind] = {**resources.get(kind, {}), **amounts}
    container["volumeMounts"] = [
        *container.get("volumeMounts", []),
        {"name": "edt-home", "mountPath": HOME},
        {"name": "edt-token", "mountPath": TOKEN, "readOnly": True},
        {"name": "edt-shared-memory", "mountPath": "/dev/shm"},  # noqa: S108
    ]
