"""Value lists in commands: `main.py --lr {0.1,0.3}` is two commands, and with another list it is the grid of both.

As in a shell, only braces outside of quotes with a comma in them are a list; unlike there, spaces around a value count for nothing. A value
that has a comma, a brace or a space of its own stands in quotes. Pure: text in, texts out; what is wrong is a DomainError.
"""

from __future__ import annotations

import itertools
import math
import shlex
from collections.abc import Mapping, Sequence
from typing import TypeVar

from experiments.definitions.arguments import NO_NAME, is_name, with_value
from experiments.services import checks

V = TypeVar("V")
MOST_RUNS = 100  # of the lists of one command
QUOTES = "'\""


def expanded(command: str, *, field: str = "command") -> list[str]:
    """The commands that the lists of `command` make, the last list turning fastest; one without lists is itself."""
    pieces = _pieces(command, field=field)
    choices = [[piece] if isinstance(piece, str) else piece for piece in pieces]
    _check_count(math.prod(map(len, choices)), field=field)
    return ["".join(words) for words in itertools.product(*choices)]


def combined(command: str, values: Mapping[str, Sequence[str]], *, field: str = "grid") -> list[str]:
    """The command with each combination of these values, by the name of an argument ("lr", "--lr" or "-l", see `with_value`): in place of
    what it has for that argument, else behind it; the last name turns fastest. Its own text is taken as it is."""
    for name, given in values.items():
        if not given:
            checks.refuse(field, f"{name} has no value: give it at least one, or leave it out.")
        if not is_name(name):
            checks.refuse(field, NO_NAME.format(name))
    _check_count(math.prod(len(given) for given in values.values()), field=field)
    found = []
    for chosen in itertools.product(*values.values()):
        told = command
        for name, value in zip(values, chosen, strict=True):
            told = with_value(told, name, value)
        found.append(told)
    return found


def _check_count(runs: int, *, field: str) -> None:
    if runs > MOST_RUNS:
        checks.refuse(field, f"These lists make {runs:,} runs: at most {MOST_RUNS} are made at once. Leave values out, or split the list.")


def rows(versions: Sequence[V], commands: Sequence[str], global_command: str = "") -> tuple[list[V], list[str], str]:
    """What an experiment's form says, with a version and its command for each run that the lists make. A global command with lists is each
    version's own from then on, since there are several of it."""
    if len(everywhere := expanded(global_command, field="global_command")) > 1:
        pairs = [(version, command) for version in versions for command in everywhere]
        global_command = ""
    else:
        pairs = []
        for version, said in zip(versions, commands, strict=True):
            pairs += [(version, each) for each in expanded(said, field="versions")]
            if len(pairs) > 10 * MOST_RUNS:  # the service refuses that many; nobody waits for the rest
                break
    return [version for version, _ in pairs], [command for _, command in pairs], global_command


def _pieces(command: str, *, field: str) -> list[str | list[str]]:
    """The text between the lists, and the values of each, in their order."""
    pieces: list[str | list[str]] = []
    begin = at = 0
    while at < len(command):
        end, values = _list(command, at) if command[at] == "{" else (_step(command, at), [])
        if len(values) > 1:
            if "" in values:
                checks.refuse(field, f"{command[at:end]} has an empty value: write a value between the commas, or '' for an empty text.")
            pieces += [command[begin:at], values]
            begin = end
        at = end
    return [*pieces, command[begin:]]


def _list(command: str, begin: int) -> tuple[int, list[str]]:
    """Where a list that opens at `begin` ends, and its values; no values where it is none: not closed, or braces within braces."""
    values, since, at = [], begin + 1, begin + 1
    while at < len(command):
        if command[at] == "{":
            break
        if command[at] in ",}":
            values.append(_value(command[since:at].strip()))
            since = at + 1
            if command[at] == "}":
                return at + 1, values
        at = _step(command, at)
    return begin + 1, []


def _value(text: str) -> str:
    """As it stands in a command: what is no one word there is quoted."""
    try:
        words = shlex.split(text)
    except ValueError:
        return text
    return text if len(words) == 1 or not text else shlex.quote(text)


def _step(command: str, at: int) -> int:
    """The place after what stands at `at`: a character, one behind a backslash, or all that is in quotes."""
    if command[at] == "\\":
        return min(at + 2, len(command))
    if command[at] not in QUOTES:
        return at + 1
    quote, at = command[at], at + 1
    while at < len(command) and command[at] != quote:
        at += 2 if quote == '"' and command[at] == "\\" else 1
    return min(at + 1, len(command))
