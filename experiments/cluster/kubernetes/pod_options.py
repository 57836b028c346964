"""What of a Kubernetes cluster an administrator of the studio may choose for a pilot: what its pod has, and where it may be put. Nothing
that says what runs in it, as whom, or with which files: that is for who runs the studio. Pure.

    --cpu, --memory, --ephemeral-storage   quantities as Kubernetes writes them; memory and disk are requested and are the limit, CPUs are
                                           requested alone: a limit would slow training down where nobody else needs them
    --gpus                                 how many of the resource that EDT_KUBERNETES_GPU names
    --node-selector=KEY=VALUE              the kind of node; several
    --toleration=KEY[=VALUE][:EFFECT]      nodes that are kept for such pods; several, each with a key
    --priority-class                       who goes first, and whom it may push out: the cluster's own classes
    --runtime-class                        where the cluster runs containers with GPUs by one of its own
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

_OPTION = re.compile(r"--([a-z-]+)=(.*)", re.DOTALL)
_CPU = re.compile(r"(?!0+(?:\.0*)?m?$)(?:[0-9]{1,6}(?:\.[0-9]{1,3})?|[0-9]{1,9}m)")
_SIZE = re.compile(r"(?!0+(?:\.0*)?[A-Z])[0-9]{1,9}(?:\.[0-9]{1,3})?(?:[MGT]i?)")
_COUNT = re.compile(r"[1-9][0-9]{0,3}")
_DOMAIN = r"[a-z0-9](?:[a-z0-9.-]{0,250}[a-z0-9])?"
_WORD = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_LABEL = re.compile(rf"((?:{_DOMAIN}/)?{_WORD})=((?:{_WORD})?)")
_TOLERATION = re.compile(rf"((?:{_DOMAIN}/)?{_WORD})(?:=((?:{_WORD})?))?(?::(NoSchedule|PreferNoSchedule|NoExecute))?")
_NAME = re.compile(_DOMAIN)
_SIZES = ("memory", "ephemeral-storage")  # resources are called so too
_NAMES = ("priority-class", "runtime-class")


@dataclass
class PodOptions:
    """Fields of a pod. `requests`, `limits`: quantities by resource. `gpus`: how many, among the limits as well. `names`: of
    `_NAMES`, those that are given."""

    gpus: str = ""
    requests: dict[str, str] = field(default_factory=dict)
    limits: dict[str, str] = field(default_factory=dict)
    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: list[dict[str, str]] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)


def parse(words: Sequence[str], *, gpu: str) -> PodOptions:
    """The words as fields. `gpu`: the resource that --gpus counts. Raises ValueError with what is wrong with them. One resource at least:
    a pod that asks for none is put anywhere, and is the first to be evicted."""
    found, seen = PodOptions(), set()
    for word in words:
        match = _OPTION.fullmatch(word)
        if match is None or match[1] not in _READERS:
            possible = ", ".join(f"--{name}" for name in _READERS)
            raise ValueError(f"{word.split('=')[0][:60]!r} cannot be chosen here: write --cpu=8 or the like. Possible are {possible}.")
        name, value = match[1], match[2]
        if name in seen and name not in _SEVERAL:
            raise ValueError(f"--{name} is there twice.")
        seen.add(name)
        _READERS[name](found, name, value)
    if found.gpus:
        found.limits[gpu] = found.gpus
    if not found.requests and not found.limits:
        raise ValueError("Say what a pilot has, as in --cpu=8 --memory=32Gi: a pod that asks for nothing is the first to be evicted.")
    return found


def _cpu(found: PodOptions, name: str, text: str) -> None:
    found.requests["cpu"] = _checked(_CPU, name, text, "a number of CPUs above 0, as in 8 or 500m")


def _size(found: PodOptions, name: str, text: str) -> None:
    amount = _checked(_SIZE, name, text, "an amount with its unit, as in 32Gi")
    found.requests[name] = found.limits[name] = amount


def _gpus(found: PodOptions, name: str, text: str) -> None:
    found.gpus = _checked(_COUNT, name, text, "a whole number above 0")


def _selector(found: PodOptions, name: str, text: str) -> None:
    match = _LABEL.fullmatch(text)
    if match is None:
        raise ValueError(f"--{name}: give a label of nodes, as in --{name}=accelerator=a100.")
    if found.node_selector.setdefault(match[1], match[2]) != match[2]:
        raise ValueError(f"--{name}: {match[1]} cannot be two things at once.")


def _toleration(found: PodOptions, name: str, text: str) -> None:
    match = _TOLERATION.fullmatch(text)
    if match is None:
        raise ValueError(f"--{name}: give a taint of nodes, as in --{name}=nvidia.com/gpu or --{name}=dedicated=training:NoSchedule.")
    key, value, effect = match[1], match[2], match[3]
    taint = {"key": key, "operator": "Exists"} if value is None else {"key": key, "operator": "Equal", "value": value}
    found.tolerations.append({**taint, **({"effect": effect} if effect else {})})


def _named(found: PodOptions, name: str, text: str) -> None:
    found.names[name] = _checked(_NAME, name, text, "a name of the cluster's: small letters, digits, dots and dashes")


def _checked(pattern: re.Pattern[str], name: str, text: str, what: str) -> str:
    if not pattern.fullmatch(text):
        raise ValueError(f"--{name}: give {what}.")
    return text


_READERS: Mapping[str, Callable[[PodOptions, str, str], None]] = {
    "cpu": _cpu,
    "gpus": _gpus,
    **dict.fromkeys(_SIZES, _size),
    "node-selector": _selector,
    "toleration": _toleration,
    **dict.fromkeys(_NAMES, _named),
}
_SEVERAL = ("node-selector", "toleration")
