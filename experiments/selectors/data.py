"""Folders of the shared data root, to be offered as an experiment's source files folder."""

from __future__ import annotations

import os
from pathlib import Path

from django.conf import settings

MOST_FOLDERS = 200
LEVELS = 2


def folders() -> list[str]:
    """Relative paths of the first folders, two levels deep, by name; links are not followed."""
    root = Path(settings.EDT_DATA_ROOT)
    found: list[str] = []
    level = [""]
    for _ in range(LEVELS):
        level = [child for parent in level for child in _children(root, parent)]
        found += level
    return sorted(found)[:MOST_FOLDERS]


def _children(root: Path, parent: str) -> list[str]:
    try:
        with os.scandir(root / parent) as entries:
            names = [e.name for e in entries if e.is_dir(follow_symlinks=False) and not e.name.startswith(".")]
    except OSError:
        return []
    return [f"{parent}/{name}" if parent else name for name in sorted(names)[:MOST_FOLDERS]]
