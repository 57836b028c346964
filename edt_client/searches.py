"""Searches for hyperparameters from a client: what the API answers of them, and what can be asked (operations, see `calls`)."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edt_client.calls import Call, Operation
from edt_client.errors import ClientError
from edt_client.operations import object_of
from edt_client.things import read

Values = str | Sequence[str | int | float]


@dataclass(frozen=True)
class Trial:
    """`ended`: its run has ended and was looked at; `result`: of the search's metric, None where it came to none or runs; `ended_early`: it
    fell behind."""

    run: int
    values: dict[str, Any]
    ended: bool
    result: float | None = None
    ended_early: bool = False


@dataclass(frozen=True)
class SearchFacts:
    """A search as it was when it was asked for. `most`: trials that there will be, if nothing ends it before."""

    experiment: int
    name: str
    url: str
    algorithm: str
    metric: str
    objective: str
    state: str
    created_at: dt.datetime
    ended: int
    most: int
    reason: str = ""
    ended_at: dt.datetime | None = None
    parameters: dict[str, str] = field(default_factory=dict)
    best: Any = None
    trials: list[Any] = field(default_factory=list)

    @property
    def has_ended(self) -> bool:
        """With all of its trials."""
        return self.ended_at is not None and all(each.ended for each in self.its_trials)

    @property
    def its_trials(self) -> list[Trial]:
        return [read(Trial, each) for each in self.trials]

    @property
    def its_best(self) -> Trial | None:
        return read(Trial, self.best) if self.best else None


def begin(
    project: int,
    version: int,
    parameters: Mapping[str, Values],
    *,
    metric: str,
    name: str,
    **said: Any,
) -> Operation[SearchFacts]:
    """`said`: command, goal, method, trials, at_once, early_stop, data, source_folder, environment."""
    told = {key: values if isinstance(values, str) else list(values) for key, values in parameters.items()}
    body = {**said, "name": name, "version": version, "parameters": told, "metric": metric}
    answer = yield Call("POST", f"/projects/{project}/searches", json=body, key=uuid.uuid4().hex)
    return read(SearchFacts, object_of(answer))


def of_experiment(experiment: int) -> Operation[SearchFacts]:
    return read(SearchFacts, object_of((yield Call("GET", f"/experiments/{experiment}/search"))))


def stop(experiment: int) -> Operation[SearchFacts]:
    return read(SearchFacts, object_of((yield Call("POST", f"/experiments/{experiment}/search/stop", json={}, key="stop"))))


def parameters(words: Sequence[str]) -> dict[str, str]:
    """NAME=VALUES of a command line, by the name of the argument."""
    found: dict[str, str] = {}
    for word in words:
        name, _, values = word.partition("=")
        if name in found:
            raise ClientError(f"{name} is there twice: write its values once, as in {name}=0.001..0.1")
        found[name] = values
    return found
