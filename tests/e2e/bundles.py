"""Zips of model code for the end-to-end tests."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path


def zipped(path: Path, files: Mapping[str, str]) -> Path:
    """A zip at `path` with these files, by name."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path
