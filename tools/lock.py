"""Writes the lock files from what is installed: `.venv/bin/python -m tools.lock`, after trying new versions in the virtual environment.

requirements.txt holds what the studio runs on (torch first, and what exports models), requirements-s3.txt and -test.txt
what those extras of pyproject.toml add to it. Every package is named with its exact version; a package that a platform does not need keeps
its marker.
"""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).resolve().parents[1]
HEADER = "# Written by `python -m tools.lock` from what is installed; the ranges are in pyproject.toml.\n"
EXTRA = re.compile(r"""\s*(and|or)?\s*\(?\bextra\s*==\s*['"][^'"]*['"]\)?\s*""")


def closure(wanted: list[str]) -> dict[str, str]:
    """ "name" -> "name==version" or "name==version ; marker" for the requirements and all that they require, on this machine."""
    found: dict[str, str] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [(Requirement(line), "") for line in wanted]
    while waiting:
        requirement, inherited = waiting.pop()
        name, extras = canonicalize_name(requirement.name), frozenset(requirement.extras)
        marker = _platform(requirement.marker) or inherited
        version = metadata.version(name).split("+")[0]
        if name not in found or not marker:
            found[name] = f"{name}=={version}" + (f" ; {marker}" if marker else "")
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        for line in metadata.requires(name) or []:
            needed = Requirement(line)
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras | {""}):
                waiting.append((needed, marker))
    return found


def _platform(marker: Marker | None) -> str:
    """What a marker says of the platform; extras are decided already, and all supported Pythons agree."""
    text = EXTRA.sub("", str(marker)) if marker else ""
    return text if "platform" in text and "python" not in text and "implementation" not in text else ""


def write(name: str, lines: dict[str, str], *, first: str = "") -> None:
    order = sorted(lines, key=lambda package: (package != "torch", package))
    (REPOSITORY / name).write_text(HEADER + first + "".join(f"{lines[package]}\n" for package in order))


def main() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    studio = closure(project["dependencies"] + extras["studio"] + extras["torch"] + extras["onnx"])
    write("requirements.txt", studio)
    for extra in ("s3", "test"):
        more = {name: line for name, line in closure(extras[extra]).items() if name not in studio}
        write(f"requirements-{extra}.txt", more, first="-r requirements.txt\n")


if __name__ == "__main__":
    main()
