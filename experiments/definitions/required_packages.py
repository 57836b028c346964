"""Reads what code requires: which of its files says so, and what that comes to as text and key."""

from __future__ import annotations

from experiments.boxed import required
from experiments.files import bundles
from experiments.models import Bundle
from training_runtime import notebooks
from training_runtime.environments import requirements


def of_bundle(bundle: Bundle, command: str) -> tuple[str, str]:
    """What the bundle's code requires, as text, and its key; both empty where it says nothing. Of a notebook that is what it installs, too.
    Raises BundleRefused."""
    folder, script, path = bundles.unpacked(bundle), _script(bundle, command), file_of(bundle, command)
    try:
        lines = required.read(path, folder=folder) if path else ()
        if notebooks.is_notebook(script) and (folder / script).is_file():
            named = {line.name for line in lines}
            lines += tuple(line for line in required.read(script, folder=folder) if line.name not in named)
    except requirements.Refused as refused:
        raise bundles.BundleRefused(str(refused)) from None
    return (requirements.to_text(lines), requirements.key(lines)) if lines else ("", "")


def file_of(bundle: Bundle, command: str) -> str:
    """Which of its files is there to say what the command requires; empty where none is."""
    folder, script = bundles.unpacked(bundle), _script(bundle, command)
    names = [name for name in _candidates(script) if (folder / name).is_file()]
    return requirements.find(names, script)


def _script(bundle: Bundle, command: str) -> str:
    script = bundles.parse_command(command)[0] if command else ""
    return script.removeprefix(f"{bundle.root}/") if bundle.root else script


def of_text(text: str, *, title: str) -> tuple[str, str]:
    """The text of a requirements file that somebody typed, as `of_bundle`; `title` stands for the file's name in messages."""
    lines = required.read(title, text=text)
    return requirements.to_text(lines), requirements.key(lines)


def _candidates(script: str) -> list[str]:
    folder = script.rpartition("/")[0]
    names = (requirements.FILE, requirements.PROJECT)
    return [*names, *(f"{folder}/{name}" for name in names if folder)]
