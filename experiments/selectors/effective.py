"""What runs computed with: their arguments with the defaults, as far as these are known, and code, packages and seed.

An argument's value is what the script's own parser made of it, where the run has noted that; else what the command says; else the default
that the script's text declares. Reading the text takes a while the first time: what stands under a content's hash never changes.
"""

from __future__ import annotations

from collections.abc import Iterable

from experiments.definitions.arguments import Effective, arguments, together
from experiments.definitions.script_argument import Argument
from experiments.files import bundles
from experiments.models import LoggedFacts, TrainingRun
from experiments.selectors import code


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
