"""Which ids of users there are for the calling process: fewer than the machine has, and other ones, in a user namespace."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_MAP = Path("/proc/self/uid_map")


def machine_uid() -> int:
    """The number that the machine knows the calling process's user by."""
    uid = os.getuid()
    for inside, outside, count in _mapped():
        if inside <= uid < inside + count:
            return outside + uid - inside
    return uid


def mapped_ids() -> int:
    """How many there are from 0 on without a gap: 2**32 - 1 where there is no namespace, 0 where the kernel says nothing."""
    known = 0
    for inside, _, count in sorted(_mapped()):
        if inside > known:
            break
        known = max(known, inside + count)
    return known


def _mapped() -> list[tuple[int, int, int]]:
    """First id in here, the machine's number for it, and how many; see user_namespaces(7)."""
    found = []
    with contextlib.suppress(OSError, ValueError):
        for line in _MAP.read_text().splitlines():
            inside, outside, count = map(int, line.split())
            found.append((inside, outside, count))
    return found
