"""The code of a version: its files, what its scripts say of their arguments, and what changed since another version.

The folder is our own, unpacked from a checked zip and read-only; nothing in it is run."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath

from django.conf import settings

from experiments import bundles, scriptargs
from experiments.models import Bundle, DefinitionVersion
from experiments.scriptargs import Argument

LARGEST_SHOWN_BYTES = 400_000
MOST_FILES_LISTED = 2000
MOST_LINES_SHOWN = 4000
MOST_SCRIPTS_READ = 30


@dataclass(frozen=True)
class Change:
    """A file that is not the same in both versions. `lines`: (kind, text), kind "add", "del", "same" or "place"; None where not text."""

    path: str
    what: str  # "added", "removed", "changed"
    lines: list[tuple[str, str]] | None


@dataclass(frozen=True)
class Script:
    """A Python file that is meant to be run, and its arguments."""

    path: str
    description: str
    arguments: tuple[Argument, ...]


@dataclass(frozen=True)
class Associated:
    """A version as an experiment's form shows it: with the command it will run, and what its scripts understand."""

    version: DefinitionVersion
    command: str
    scripts: tuple[Script, ...]
    script: str  # of the command


def folder(bundle: Bundle) -> Path:
    """Named by the content's hash; made only by `bundles.keep`."""
    return Path(settings.EDT_HOME) / "code" / bundle.sha256 / bundle.root


def files(bundle: Bundle) -> list[str]:
    """Regular files, relative to the root of the code, Python first."""
    root = folder(bundle)
    found = (path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    names = (path.relative_to(root).as_posix() for path in found)
    return sorted(names, key=lambda name: (not name.endswith(".py"), name.count("/"), name))[:MOST_FILES_LISTED]


def text(bundle: Bundle, path: str) -> str | None:
    """The file, one of `files`; None where it is not text or too long to show."""
    return _read(folder(bundle) / PurePosixPath(path))


def _read(path: Path) -> str | None:
    with open(path, "rb") as file:
        raw = file.read(LARGEST_SHOWN_BYTES + 1)
    return None if len(raw) > LARGEST_SHOWN_BYTES or b"\0" in raw else raw.decode(errors="replace")


@lru_cache(maxsize=512)
def _scripts(sha256: str, root: str, paths: tuple[str, ...]) -> tuple[Script, ...]:
    """What stands under a content's hash never changes, so it is read once."""
    found = []
    for path in paths[:MOST_SCRIPTS_READ]:
        source = _read(Path(settings.EDT_HOME) / "code" / sha256 / root / PurePosixPath(path))
        told = scriptargs.read(source) if source is not None else None
        if told is not None and told.runnable:
            found.append(Script(path, told.description, told.arguments))
    return tuple(found)


def scripts(bundle: Bundle) -> tuple[Script, ...]:
    """The scripts that are meant to be run, those nearest to the top first; none where the code is not on this machine."""
    try:
        return _scripts(bundle.sha256, bundle.root, tuple(bundle.scripts))
    except FileNotFoundError:
        return ()


def associated(versions: Iterable[DefinitionVersion], commands: Mapping[int, str] | None = None) -> list[Associated]:
    """For an experiment's form; `commands` by version's id, where they are not the version's own."""
    found = []
    for version in versions:
        command = (commands or {}).get(version.pk, version.command)
        try:
            script = bundles.entry(version.bundle, command)[0]
        except bundles.BundleRefused:
            script = ""
        found.append(Associated(version, command, scripts(version.bundle), script))
    return found


def changes(old: Bundle, new: Bundle) -> list[Change]:
    """By path; equal files are left out, and lines after MOST_LINES_SHOWN in all."""
    if old.pk == new.pk:
        return []
    before, after = set(files(old)), set(files(new))
    left, found = MOST_LINES_SHOWN, []
    for path in sorted(before | after):
        was = text(old, path) if path in before else ""
        now = text(new, path) if path in after else ""
        if path in before and path in after and was is not None and was == now:
            continue
        if was is None or now is None:
            if path in before and path in after and _same_bytes(old, new, path):
                continue
            lines = None
        else:
            lines = _lines(was, now)[: max(0, left)]
            left -= len(lines)
        found.append(Change(path, "added" if path not in before else "removed" if path not in after else "changed", lines))
    return found


def _lines(was: str, now: str) -> list[tuple[str, str]]:
    kinds = {"+": "add", "-": "del", "@": "place"}
    diff = difflib.unified_diff(was.splitlines(), now.splitlines(), lineterm="", n=3)
    return [(kinds.get(line[:1], "same"), line) for line in list(diff)[2:]]  # without the two lines that name the files


def _same_bytes(old: Bundle, new: Bundle, path: str) -> bool:
    one, two = folder(old) / PurePosixPath(path), folder(new) / PurePosixPath(path)
    return one.stat().st_size == two.stat().st_size and one.read_bytes() == two.read_bytes()
