"""How a search for hyperparameters stands: what it is after, how many of its trials have ended, and which is the best so far."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.models import Experiment, Search, SearchTrial
from experiments.searches import choosing, results, specs
from experiments.searches.parameter_values import as_text
from experiments.searches.wishes import Wishes


@dataclass(frozen=True)
class SearchFacts:
    """`most`: trials that there will be, if nothing ends it before; `best`: None while no trial has come to a result."""

    search: Search
    wanted: Wishes
    trials: list[SearchTrial]
    most: int
    best: SearchTrial | None

    @property
    def method(self) -> str:
        """How values are chosen, as people call it."""
        return {"Tpe": "TPE", "Random": "at random", "ExperimentGridSearch": "trials that were listed"}.get(
            self.wanted.algorithm, self.wanted.algorithm
        )

    @property
    def ended_early(self) -> int:
        return sum(trial.ended_early for trial in self.trials)

    @property
    def parameters(self) -> dict[str, str]:
        """What is tried for each, as people write it; empty where trials were listed."""
        return {each.name: as_text(each) for each in self.wanted.parameters}

    @property
    def ended(self) -> int:
        return sum(trial.settled for trial in self.trials)


def of_experiment(experiment: Experiment) -> SearchFacts | None:
    """None for an experiment that is no search."""
    search = Search.objects.filter(experiment=experiment).first()
    return None if search is None else facts(search)


def facts(search: Search) -> SearchFacts:
    wanted, trials = specs.parse(search.spec), list(search.trials.select_related("run"))
    return SearchFacts(search, wanted, trials, choosing.most_runs(wanted), results.best(trials, wanted))
