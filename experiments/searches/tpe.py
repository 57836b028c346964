"""A tree-structured Parzen estimator's next values for a search, by Optuna, which is asked for one trial of a study that is made of what
was tried: nothing is remembered in between. Ranges are told as parts of them, so steps and powers are the search's own affair.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.searches.parameter_values import part_of, value_at
from experiments.searches.wishes import Parameter, Value

NEARLY_ONE = 1.0 - 1e-9  # a range ends before its part 1

Known = tuple[Mapping[str, Value], float | None]  # values of a trial and its result, None while it runs


def suggested(
    parameters: Sequence[Parameter],
    known: Sequence[Known],
    *,
    maximize: bool,
    seed: int,
    candidates: int,
    good: Callable[[int], int],
) -> dict[str, Value]:
    """Of so many `candidates` for each parameter that which is likelier among the good ones than among the others. `good`: how many of
    so many trials count as good. The same for the same arguments."""
    import optuna  # where it is used: it takes a quarter of a second

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=_sampler(seed, candidates, good), direction="maximize" if maximize else "minimize")
    distributions = {each.name: _distribution(each) for each in parameters}
    for values, result in known:
        state = optuna.trial.TrialState.RUNNING if result is None else optuna.trial.TrialState.COMPLETE
        codes = {each.name: _encoded(each, values[each.name]) for each in parameters}
        study.add_trial(optuna.create_trial(state=state, params=codes, distributions=distributions, value=result))
    found = study.ask(distributions).params
    return {each.name: _decoded(each, found[each.name]) for each in parameters}


def _sampler(seed: int, candidates: int, good: Callable[[int], int]) -> Any:
    import optuna

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # `gamma` goes with Optuna 6; WMLA's clients may say it
        return optuna.samplers.TPESampler(n_startup_trials=0, n_ei_candidates=candidates, gamma=good, seed=seed, constant_liar=True)


def _distribution(parameter: Parameter) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if parameter.choices:
        return CategoricalDistribution(range(len(parameter.choices)))
    return FloatDistribution(0.0, 1.0)


def _encoded(parameter: Parameter, value: Value) -> float | int:
    return parameter.choices.index(value) if parameter.choices else part_of(parameter, value)


def _decoded(parameter: Parameter, code: float | int) -> Value:
    return parameter.choices[int(code)] if parameter.choices else value_at(parameter, min(code, NEARLY_ONE))
