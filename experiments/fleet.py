"""Nodes and slots: what machines say of themselves, and what the studio wants of them. The only writer of Node and Slot."""

from __future__ import annotations

import datetime as dt

from experiments.models import Node
from training_runtime.protocol import Apply, NodeFacts, Observation


def register(facts: NodeFacts, *, now: dt.datetime, slots: int | None = None) -> Node:
    """Store what the node is, and its slots: one per GPU; without GPUs `slots` (EDT_SLOTS) or 4 CPU shares."""
    raise NotImplementedError


def wanted(node: Node, *, now: dt.datetime) -> Apply:
    """A new snapshot of what should run on the node: every live run whose driver lives there, with the slots it should hold."""
    raise NotImplementedError


def record(observation: Observation, *, now: dt.datetime) -> Node:
    """Take in what a node host saw: facts, slots that became free, runs whose processes have all ended."""
    raise NotImplementedError


def nudge_silent(now: dt.datetime) -> list[str]:
    """Nudge the nodes that have not been heard of for a few seconds; their names. The heartbeat behind the events."""
    raise NotImplementedError
