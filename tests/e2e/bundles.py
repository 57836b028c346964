"""Zips of model code for the end-to-end tests."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
COMPUTES = "        return self.classes(self.features(x))\n"


def zipped(path: Path, files: Mapping[str, str]) -> Path:
    """A zip at `path` with these files, by name."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def digits(folder: Path, *, part_s: float | str = 0.2) -> Path:
    """The example as a zip in `folder`. A slot takes `part_s` seconds longer for each part of a batch without using the processor: a job
    lasts as long as a test needs it, and leaves the machine to the studio and the browser. It may be an expression of Python."""
    script = (DIGITS / "main.py").read_text()
    assert script.count(COMPUTES) == 1
    return zipped(folder / "digits.zip", {"main.py": script.replace(COMPUTES, f"        __import__('time').sleep({part_s})\n{COMPUTES}")})
