"""The studio's own machine: with EDT_NODE_JOINS it takes part by `edt-node join` as any other does, and can share runs with those.

It has no lease: who watches the studio's processes starts its link again, and a run there trains on while the studio is upgraded. So it is
given up only when an administrator declares it lost, as a machine with an agent is.
"""

from __future__ import annotations

import datetime as dt
import logging

from django.conf import settings

from experiments.cluster import fleet, joining, losses
from experiments.models import Node

log = logging.getLogger(__name__)


def settle(*, now: dt.datetime) -> None:
    """From now on the machine takes part as the settings say. The caller has made sure that its node host has ended; where it took part in
    the other way before, its runs go on from their last states, as on another machine."""
    node = Node.objects.filter(name=settings.EDT_NODE).first()
    if node is None or node.joined == settings.EDT_NODE_JOINS:
        return
    how = "as one that has joined" if settings.EDT_NODE_JOINS else "with an agent of the studio"
    joining.end(node.name)
    fleet.depart(node, now=now)
    moved, ended = losses.abandon(node, now=now, reason=f"{node.name} takes part {how} from now on.")
    fleet.set_joined(node, joined=settings.EDT_NODE_JOINS)
    log.info("%s takes part %s from now on runs=%d", node.name, how, moved + ended)


def token(known: str, *, now: dt.datetime) -> str:
    """With which its link joins: the one that it has written down, or a new one where that is over."""
    found = joining.find(known, now=now)
    if found is not None and found.node_name == settings.EDT_NODE:
        return known
    return joining.make(settings.EDT_NODE, slots=None, by=None, now=now)[1]
