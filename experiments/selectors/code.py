"""The code of a version: its files, what its scripts say of their arguments, and what changed since another version.

The folder is our own, unpacked from a checked zip and read-only; nothing in it is run."""

from __future__ import annotations

import filecmp
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from django.utils.html import format_html

from experiments.definitions import codework, trainers
from experiments.definitions.arguments import undeclared
from experiments.definitions.code_facts import Script, describe_code, folder, read_text
from experiments.files import bundles
from experiments.models import Bundle, DefinitionVersion

MOST_FILES_LISTED = 2000
MOST_LINES_SHOWN = 4000
MOST_BYTES_COMPARED = 256 << 20  # of files that are no text, on one page
COMPARE_S = 10.0
MOST_ARGUMENTS_NAMED = 12


@dataclass(frozen=True)
class Change:
    """A file that is not the same in both versions. `lines`: (kind, text), kind "add", "del", "same" or "place"; None where they are not
    shown: no text, or too much of it."""

    path: str
    what: str  # "added", "removed", "changed", "not compared" (as large as before, and too large to read)
    lines: list[tuple[str, str]] | None


@dataclass(frozen=True)
class Associated:
    """A version as an experiment's form shows it: with the command it will run, what its scripts understand, and what its type of training
    makes of whose trainer they train by. `problem`: what keeps it from running."""

    version: DefinitionVersion
    command: str
    scripts: tuple[Script, ...]
    script: str  # of the command
    note: str
    problem: str


def files(bundle: Bundle) -> list[str]:
    """Regular files, relative to the root of the code, Python first."""
    root = folder(bundle)
    found = (path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    names = (path.relative_to(root).as_posix() for path in found)
    return sorted(names, key=lambda name: (not name.endswith(".py"), name.count("/"), name))[:MOST_FILES_LISTED]


def text(bundle: Bundle, path: str) -> str | None:
    """The file, one of `files`; None where it is not text or too long to show."""
    return read_text(folder(bundle) / PurePosixPath(path))


def scripts(bundle: Bundle) -> tuple[Script, ...]:
    """The scripts that are meant to be run, those nearest to the top first."""
    return describe_code(bundle).scripts


def training_note(version: DefinitionVersion) -> str:
    """What the version's type of training makes of whose trainer its code trains by."""
    return trainers.note(version.distributed, dict(describe_code(version.bundle).trainers))


def syntax_note(version: DefinitionVersion, command: str) -> str:
    """A sentence where a script that the command runs, or may import from beside it, is no Python; without a command those at the top."""
    found = describe_code(version.bundle).syntax_errors
    script = _script_of(version, command)
    beside = [(path, error) for path, error in found if PurePosixPath(path).parent == PurePosixPath(script).parent]
    if not beside:
        return ""
    path, error = next((each for each in beside if each[0] == script), beside[0])
    python = ".".join(map(str, sys.version_info[:2]))
    return f"{path} is no Python: {error} (by Python {python}). Runs that come to it fail."


def _script_of(version: DefinitionVersion, command: str) -> str:
    """Nothing where the command is none, or begins with no script of the code."""
    try:
        return bundles.entry(version.bundle, command)[0]
    except bundles.BundleRefused:
        return ""


def associated(
    versions: Sequence[DefinitionVersion], commands: Sequence[str] | None = None, *, with_scripts: bool = True
) -> list[Associated]:
    """For an experiment's form; `commands`, in the order of the versions, where they are not their own. Reading scripts takes a while."""
    found = []
    for version, command in zip(versions, [each.command for each in versions] if commands is None else commands, strict=True):
        told = (scripts(version.bundle), training_note(version), syntax_note(version, command)) if with_scripts else ((), "", "")
        found.append(Associated(version, command, told[0], _script_of(version, command), told[1], told[2]))
    return found


def unknown_arguments(version: DefinitionVersion, command: str, names: Sequence[str]) -> str:
    """A sentence where the command's script declares all its arguments, and some of these are none; else ""."""
    (row,) = associated([version], [command])
    known = next((script.arguments for script in row.scripts if script.path == row.script and script.is_whole), ())
    unknown = undeclared(known, command, names) if known else []
    if not unknown:
        return ""
    there = ", ".join([argument.name for argument in known if not argument.positional][:MOST_ARGUMENTS_NAMED])
    return f"{row.script} declares no argument {' and no '.join(unknown)[:80]}, and may end with an error: it has {there}."


def changes(old: Bundle, new: Bundle) -> list[Change]:
    """By path; equal files are left out, and lines after MOST_LINES_SHOWN in all, or after COMPARE_S."""
    if old.pk == new.pk:
        return []
    before, after = set(files(old)), set(files(new))
    left, budget, began = MOST_LINES_SHOWN, [MOST_BYTES_COMPARED], time.monotonic()
    found: list[Change] = []
    for path in sorted(before | after):
        was = text(old, path) if path in before else ""
        now = text(new, path) if path in after else ""
        if path in before and path in after and was is not None and was == now:
            continue
        what = "added" if path not in before else "removed" if path not in after else "changed"
        lines = None
        if was is None or now is None:
            same = _same_bytes(old, new, path, budget) if what == "changed" else False
            if same:
                continue
            what = "not compared" if same is None else what
        elif left and time.monotonic() - began < COMPARE_S:
            said = _ask_codework("differences", path=path, was=was, now=now, most=left)
            lines = [(kind, line) for kind, line in said] if said is not None else None
            left -= len(lines or ())
        found.append(Change(path, what, lines))
    return found


def _ask_codework(do: str, **said: Any) -> Any:
    try:
        return codework.ask(do, **said)
    except codework.Busy:
        return None


def coloured(bundle: Bundle, path: str) -> str | None:
    """The file as HTML with classes only; None where it is not shown."""
    found = text(bundle, path)
    if found is None:
        return None
    html = _ask_codework("coloured", path=path, text=found)
    return str(html) if html is not None else format_html('<pre class="code">{}</pre>', found)


def _same_bytes(old: Bundle, new: Bundle, path: str, budget: list[int]) -> bool | None:
    """None where it would take reading more than what is left of the budget."""
    one, two = folder(old) / PurePosixPath(path), folder(new) / PurePosixPath(path)
    size = one.stat().st_size
    if size != two.stat().st_size:
        return False
    if size > budget[0]:
        return None
    budget[0] -= size
    return filecmp.cmp(one, two, shallow=False)
