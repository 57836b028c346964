"""The base that every environment stands on: the interpreter, the platform, and the packages that are never replaced.

Those are torch with what belongs to it and numpy: they fit the machine's devices, and processes have them in memory before a script runs.
uv is told of them by wheels that hold nothing but their names (`write_stubs`), so that it never fetches them, whatever index it asks; and
what they need themselves bounds what else is chosen (`constraints`).
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
import sysconfig
import zipfile
from collections.abc import Collection
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from training_runtime.environments.requirements import Line

_FAMILY = ("torch", "torchvision", "torchaudio", "triton", "pytorch-triton", "numpy")
_OF_CUDA = "nvidia-"


@dataclass(frozen=True)
class Base:
    """`fixed`: (name, version) of what is never replaced; `bounds`: what these need of others."""

    python: str
    platform: str
    fixed: tuple[tuple[str, str], ...]
    bounds: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return hashlib.sha256(json.dumps([self.python, self.platform, self.fixed, self.bounds]).encode()).hexdigest()

    @property
    def words(self) -> str:
        shown = [f"{name} {version}" for name, version in self.fixed if not name.startswith(_OF_CUDA)]
        return ", ".join([f"Python {self.python}", *shown])[:500]

    def constraints(self) -> str:
        return "".join(f"{line}\n" for line in (*(f"{name}=={version}" for name, version in self.fixed), *self.bounds))


def of_this_machine() -> Base:
    installed = {canonicalize_name(each.name): each for each in metadata.distributions() if each.name}
    names = sorted(name for name in installed if name in _FAMILY or name.startswith(_OF_CUDA))
    fixed = tuple((name, installed[name].version) for name in names)
    bounds = {bound for name in names for text in installed[name].requires or () if (bound := _bound(text, names))}
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    system = f"{sysconfig.get_platform()}-{'-'.join(platform.libc_ver())}"
    return Base(python, system, fixed, tuple(sorted(bounds)))


def _bound(text: str, fixed: Collection[str]) -> str:
    """What a fixed package needs of one that is not, where that says anything."""
    wanted = Requirement(text)
    if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
        return ""
    name = canonicalize_name(wanted.name)
    return f"{name}{wanted.specifier}" if str(wanted.specifier) and name not in fixed else ""


def contradiction(lines: Collection[Line], base: Base) -> str:
    """Why these requirements cannot be had on this base: the first line that asks for another version of what is never replaced."""
    fixed = dict(base.fixed)
    for line in lines:
        if line.name not in fixed:
            continue
        wanted, there = Requirement(line.text), fixed[line.name]
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        if wanted.url or not wanted.specifier.contains(there, prereleases=True):
            return (
                f"{line.where} asks for {line.text}, and scripts here run on {line.name} {there}, which fits the machine and is not "
                f"replaced: write {line.name} without a version, or one that {there.split('+')[0]} satisfies."
            )
    return ""


def write_stubs(base: Base, folder: Path) -> None:
    """A wheel with nothing in it but its name for each fixed package: for `--find-links`."""
    folder.mkdir(exist_ok=True)
    for name, version in base.fixed:
        stem = f"{name.replace('-', '_')}-{version}"
        with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            wheel.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: edt\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{stem}.dist-info/RECORD", "")


def packages(lock: str) -> tuple[tuple[str, str], ...]:
    """(name, version) of what a lock names; the version of one that comes from an address is that address."""
    found = []
    for raw in lock.splitlines():
        if not raw or raw[0] in " #-\t":
            continue
        try:
            wanted = Requirement(raw.split(" #")[0].split(" --")[0].rstrip(" \\"))
        except InvalidRequirement:
            continue
        found.append((canonicalize_name(wanted.name), wanted.url or str(wanted.specifier).removeprefix("==")))
    return tuple(found)


def older(lock: str, *, than: str) -> list[str]:
    """Packages that both locks name and of which the first has an earlier version."""
    newer = dict(packages(than))
    return [name for name, version in packages(lock) if name in newer and _is_before(version, newer[name])]


def _is_before(version: str, other: str) -> bool:
    try:
        return Version(version) < Version(other)
    except InvalidVersion:  # an address
        return False


if __name__ == "__main__":  # for the host, which imports the standard library only
    stands_on = of_this_machine()
    sys.stdout.write(json.dumps({"key": stands_on.key, "words": stands_on.words}))
