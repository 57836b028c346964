"""Reads what code requires: which of its files says so, and what that comes to as text and key."""

from __future__ import annotations

import contextlib
from pathlib import Path

from experiments.boxed import required
from experiments.files import bundles
from experiments.models import Bundle
from training_runtime import notebooks
from training_runtime.environments import requirements
from training_runtime.environments.requirements import Line


def of_bundle(bundle: Bundle, command: str) -> tuple[str, str]:
    """What the bundle's code requires, as text, and its key; both empty where it says nothing. Of a notebook that is what it installs, too.
    Raises BundleRefused."""
    folder, script, path = bundles.unpacked(bundle), _script(bundle, command), file_of(bundle, command)
    try:
        lines = required.read(path, folder=folder) if path else ()
    except requirements.Refused as refused:
        raise bundles.BundleRefused(str(refused)) from None
    named = {line.name for line in lines}
    lines += tuple(line for line in _installed(folder / script) if line.name not in named)
    return (requirements.to_text(lines), requirements.key(lines)) if lines else ("", "")


def _installed(script: Path) -> tuple[Line, ...]:
    """What a notebook installs; nothing of one that is too much to read, which is run all the same."""
    if not notebooks.is_notebook(script.name) or not script.is_file():
        return ()
    with contextlib.suppress(requirements.Refused):
        return required.read(script.name, folder=script.parent)
    return ()


def file_of(bundle: Bundle, command: str) -> str:
    """Which of its files is there to say what the command requires; empty where none is."""
    folder, script = bundles.unpacked(bundle), _script(bundle, command)
    names = [name for name in _candidates(script) if (folder / name).is_file()]
    return requirements.find(names, script)


def _script(bundle: Bundle, command: str) -> str:
    """Of no command the only one that there is, if it is a notebook: that may say itself what it requires."""
    only = bundle.scripts[0] if len(bundle.scripts) == 1 and notebooks.is_notebook(bundle.scripts[0]) else ""
    script = bundles.parse_command(command)[0] if command else only
    return script.removeprefix(f"{bundle.root}/") if bundle.root else script


def of_text(text: str, *, title: str) -> tuple[str, str]:
    """The text of a requirements file that somebody typed, as `of_bundle`; `title` stands for the file's name in messages."""
    lines = required.read(title, text=text)
    return requirements.to_text(lines), requirements.key(lines)


def _candidates(script: str) -> list[str]:
    folder = script.rpartition("/")[0]
    names = (requirements.FILE, requirements.PROJECT)
    return [*names, *(f"{folder}/{name}" for name in names if folder)]
