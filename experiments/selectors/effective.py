"""What runs computed with: their arguments with the defaults, as far as these are known, and code, packages and seed.

An argument's value is what the script's own parser made of it, where the run has noted that; else what the command says; else the default
that the script's text declares. Reading the text takes a while the first time: what stands under a content's hash never changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from experiments import bundles
from experiments.arguments import GIVEN, arguments
from experiments.models import LoggedFacts, TrainingRun
from experiments.scriptargs import Argument
from experiments.selectors import code

UNNAMED = "argument "  # of a command, as `arguments` calls what stands without a name


@dataclass(frozen=True)
class Effective:
    """`name` as on the command line ("--lr"). `given`: on the command line, or else a default. `parsed`: by the script itself."""

    name: str
    value: str
    given: bool
    parsed: bool


def facts_of(runs: Iterable[TrainingRun]) -> dict[int, LoggedFacts]:
    return {facts.run_id: facts for facts in LoggedFacts.objects.filter(run__in=[run.pk for run in runs])}


def effective(run: TrainingRun, facts: LoggedFacts | None) -> list[Effective]:
    """All arguments that are known of the run, those that its script declares first."""
    return together(declared(run), arguments(run.command), facts.arguments if facts is not None else {})


def declared(run: TrainingRun) -> tuple[Argument, ...]:
    """What its script's text says of its arguments; nothing of a run whose code is elsewhere, or of one that cannot be read now."""
    if run.outside:
        return ()
    try:
        script = bundles.entry(run.version.bundle, run.command)[0]
    except bundles.BundleRefused:
        return ()
    return next((each.arguments for each in code.scripts(run.version.bundle) if each.path == script), ())


def together(known: Iterable[Argument], told: Mapping[str, str], parsed: Mapping[str, str]) -> list[Effective]:
    """Pure: what a script declares, what its command says and what its parser made of that, as one list."""
    left, unseen = dict(told), dict(parsed)
    found = []
    for argument in known:
        names = [_plain(flag) for flag in (*argument.flags, argument.off) if flag]
        given = [name for name in left if _plain(name) in names]
        key = next((name for name in names if name in unseen), None)
        value = unseen.pop(key) if key is not None else _value(argument, [(name, left[name]) for name in given], is_parsed=bool(parsed))
        for name in given:
            del left[name]
        if value is not None:
            found.append(Effective(argument.name, value, bool(given), key is not None))
    for name, value in unseen.items():
        given = [each for each in left if _plain(each) == name]
        for each in given:
            del left[each]
        found.append(Effective(f"--{given[0] if given else name}", value, bool(given), parsed=True))
    loose = [] if parsed else [name for name in left if name.startswith(UNNAMED)]  # a parser gives them their names
    rest = [name for name in left if not name.startswith(UNNAMED)]
    return [*found, *(Effective(name if name in loose else f"--{name}", left[name], given=True, parsed=False) for name in (*rest, *loose))]


def _plain(name: str) -> str:
    """As argparse calls it in its namespace."""
    return name.lstrip("-").replace("-", "_")


def _value(argument: Argument, given: list[tuple[str, str]], *, is_parsed: bool) -> str | None:
    """Of an argument of which the parser has said nothing: where it has spoken at all, this one has no value."""
    if given:
        name, value = given[-1]
        if argument.kind != "flag" or value != GIVEN:
            return value
        return "off" if (argument.off and _plain(name) == _plain(argument.off)) or (argument.default == "on" and not argument.off) else "on"
    return None if is_parsed else argument.default if argument.default is not None else argument.computed or None
