"""The studio's own machine: it takes part by `edt-node join` as any other does, and shares the studio's folders.

It has no lease: who watches the studio's processes starts its link again, and a run there trains on while the studio is upgraded. So it is
given up only when an administrator declares it lost.
"""

from __future__ import annotations

import datetime as dt

from django.conf import settings

from experiments.cluster import joining


def token(known: str, *, now: dt.datetime) -> str:
    """With which its link joins: the one that it has written down, or a new one where that is over."""
    found = joining.find(known, now=now)
    if found is not None and found.node_name == settings.EDT_NODE:
        return known
    return joining.make(settings.EDT_NODE, slots=None, by=None, now=now)[1]
