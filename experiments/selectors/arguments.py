"""What a run was told on its command line, as names and values: pure, for pages that show or compare them. Runs nothing."""

from __future__ import annotations

import shlex

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


def _script(words: list[str]) -> str | None:
    return next((word for word in words if word.endswith(".py")), None)


def _is_option(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and not word.lstrip("-")[:1].isdigit() and word.lstrip("-")[:1] not in ("", ".")
