"""What a run was told on its command line, as names and values: pure, to be shown, compared and changed. Runs nothing."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

GIVEN = "given"  # the value of an option that takes none


def arguments(command: str) -> dict[str, str]:
    """`main.py data --lr 0.1 --fast` -> {"argument 1": "data", "lr": "0.1", "fast": "given"}. The script's own name is left out.

    What looks like a negative number is a value, not an option. A command that no shell would take apart gives nothing.
    """
    try:
        words = shlex.split(command)
    except ValueError:
        return {}
    found: dict[str, str] = {}
    loose = 0
    rest = words[words.index(script) + 1 :] if (script := _script(words)) else words
    while rest:
        word, *rest = rest
        if not _is_option(word):
            loose += 1
            found[f"argument {loose}"] = word
            continue
        name, equals, value = word.lstrip("-").partition("=")
        if not equals and rest and not _is_option(rest[0]):
            value, *rest = rest
        found[name] = value or ("" if equals else GIVEN)
    return found


def replaced(command: str, flag: str, value: str) -> str:
    """The command with this value for `flag` ("--lr"): in place of the last one that it has, else behind all else."""
    try:
        words = shlex.split(command)
    except ValueError:
        return f"{command} {shlex.join(_told(flag, value))}"
    at = next((at for at in range(len(words) - 1, -1, -1) if words[at] == flag or words[at].startswith(f"{flag}=")), len(words))
    length = 2 if words[at : at + 1] == [flag] and at + 1 < len(words) and not _is_option(words[at + 1]) else 1
    return shlex.join([*words[:at], *_told(flag, value), *words[at + length :]])


def differing(commands: Sequence[str]) -> list[dict[str, str]]:
    """For each of the commands, its arguments that are not the same in all of them."""
    told = [arguments(command) for command in commands]
    names = dict.fromkeys(name for each in told for name in each)
    differ = [name for name in names if len({each.get(name) for each in told}) > 1]
    return [{name: each[name] for name in differ if name in each} for each in told]


def _told(flag: str, value: str) -> list[str]:
    return [f"{flag}={value}"] if value.startswith("-") and flag.startswith("--") else [flag, value]


def _script(words: list[str]) -> str | None:
    return next((word for word in words if word.endswith(".py")), None)


def _is_option(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and not word.lstrip("-")[:1].isdigit() and word.lstrip("-")[:1] not in ("", ".")
