"""Groups machines that can share a run, and explains what keeps others from it. Pure: it reads the rows that it is given.

To share runs, machines need an address under which the others reach a machine, and all that bits depend on: the same torch, the same
processor and, where there are GPUs, the same models of them. (The processor beside GPUs too: a script's transforms are computed there.)
Files of a run travel between them. What nobody can see from here, a fast network, the administrator promises with the rule."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from django.conf import settings

from experiments.models import Node
from training_runtime.scheduling.wording import listed

Kind = tuple[str, frozenset[str], str]  # torch's version, the models of its GPUs, its processor


def kind(node: Node) -> str:
    """Everything that results depend on bit for bit, as one text; empty if the machine has not reported it."""
    return (
        "; ".join([f"torch {node.torch_version}", *sorted({str(gpu) for gpu in node.gpus}), node.processor]) if node.torch_version else ""
    )


def pools(nodes: Iterable[Node]) -> dict[int, str]:
    """Node id -> name of its pool. Machines that can share no run are left out."""
    names: dict[int, str] = {}
    for together in _alike(nodes).values():
        if len(together) > 1:
            name = listed([node.name for node in together])
            names |= {node.pk: name for node in together}
    return names


def obstacles(nodes: Iterable[Node]) -> list[str]:
    """Why machines can share runs with no other: a sentence for each of them."""
    known = sorted(nodes, key=lambda node: node.name)
    shared = pools(known)
    if len(known) < 2:
        return ["There is only one machine."] if known else []
    return [_obstacle(node, known) for node in known if node.pk not in shared]


def _alike(nodes: Iterable[Node]) -> Mapping[Kind, list[Node]]:
    found: defaultdict[Kind, list[Node]] = defaultdict(list)
    for node in sorted(nodes, key=lambda node: node.name):
        if node.address and node.torch_version:
            found[_kind(node)].append(node)
    return found


def _kind(node: Node) -> Kind:
    return node.torch_version, frozenset(map(str, node.gpus)), node.processor


def _obstacle(node: Node, known: Iterable[Node]) -> str:
    if not node.address:
        how = "set EDT_NODE_ADDRESS for the studio" if node.name == settings.EDT_NODE else "join it with --address"
        return f"{node.name} has no address under which others reach it: {how}."
    if not node.torch_version:
        return f"{node.name} has no torch."
    others = [other for other in known if other.pk != node.pk and other.address]
    devices = [other for other in others if _kind(other)[1] == _kind(node)[1]]
    for other in devices:
        if other.torch_version == node.torch_version:
            return f"{node.name} has the processor {node.processor or 'unknown'}, and {other.name} {other.processor or 'unknown'}."
    if devices:
        return f"{node.name} has torch {node.torch_version}, and {devices[0].name} {devices[0].torch_version or 'none'}."
    what = listed(sorted(map(str, set(node.gpus)))) or "no GPU"
    return f"{node.name} has {what}, and no other machine with an address has the same."
