"""What the folder of a built environment is called. Standard library only: the node host asks it."""

from __future__ import annotations

import hashlib


def folder_name(lock: str, base_key: str, *, prefix: str) -> str:
    """By its lock, the base (`base.Base.key`), and the installation (`prefix`) that it points to."""
    pinned = "\n".join(line for line in lock.splitlines() if line and not line.lstrip().startswith("#"))
    return hashlib.sha256("\0".join((pinned, base_key, prefix)).encode()).hexdigest()[:40]
