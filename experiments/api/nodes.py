"""The machines: what they have, and taking them out of service."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.http import Http404, HttpRequest
from ninja import Field, Router, Schema
from ninja.responses import Status

from experiments import access, services
from experiments.api.auth import person
from experiments.api.foresight import Foresight, foreseen
from experiments.api.paging import Page, whole
from experiments.api.schemas import Body
from experiments.cluster import version_standing
from experiments.cluster.plan_preview import drained
from experiments.cluster.snapshot import is_silent
from experiments.models import Node as Row
from experiments.models import Slot
from experiments.ops import clock

router = Router(tags=["nodes"])


class NodeSlot(Schema):
    """`out_reason`: it looks ill, so it is out of service since `out_at`; `doubt`: it looks so, but is the last of its kind in service."""

    id: int
    label: str
    device: str
    draining: bool
    out_reason: str
    out_at: dt.datetime | None
    doubt: str


class Node(Schema):
    """`silent`: it has not been heard of for a while; `sandbox_level`: of the box around user code there. `title`: what people call it.
    `version_state`: how the version that it speaks stands to the studio's: unknown, same, behind, ahead or refused; `version`: in words."""

    name: str
    title: str
    cpu_count: int
    memory_bytes: int
    gpus: list[Any]
    torch_version: str
    processor: str
    sandbox_level: str
    sandbox_notes: list[str]
    address: str
    draining: bool
    storage_problem: str
    silent: bool
    version_state: str
    version: str
    last_seen_at: dt.datetime | None
    slots: list[NodeSlot]


class Adding(Body):
    """`slots`: how many it shares out; none: one for each of its GPUs, or as the machine says."""

    name: str
    slots: int | None = Field(None, ge=1, le=10_000)


class NewNode(Schema):
    """`command`: what is run on the machine."""

    name: str
    token: str
    expires_at: dt.datetime | None
    command: str


class Drain(Body):
    draining: bool
    reason: str = ""


class Renaming(Body):
    """`title`: empty: it has none."""

    title: str
    reason: str = ""


class PutBack(Body):
    reason: str = ""


class DrainForesight(Body):
    """`slot`: one of its slots alone."""

    draining: bool = True
    slot: int | None = Field(None, ge=1, le=2**62)


class Lost(Body):
    """`confirm_name`: the node's name once more."""

    confirm_name: str
    reason: str = ""


class LostNode(Schema):
    """How many slots were freed, and how many runs go on elsewhere or failed."""

    slots: int
    runs: int


def _node_response(row: Row) -> Node:
    found = ("silent", "slots", "version", "version_state")
    same = {name: getattr(row, name) for name in Node.model_fields if name not in found}
    slots = [_slot(slot) for slot in row.slots.filter(retired=False)]
    version = version_standing.of(row)
    return Node(silent=is_silent(row, clock.now()), slots=slots, version_state=version.state, version=version.words, **same)


def _slot(slot: Slot) -> NodeSlot:
    same = [name for name in NodeSlot.model_fields if name not in ("id", "label")]
    return NodeSlot(id=slot.pk, label=slot.label(), **{name: getattr(slot, name) for name in same})


@router.get("/nodes", response=Page[Node])
def nodes(request: HttpRequest) -> Page[Node]:
    person(request)
    return whole([_node_response(row) for row in Row.objects.filter(removed_at=None).order_by("name")])


@router.post("/nodes", response={201: NewNode})
def add_node(request: HttpRequest, body: Adding) -> Status[NewNode]:
    """A token with which one machine joins as the node of this name, shown this once. One that it had before is over."""
    user = person(request)
    access.rules(user, need="admin")
    token, secret = services.add_node(by=user, name=body.name, slots=body.slots)
    line = services.join_line(request.build_absolute_uri("/"), secret)
    return Status(201, NewNode(name=token.node_name, token=secret, expires_at=token.expires_at, command=line))


@router.get("/nodes/{str:name}", response=Node)
def node(request: HttpRequest, name: str) -> Node:
    return _node_response(access.node(person(request), name))


@router.patch("/nodes/{str:name}", response=Node)
def rename_node(request: HttpRequest, name: str, body: Renaming) -> Node:
    """What people call it. Its name stays, by which its host and its folders know it."""
    user = person(request)
    return _node_response(services.rename_node(access.node(user, name, need="admin"), by=user, title=body.title, reason=body.reason))


@router.delete("/nodes/{str:name}", response={204: None})
def remove_node(request: HttpRequest, name: str, reason: str = "") -> Status[None]:
    """One that is not heard of and holds nothing. It is back when its host is heard of again."""
    user = person(request)
    services.remove_node(access.node(user, name, need="admin"), by=user, reason=reason)
    return Status(204, None)


@router.post("/nodes/{str:name}/drain", response=Node)
def drain_node(request: HttpRequest, name: str, body: Drain) -> Node:
    """Let it take no new runs, and those on it move away; or take it back."""
    user = person(request)
    return _node_response(
        services.set_node_draining(access.node(user, name, need="admin"), by=user, draining=body.draining, reason=body.reason)
    )


@router.post("/nodes/{str:name}/drain/preview", response=Foresight)
def preview_drain(request: HttpRequest, name: str, body: DrainForesight) -> Foresight:
    """What it would do to everybody to drain it, or one of its slots, or to take it back. Changes nothing."""
    user = person(request)
    found = access.node(user, name, need="admin")
    if body.slot is not None:
        _slot_of(found, body.slot)
    return foreseen(user, cluster=drained(found, draining=body.draining, slot=body.slot))


@router.post("/nodes/{str:name}/lost", response=LostNode)
def declare_lost(request: HttpRequest, name: str, body: Lost) -> LostNode:
    """It will not come back with what it had: its runs need not wait for it."""
    user = person(request)
    found = access.node(user, name, need="admin")
    slots, runs = services.declare_node_lost(found, by=user, confirm_name=body.confirm_name, reason=body.reason)
    return LostNode(slots=slots, runs=runs)


@router.post("/nodes/{str:name}/slots/{int:slot}/drain", response=Node)
def drain_slot(request: HttpRequest, name: str, slot: int, body: Drain) -> Node:
    user = person(request)
    found = access.node(user, name, need="admin")
    services.set_slot_draining(_slot_of(found, slot), by=user, draining=body.draining, reason=body.reason)
    return _node_response(access.node(user, name))


@router.post("/nodes/{str:name}/slots/{int:slot}/back", response=Node)
def put_slot_back(request: HttpRequest, name: str, slot: int, body: PutBack) -> Node:
    """Use a slot again that was taken out of service because it looked ill. What spoke against it is forgotten."""
    user = person(request)
    found = access.node(user, name, need="admin")
    services.put_slot_back(_slot_of(found, slot), by=user, reason=body.reason)
    return _node_response(access.node(user, name))


def _slot_of(node: Row, slot: int) -> Slot:
    found = node.slots.filter(pk=slot).first()
    if found is None:
        raise Http404("This node has no such slot.")
    return found
