"""What administrators of the cluster do to machines and their slots, as operations (see `calls`)."""

from __future__ import annotations

from typing import Any

from edt_client.calls import Call, Operation, part
from edt_client.errors import ClientError
from edt_client.things import Node, read


def node(name: str) -> Operation[Node]:
    return read(Node, (yield Call("GET", f"/nodes/{part(name)}")).json())


def add(name: str, *, slots: int | None = None) -> Operation[dict[str, Any]]:
    """A token with which one machine joins as the node of this name: `token`, shown this once, and `command` to run there."""
    return dict((yield Call("POST", "/nodes", json={"name": name, "slots": slots}, key="add")).json())


def drain(name: str, *, draining: bool, slot: str = "", reason: str = "") -> Operation[Node]:
    """The machine takes no new runs, or takes them again; `slot`: one of its slots alone, by its name ("GPU 3") or number."""
    where = f"/nodes/{part(name)}"
    if slot:
        where += f"/slots/{_slot((yield from node(name)), slot)}"
    return read(Node, (yield Call("POST", f"{where}/drain", json={"draining": draining, "reason": reason}, key="drain")).json())


def put_back(name: str, slot: str, *, reason: str = "") -> Operation[Node]:
    """A slot that was taken out of service because it looked ill is used again."""
    where = f"/nodes/{part(name)}/slots/{_slot((yield from node(name)), slot)}/back"
    return read(Node, (yield Call("POST", where, json={"reason": reason}, key="back")).json())


def declare_lost(name: str, *, confirm_name: str, reason: str = "") -> Operation[dict[str, Any]]:
    """How many `slots` were freed, and how many `runs` go on elsewhere or end."""
    body = {"confirm_name": confirm_name, "reason": reason}
    return dict((yield Call("POST", f"/nodes/{part(name)}/lost", json=body, key="lost")).json())


def rename(name: str, title: str) -> Operation[Node]:
    return read(Node, (yield Call("PATCH", f"/nodes/{part(name)}", json={"title": title})).json())


def remove(name: str, *, reason: str = "") -> Operation[None]:
    yield Call("DELETE", f"/nodes/{part(name)}", {"reason": reason})


def pilot_pools() -> Operation[list[dict[str, Any]]]:
    """How many machines are held of an engine that lends them, and why: `words`, `pilots`."""
    return list((yield Call("GET", "/pilot-pools")).json()["items"])


def _slot(machine: Node, said: str) -> int:
    """Its number. Raises ClientError where the machine has none of that name."""
    for each in machine.slots:
        if said.strip().lower() in (str(each["label"]).lower(), str(each["id"])):
            return int(each["id"])
    raise ClientError(f"{machine.name} has no slot {said!r}; it has {', '.join(each['label'] for each in machine.slots) or 'none'}.")
