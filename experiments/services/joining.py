"""Verbs of an administrator on machines that join with one command."""

from __future__ import annotations

import datetime as dt
import re

from django.conf import settings
from django.db import transaction

from experiments.cluster import joining, snapshot
from experiments.models import Node, NodeToken, User
from experiments.ops import clock
from experiments.services import checks
from experiments.services.cluster import note

MOST_SLOTS = 10_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def add_node(*, by: User, name: str, slots: int | str | None = None, now: dt.datetime | None = None) -> tuple[NodeToken, str]:
    """A token with which one machine joins as the node of this name, and the token itself, shown this once. Whatever token the node had is
    over. `slots`: how many it shares out; empty: one a GPU, else as the machine says. Fields: name, slots."""
    now = now or clock.now()
    name = name.strip()
    if not _NAME.fullmatch(name):
        checks.refuse("name", "Letters, digits, dot, dash and underscore only, at most 63, beginning with a letter or a digit.")
    count = None
    if slots not in (None, ""):
        try:
            count = int(slots or 0)
        except ValueError:
            checks.refuse("slots", "Give a whole number, or leave it empty.")
        checks.whole(count, field="slots", least=1, most=MOST_SLOTS)
    with transaction.atomic():
        node = Node.objects.select_for_update().filter(name=name).first()
        if name == settings.EDT_NODE:
            checks.refuse("name", f"{name} is the studio's own machine: choose another name.")
        if node is not None and not snapshot.is_silent(node, now):
            checks.refuse("name", f"{name} is heard of: end edt-node there before it gets another token, or choose another name.")
        token, secret = joining.make(name, slots=count, by=by, now=now)
        note(by, [f"made a token for machine {name} to join with"], reason="", now=now)
    return token, secret


def join_line(studio: str, secret: str) -> str:
    """What is run on the machine. `studio`: its address as its pages have it."""
    return f"edt-node join {studio.rstrip('/')} --token {secret}"
