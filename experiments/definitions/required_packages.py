"""Reads what code requires: which of its files says so, and what that comes to as text and key."""

from __future__ import annotations

from experiments.boxed import required
from experiments.files import bundles
from experiments.models import Bundle
from training_runtime.environments import requirements


def of_bundle(bundle: Bundle, command: str) -> tuple[str, str]:
    """What the bundle's code requires, as text, and its key; both empty where it says nothing. Raises BundleRefused."""
    folder, path = bundles.unpacked(bundle), file_of(bundle, command)
    if not path:
        return "", ""
    try:
        lines = required.read(path, folder=folder)
    except requirements.Refused as refused:
        raise bundles.BundleRefused(str(refused)) from None
    return (requirements.to_text(lines), requirements.key(lines)) if lines else ("", "")


def file_of(bundle: Bundle, command: str) -> str:
    """Which of its files says what the command requires; empty where none does."""
    folder = bundles.unpacked(bundle)
    script = bundles.parse_command(command)[0] if command else ""
    script = script.removeprefix(f"{bundle.root}/") if bundle.root else script
    names = [name for name in _candidates(script) if (folder / name).is_file()]
    return requirements.find(names, script)


def of_text(text: str, *, title: str) -> tuple[str, str]:
    """The text of a requirements file that somebody typed, as `of_bundle`; `title` stands for the file's name in messages."""
    lines = required.read(title, text=text)
    return requirements.to_text(lines), requirements.key(lines)


def _candidates(script: str) -> list[str]:
    folder = script.rpartition("/")[0]
    names = (requirements.FILE, requirements.PROJECT)
    return [*names, *(f"{folder}/{name}" for name in names if folder)]
