"""The nodes of a Kubernetes cluster by kind, as what a pilot may be asked for. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from experiments.cluster.providers import Offer

KINDS = ("nvidia.com/gpu.product", "node.kubernetes.io/instance-type")  # labels that say of what kind a node is, the first that is there
UNITS = {"m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18} | {
    f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTPE", start=1)
}
_QUANTITY = re.compile(r"([0-9.]+(?:[eE][0-9]+)?)([a-zA-Z]{0,2})")


def offers(items: Iterable[Mapping[str, Any]], gpu: str) -> list[Offer]:
    """`gpu`: the resource that counts GPUs. Nodes that take no pods now are left out."""
    kinds: dict[tuple[str, str], list[float]] = {}
    for node in items:
        spec, status = node.get("spec", {}), node.get("status", {})
        ready = any(each.get("type") == "Ready" and each.get("status") == "True" for each in status.get("conditions", []))
        if ready and not spec.get("unschedulable"):
            kinds.setdefault(_kind(node, gpu), []).append(quantity(status.get("allocatable", {}).get("memory", "0")) / 2**30)
    return [
        Offer(option, f"{_nodes(len(gib))} of {words}, {min(gib):.0f} GiB or more", usable=True)
        for (option, words), gib in sorted(kinds.items())
    ]


def quantity(text: str) -> float:
    """A number as Kubernetes writes it: 500m, 8, 64Gi; 0 for what is none."""
    match = _QUANTITY.fullmatch(str(text))
    if match is None or (match[2] and match[2] not in UNITS):
        return 0.0
    try:
        return float(match[1]) * UNITS.get(match[2], 1.0)
    except ValueError:
        return 0.0


def _kind(node: Mapping[str, Any], gpu: str) -> tuple[str, str]:
    """With what nodes of this kind are asked for, and what they are in words, without their memory: nodes hardly agree in that."""
    labels, there = node.get("metadata", {}).get("labels", {}), node.get("status", {}).get("allocatable", {})
    gpus, cpus = quantity(there.get(gpu, "0")), quantity(there.get("cpu", "0"))
    label = next((name for name in KINDS if labels.get(name)), "")
    taints = [each for each in node.get("spec", {}).get("taints", []) if each.get("effect") in ("NoSchedule", "NoExecute")]
    words = [
        *([f"--cpu={int(cpus - 0.5)}"] if cpus >= 1.5 else []),  # daemons of the cluster take a part of every node
        *([f"--gpus={gpus:g}"] if gpus else []),
        *([f"--node-selector={label}={labels[label]}"] if label else []),
        *(f"--toleration={each.get('key')}" + (f"={each['value']}" if each.get("value") else "") for each in taints),
    ]
    facts = [f"{cpus:g} CPUs", *([f"{gpus:g} {gpu}"] if gpus else []), *([str(labels[label])] if label else [])]
    return " ".join(words), ", ".join(facts)


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"
