"""What is different in a version of a training definition: its attributes and its code, against another version of it."""

from __future__ import annotations

from experiments.models import DefinitionVersion
from experiments.selectors import code

SHOWN = (
    ("Git repository", lambda v: v.git_address),
    ("Branch, tag or commit", lambda v: v.git_ref),
    ("Folder in the repository", lambda v: v.git_folder),
    ("Commit", lambda v: v.git_commit),
    ("Execution command", lambda v: v.command),
    ("Framework", lambda v: v.get_framework_display()),
    ("Device per slot", lambda v: v.get_device_display()),
    ("Distributed training type", lambda v: v.get_distributed_display()),
    ("Network", lambda v: v.get_network_display()),
    ("Maximum number of slots", lambda v: str(v.max_slots)),
    ("Packages", lambda v: v.packages_words),
)


def others(version: DefinitionVersion) -> list[DefinitionVersion]:
    """The other versions of its definition, newest first."""
    return list(version.definition.versions.exclude(pk=version.pk).select_related("bundle").order_by("-number"))


def since(version: DefinitionVersion, among: list[DefinitionVersion], number: str) -> DefinitionVersion | None:
    """The one with that number; else the one before it, or the newest there is; None where there is no other."""
    chosen = next((each for each in among if str(each.number) == number), None)
    return chosen or next((each for each in among if each.number < version.number), None) or next(iter(among), None)


def attributes(old: DefinitionVersion, new: DefinitionVersion) -> list[tuple[str, str, str]]:
    """(what, before, after) of those that differ."""
    return [(name, of(old), of(new)) for name, of in SHOWN if of(old) != of(new)]


def files(old: DefinitionVersion, new: DefinitionVersion) -> list[code.Change]:
    return code.changes(old.bundle, new.bundle)
