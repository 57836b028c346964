"""Machines that have joined with `edt-node join`: who may, what each is told, and for how long it may use its slots without a word. The
only writer of NodeToken.

A machine has one token, kept as a hash. Whoever joins with it gets an incarnation; what an older one sends counts no more, so a copy of a
machine, or a link that was thought dead, cannot write into a run that is elsewhere.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from django.conf import settings
from django.db import transaction
from django.db.models import Q

from experiments.cluster import desired, fleet, version_standing
from experiments.live import notify
from experiments.models import ClusterRules, Installation, Node, NodeToken, TrainingRun, User
from training_runtime.node import places
from training_runtime.node.messages import GUEST, DesiredState, Hello, Refused, RunFolder, Welcome
from training_runtime.protocol import Apply, Observation, spoken_by
from training_runtime.version_skew import ProtocolVersion

PREFIX = "edtn_"
LONGEST = 128
HINT_LENGTH = len(PREFIX) + 4
UNUSED = dt.timedelta(days=1)  # for which a token waits for its machine
HIGHEST_VERSION = 9999  # of what a machine may say that it speaks
ANEW = dt.timedelta(seconds=30)  # so often all of what is wanted is read, whatever has been nudged


def make(name: str, *, slots: int | None, by: User | None, now: dt.datetime, waits: dt.timedelta = UNUSED) -> tuple[NodeToken, str]:
    """The token of the machine of that name, and the token itself, which nobody can look up again. One that it had before is over. `waits`:
    so long for its machine."""
    secret = PREFIX + secrets.token_urlsafe(32)
    facts = {"digest": _digest(secret), "hint": secret[:HINT_LENGTH], "slots": slots, "made_by": by, "created_at": now}
    fresh = {"expires_at": now + waits, "identity": "", "boot": "", "address": "", "joined_at": None, "seen_at": None}
    token, _ = NodeToken.objects.update_or_create(node_name=name, defaults={**facts, **fresh})
    notify.changed(notify.stream(name), "token")
    return token, secret


def end(name: str) -> None:
    """Revoke the token of the machine of that name, if it has one."""
    NodeToken.objects.filter(node_name=name).delete()
    notify.changed(notify.stream(name), "token")


def find(secret: str, *, now: dt.datetime) -> NodeToken | None:
    """Look up the token that was sent; None if it is unknown or no longer valid."""
    if not secret.startswith(PREFIX) or len(secret) > LONGEST:
        return None
    return NodeToken.objects.filter(Q(expires_at=None) | Q(expires_at__gt=now), digest=_digest(secret)).first()


def begin(number: int, hello: Hello, *, address: str, now: dt.datetime) -> Welcome | Refused:
    """Let the machine in that says hello with the token of that number, or say why not. One of a version that the studio does not work with
    may ask again: either side may be upgraded. Until then it is as if it were not heard of (see `leases`)."""
    with transaction.atomic():
        token = NodeToken.objects.select_for_update().filter(pk=number).first()
        if token is None:
            return Refused("This token is over.", final=True)
        if token.identity not in ("", hello.identity):
            return Refused(f"Another machine has joined with this token as {token.node_name}: make one of its own for this machine.", True)
        node, _ = Node.objects.select_for_update().get_or_create(name=token.node_name)
        heard = max((at for at in (token.seen_at, node.last_seen_at) if at is not None), default=None)
        there = token.seen_at is not None and heard is not None and abs(now - heard) < dt.timedelta(seconds=settings.EDT_NODE_LEASE_S)
        if there and token.boot != hello.boot:
            return Refused(f"Another machine is at work as {token.node_name} with a copy of this machine's home: give this one its own.")
        spoken = ProtocolVersion(*(min(max(said, 0), HIGHEST_VERSION) for said in (hello.version, hello.oldest)))
        Node.objects.filter(pk=node.pk).update(joined=True)
        if node.name != settings.EDT_NODE:
            fleet.note_version(node, spoken)
        if problem := version_standing.of_joined(spoken).problem:
            notify.changed("cluster", "nodes")
            return Refused(problem)
        token.identity, token.boot, token.address = hello.identity[:64], hello.boot[:64], address[:64]
        token.incarnation, token.expires_at, token.seen_at = token.incarnation + 1, None, now
        token.joined_at = token.joined_at or now
        token.save()
        notify.changed(notify.stream(token.node_name), "token")  # an older link of it is closed
        notify.changed("cluster", "nodes")
    slots = token.slots if token.slots is not None else hello.slots
    return Welcome(token.node_name, token.incarnation, lease_s(token.node_name), slots, _installation())


def _installation() -> str:
    key = Installation.objects.values_list("key", flat=True).filter(pk=1).first()
    return str(key) if key is not None else ""


def lease_s(name: str) -> float:
    """For how long the machine may use its slots without a word of the studio, in seconds; 0: for good (see `own_machine`)."""
    return 0.0 if name == settings.EDT_NODE else settings.EDT_NODE_LEASE_S


def is_current(number: int, incarnation: int) -> bool:
    """Whether messages of this incarnation still count."""
    return NodeToken.objects.filter(pk=number, incarnation=incarnation).exists()


class SentState(NamedTuple):
    """What a machine was told last, and what that came of. `at`: when it was put together."""

    wanted: DesiredState
    desired: desired.Desired
    at: dt.datetime


def state_for(name: str, before: SentState | None, now: dt.datetime) -> SentState:
    """What should run on the machine, its paths as names that mean something there. `before`: what it was told last and need not be put
    together again, unless grants or runs there have changed, or that was long ago."""
    node = Node.objects.get(name=name)
    recent = before if before is not None and dt.timedelta(0) <= now - before.at < ANEW else None
    if recent is not None and (same := desired.renewed(node, recent.desired, now=now)) is not None:
        apply = dataclasses.replace(recent.wanted.apply, revision=same.apply.revision)
        return SentState(dataclasses.replace(recent.wanted, apply=apply), same, recent.at)
    found = desired.numbered(node, now=now)
    numbers = [wish.spec.run for wish in found.apply.runs]
    guests = {wish.spec.run for wish in found.apply.runs if wish.spec.remote}
    folders = tuple(
        RunFolder(run.pk, run.folder, GUEST if run.pk in guests else term_of(run))
        for run in TrainingRun.objects.filter(pk__in=numbers).only("folder", "moved_at")
    )
    return SentState(DesiredState(_abroad(found.apply), folders, several=ClusterRules.current().several_machines), found, now)


def term_of(run: TrainingRun) -> str:
    """Of the run's stay on the machine where its driver is; another stay is another term."""
    return run.moved_at.isoformat() if run.moved_at is not None else "first"


def take_in(number: int, incarnation: int, observation: Observation, slots: int | None, now: dt.datetime) -> bool:
    """What the machine with that token has seen; for its own name alone. False where this incarnation counts no more."""
    if not is_current(number, incarnation):
        return False
    node = fleet.record(observation, now=now, slots=slots)
    if node.name == settings.EDT_NODE:  # its link is of the studio's own release; its host may be of the one before
        fleet.note_version(node, spoken_by(observation))
    return True


def announce_journals(name: str, grown: Mapping[int, int], now: dt.datetime) -> None:  # noqa: ARG001  (as the others of a desk)
    """The journals of these runs have grown in the folders that the machine shares with the studio."""
    for number in TrainingRun.objects.filter(pk__in=grown, head_node__name=name).values_list("pk", flat=True):
        notify.nudge_ingest(number)


def _abroad(apply: Apply) -> Apply:
    home, data = str(settings.EDT_HOME), str(settings.EDT_DATA_ROOT)
    return places.translated(apply, lambda path: places.place_of(str(Path(path)) if path else "", home=home, data=data))


def _digest(secret: str) -> str:
    """A hash without salt or work factor is enough: the token has 256 random bits."""
    return hashlib.sha256(secret.encode()).hexdigest()
