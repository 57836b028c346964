"""Decides where a run's driver should be, and which of its promised slots the run can have now. Works on a snapshot; writes nothing.

A run's driver lives on one machine, its head node. On other machines of a pool (see `several`) it has slots through a remote agent there,
once its script has come to train(): before that nobody knows that it ever will, and a script that never does must not run twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from experiments.cluster.snapshot import Snapshot
from experiments.models import TrainingRun


def head_node_for(seen: Snapshot, run: TrainingRun, slots: Collection[int]) -> int | None:
    """The node where the driver of a run with these slots should be: where it is, unless that is drained, or its slots cannot be used from
    there; then where most of them are."""
    counts = Counter(seen.slots[slot].node_id for slot in slots)
    if not counts:
        return run.head_node_id
    if run.head_node_id is not None and run.head_node_id in seen.silent and seen.held_by(run.pk):
        return run.head_node_id  # silence stops no training, and whoever cannot be heard cannot be asked to leave
    if run.head_node_id is not None and run.engines is not None and _reaches(seen, run.head_node_id, min(counts)):
        return run.head_node_id
    return min(counts, key=lambda node: (-counts[node], node != run.head_node_id, node))


def _reaches(seen: Snapshot, head_node: int, node: int) -> bool:
    """Whether a driver on `head_node`, which is to stay there, can have slots on the node."""
    together = head_node == node or (head_node in seen.pools and seen.pools[head_node] == seen.pools.get(node))
    return together and not (seen.nodes[head_node].draining or head_node in seen.silent)


def usable_now(seen: Snapshot, run: TrainingRun, slots: frozenset[int]) -> frozenset[int]:
    """The promised slots that the run can have now: none while its process is still somewhere else."""
    if run.head_node_id is None or run.leave_revision is not None or head_node_for(seen, run, slots) != run.head_node_id:
        return frozenset()
    if seen.may_spread(run) or run.head_node_id in seen.silent:
        return slots
    return frozenset(slot for slot in slots if seen.slots[slot].node_id == run.head_node_id)
