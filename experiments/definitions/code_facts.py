"""What the scripts of a version's code say of themselves: which are meant to be run, their arguments, by whose trainer they train.

The code is a folder of ours, unpacked from a checked zip and read-only. Nothing in it is run, and a boxed child reads it (`codework`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath

from django.conf import settings

from experiments.definitions import codework, trainers
from experiments.definitions.script_argument import Argument
from experiments.files import bundles
from experiments.models import Bundle, DefinitionVersion
from training_runtime import notebooks

LARGEST_SHOWN_BYTES = 400_000
LARGEST_NOTEBOOK_BYTES = 4 << 20  # most of it are pictures that its cells have drawn
MOST_SCRIPTS_READ = 30
MOST_CHARACTERS_READ = 1_000_000  # of all scripts of a version


@dataclass(frozen=True)
class Script:
    """A Python file that is meant to be run, and its arguments. `is_whole`: it has no others, as far as is known."""

    path: str
    description: str
    arguments: tuple[Argument, ...]
    is_whole: bool = True


def folder(bundle: Bundle) -> Path:
    """Named by the content's hash; made only by `bundles.store_bundle`."""
    return Path(settings.EDT_HOME) / "code" / bundle.sha256 / bundle.root


def read_text(path: Path) -> str | None:
    most_bytes = LARGEST_NOTEBOOK_BYTES if notebooks.is_notebook(path.name) else LARGEST_SHOWN_BYTES
    with open(path, "rb") as file:
        raw = file.read(most_bytes + 1)
    return None if len(raw) > most_bytes or b"\0" in raw else raw.decode(errors="replace")


@dataclass(frozen=True)
class CodeFacts:
    """What a version's scripts say of themselves. `trainers`: by whose trainer each of all its Python files trains (see `trainers`).
    `syntax_errors`: of those that are no Python."""

    scripts: tuple[Script, ...] = ()
    trainers: tuple[tuple[str, str], ...] = ()
    syntax_errors: tuple[tuple[str, str], ...] = ()


@lru_cache(maxsize=512)
def _read_code(sha256: str, root: str, paths: tuple[str, ...]) -> CodeFacts:
    """What stands under a content's hash never changes, so it is read once."""
    top = Path(settings.EDT_HOME) / "code" / sha256 / root
    texts: dict[str, str] = {}
    for path in paths[:MOST_SCRIPTS_READ]:
        source = read_text(top / PurePosixPath(path))
        if source is not None and sum(map(len, texts.values())) < MOST_CHARACTERS_READ:
            texts[path] = source
    facts: dict[str, codework.ScriptFacts] = (codework.ask("scripts", texts=texts) if texts else None) or {}
    facts = {path: facts[path] for path in texts if path in facts}
    found = tuple(Script(path, script.description, script.arguments, script.is_whole) for path, script in facts.items() if script.runnable)
    wrong = tuple((path, script.syntax_error) for path, script in facts.items() if script.syntax_error)
    return CodeFacts(found, tuple((path, script.trainer) for path, script in facts.items()), wrong)


def describe_code(bundle: Bundle) -> CodeFacts:
    """Nothing where the code is not on this machine, or too many others are read just now."""
    try:
        return _read_code(bundle.sha256, bundle.root, tuple(bundle.scripts))
    except (FileNotFoundError, codework.Busy):
        return CodeFacts()


def wanted_type(bundle: Bundle, command: str) -> str:
    """The type of training that the code asks for when it is begun by `command`, with one of the bundle's scripts, or by none yet; of a
    program or module of a package one process."""
    script = bundles.entry(bundle, command)[0] if command else ""
    is_launched = bool(command) and bundles.launcher(command) is not None
    if script and not is_launched and not notebooks.is_script(script):
        return DefinitionVersion.Distributed.SINGLE
    return trainers.wanted_type(dict(describe_code(bundle).trainers), script, is_launched=is_launched, scripts=bundle.scripts)
