"""Which columns the runs of a table have, and how they are named: in filters by people, in addresses by their keys."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from experiments.definitions.arguments import plain_name
from experiments.runtable.columns import Column
from experiments.runtable.facts import FACTS
from experiments.runtable.language import USES, Name, Refused, quoted
from experiments.runtable.measured import Argument, Metric, Tags, metric

TAGS = Tags()
BEFORE = ("id", "name", "state", "experiment", "definition", "user")
PLAIN: dict[str, Column] = {**FACTS, TAGS.key: TAGS, "tags": TAGS}
GROUPS = ("test", "train")  # a metric that is named alone is the first of these
KEY = re.compile(rf"({'|'.join(USES)})\((.*)\)", re.DOTALL)
LONGEST_KEY = 220
USUAL_ARGUMENTS, USUAL_METRICS = 8, 6


@dataclass(frozen=True)
class Known:
    """`kind`: as of RunColumn. `varies`: not all runs have the same value."""

    kind: str
    name: str
    varies: bool = False


class Catalogue:
    """The columns that there are. What is named in full (arg.lr, train.loss) is a column also where no run has it yet."""

    def __init__(self, known: Iterable[Known]) -> None:
        found = list(known)
        self.arguments = {each.name: each.varies for each in found if each.kind == "argument"}
        self.curves = sorted({(each.kind, each.name) for each in found if each.kind != "argument"})

    def named(self, name: Name) -> Column:
        """What stands in a filter. Raises Refused."""
        column = self._find(name.text, name.use)
        if column is not None:
            return column
        if name.use == "best" and self._find(name.text, "last") is not None:
            plain = quoted(name.text)
            said = f"Whether more or less of {name.text} is better is not known by its name: write min({plain}) or max({plain})."
            raise Refused(name.begin, name.end, said)
        like = difflib.get_close_matches(name.text, self._names(), n=3, cutoff=0.6)
        meant = f"Is {' or '.join(quoted(each) if ' ' in each else each for each in like)} meant? " if like else ""
        said = f"No run here has a column {name.text[:60]}. {meant}All are listed under Columns; in full: arg.NAME, train.NAME, test.NAME."
        raise Refused(name.begin, name.end, said)

    def keyed(self, key: str) -> Column | None:
        """What stands in an address, or None."""
        if len(key) > LONGEST_KEY or "\0" in key:
            return None
        used = KEY.fullmatch(key)
        return self._find(used[2], used[1]) if used else self._find(key, "")

    def usual(self, *, with_experiment: bool) -> list[Column]:
        """What is shown where nobody has chosen: the arguments that vary, and the latest values of the metrics."""
        arguments = [Argument(name) for name, varies in self.arguments.items() if varies][:USUAL_ARGUMENTS]
        measured = [found for group in GROUPS for kind, name in self.curves if kind == group and (found := metric(group, name, "last"))]
        first = ("state", "experiment", "user") if with_experiment else ("state", "user")
        return [*(FACTS[key] for key in first), *arguments, *measured[:USUAL_METRICS], TAGS, FACTS["duration"], FACTS["submitted"]]

    def measured(self) -> list[list[Metric]]:
        """For each curve the columns that it may have."""
        return [[found for use in USES if (found := metric(group, name, use)) is not None] for group, name in self.curves]

    def _find(self, text: str, use: str) -> Column | None:
        if use == "" and text.lower() in PLAIN:
            return PLAIN[text.lower()]
        prefix, _, rest = text.partition(".")
        if prefix == "arg" and rest and not use:
            return Argument(plain_name(rest) if plain_name(rest) in self.arguments else rest)
        if prefix in GROUPS and rest:
            return metric(prefix, rest, use or "last")
        if not use and (text in self.arguments or plain_name(text) in self.arguments):
            return Argument(text if text in self.arguments else plain_name(text))
        spelled = [(group, name) for group, name in self.curves if text == f"{group} {name}"]
        alone = [(group, text) for group in GROUPS if (group, text) in self.curves]
        return next((metric(group, name, use or "last") for group, name in (*spelled, *alone)), None)

    def _names(self) -> list[str]:
        curves = [each for group, name in self.curves for each in (name, f"{group} {name}")]
        return [*PLAIN, *self.arguments, *dict.fromkeys(curves)]
