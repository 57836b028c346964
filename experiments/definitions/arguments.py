"""What a run was told on its command line, and what its script made of that, as names and values: pure, to be shown, compared and changed.
Runs nothing."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from experiments.definitions.script_argument import Argument
from training_runtime import notebooks

GIVEN = "given"  # the value of an option that takes none
UNNAMED = "argument "  # of a command, as `arguments` calls what stands without a name
NO_NAME = "{0!r} is no name of an argument: write it as in lr, or --lr."


@dataclass(frozen=True)
class Effective:
    """`name` as on the command line ("--lr"). `given`: on the command line, or else a default. `parsed`: by the script itself."""

    name: str
    value: str
    given: bool
    parsed: bool


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
            found[f"{UNNAMED}{loose}"] = word
            continue
        name, equals, value = word.lstrip("-").partition("=")
        if not equals and rest and not _is_option(rest[0]):
            value, *rest = rest
        found[name] = value or ("" if equals else GIVEN)
    return found


def is_name(text: str) -> bool:
    """Whether `with_value` may take it for a name."""
    return bool(text.lstrip("-")) and text.isprintable() and not any(c.isspace() or c == "=" for c in text)


def undeclared(known: Iterable[Argument], command: str, names: Iterable[str]) -> list[str]:
    """Those that neither the script declares nor its command has: it may refuse them."""
    there = {plain_name(flag) for argument in known for flag in argument.flags}
    told = arguments(command)
    there |= {plain_name(name) for name in told} | {value.partition("=")[0] for value in told.values()}
    return [name for name in names if plain_name(name) not in there and name not in there]


def with_value(command: str, name: str, value: str) -> str:
    """The command with this value for an argument, by its flag ("--lr", "-l") or its name: "lr" stands for the option that the command has
    by that name ("batch_size" also for --batch-size), or for its word "lr=0.1", as Hydra's are; for --lr where it has neither."""
    if name.startswith("-"):
        return replaced(command, name, value)
    try:
        words = shlex.split(command)
    except ValueError:
        words = []
    for at in range(len(words) - 1, -1, -1):
        said, equals, _ = words[at].partition("=")
        if equals and said == name:
            return shlex.join([*words[:at], f"{name}={value}", *words[at + 1 :]])
        if _is_option(said) and plain_name(said) == plain_name(name):
            return replaced(command, said, value)
    return replaced(command, f"--{name}", value)


def replaced(command: str, flag: str, value: str) -> str:
    """The command with this value for `flag` ("--lr"): in place of the last one that it has, written as that is, else behind all else."""
    try:
        words = shlex.split(command)
    except ValueError:
        return f"{command} {shlex.join(_as_words(flag, value))}"
    at = next((at for at in range(len(words) - 1, -1, -1) if words[at] == flag or words[at].startswith(f"{flag}=")), len(words))
    if at < len(words) and words[at] != flag:
        return shlex.join([*words[:at], f"{flag}={value}", *words[at + 1 :]])
    length = 2 if at + 1 < len(words) and not _is_option(words[at + 1]) else 1
    return shlex.join([*words[:at], *_as_words(flag, value), *words[at + length :]])


def differing(commands: Sequence[str]) -> list[dict[str, str]]:
    """For each of the commands, its arguments that are not the same in all of them."""
    told = [arguments(command) for command in commands]
    names = dict.fromkeys(name for each in told for name in each)
    differ = [name for name in names if len({each.get(name) for each in told}) > 1]
    return [{name: each[name] for name in differ if name in each} for each in told]


def together(known: Iterable[Argument], told: Mapping[str, str], parsed: Mapping[str, str]) -> list[Effective]:
    """Pure: what a script declares, what its command says and what its parser made of that, as one list."""
    left, unseen = dict(told), dict(parsed)
    found = []
    for argument in known:
        names = [plain_name(flag) for flag in (*argument.flags, argument.off) if flag]
        given = [name for name in left if plain_name(name) in names]
        key = next((name for name in names if name in unseen), None)
        value = unseen.pop(key) if key is not None else _value(argument, [(name, left[name]) for name in given], is_parsed=bool(parsed))
        for name in given:
            del left[name]
        if value is not None:
            found.append(Effective(argument.name, value, bool(given), key is not None))
    for name, value in unseen.items():
        given = [each for each in left if plain_name(each) == name]
        for each in given:
            del left[each]
        found.append(Effective(f"--{given[0] if given else name}", value, bool(given), parsed=True))
    loose = [] if parsed else [name for name in left if name.startswith(UNNAMED)]  # a parser gives them their names
    rest = [name for name in left if not name.startswith(UNNAMED)]
    return [*found, *(Effective(name if name in loose else f"--{name}", left[name], given=True, parsed=False) for name in (*rest, *loose))]


def plain_name(name: str) -> str:
    """As argparse calls it in its namespace."""
    return name.lstrip("-").replace("-", "_")


def _value(argument: Argument, given: list[tuple[str, str]], *, is_parsed: bool) -> str | None:
    """Of an argument of which the parser has said nothing: where it has spoken at all, this one has no value."""
    if given:
        name, value = given[-1]
        if argument.kind != "flag" or value != GIVEN:
            return value
        turned_off = plain_name(name) == plain_name(argument.off) if argument.off else argument.default == "on"
        return "off" if turned_off else "on"
    return None if is_parsed else argument.default if argument.default is not None else argument.computed or None


def _as_words(flag: str, value: str) -> list[str]:
    return [f"{flag}={value}"] if value.startswith("-") and flag.startswith("--") else [flag, value]


def _script(words: list[str]) -> str | None:
    return next((word for word in words if notebooks.is_script(word)), None)


def _is_option(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and not word.lstrip("-")[:1].isdigit() and word.lstrip("-")[:1] not in ("", ".")
