"""One run of the studio as an MLflow server would show it to that run: its driver answers the client with this.

MLflow's run is the studio's run. What a script begins beside it (nested runs, or a second one after the first has ended) is kept under
names of its own, `fold-1/loss`, on the same run's page. The experiment is whichever the script names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from training_runtime import journal
from training_runtime.tracking import answers
from training_runtime.tracking.answers import Group, Point, Refused, Run, refuse
from training_runtime.tracking.models import Models

EXPERIMENT = "0"
MOST_RUNS = 500  # that a script begins
MOST_METRICS = 2000  # names, of all of them
MOST_IN_LINE = 50  # of the journal, which is not to become too long
LATE = 1000  # points of a metric that are looked at
MOST_KEPT = 200_000  # points whose history can be asked for
ENDED = frozenset({"FINISHED", "FAILED", "KILLED"})
_UNFIT = re.compile(r"[^A-Za-z0-9 ._-]+")


class Record(Protocol):
    """Where it goes: the run's journal."""

    def figures(self, group: Group, step: int, metrics: dict[str, float], *, t: float) -> None: ...
    def note(self, noted: journal.Noted) -> None: ...


class Tracker:
    """`before`: what the journal has of earlier attempts. One thread at a time calls `answer`."""

    def __init__(self, run: Run, record: Record, before: Iterable[journal.Line], now_ms: Callable[[], int]) -> None:
        self._run, self._record, self._now_ms = run, record, now_ms
        self._runs = {run.key: run}
        self._prefixes = {run.key: ""}
        self._taken = False  # the studio's run has been resumed, or was the answer to a first `create`
        self._experiment = "Default"
        self._history: dict[tuple[str, str], list[Point]] = {}
        self._kept = 0
        self._models = Models(run, now_ms)
        for line in before:
            if isinstance(line.event, journal.Noted):
                line.event.apply(run.parameters, run.tags)
        self._post: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "experiments/create": self._name_experiment,
            "experiments/search": lambda _: {"experiments": [self._experiment_response()]},
            "experiments/set-experiment-tag": lambda _: {},
            "runs/create": self._create,
            "runs/update": self._update,
            "runs/search": self._search,
            "runs/log-metric": lambda said: self._log(said, metrics=[said]),
            "runs/log-parameter": lambda said: self._log(said, parameters=[said]),
            "runs/set-tag": lambda said: self._log(said, tags=[said]),
            "runs/delete-tag": self._drop_tag,
            "runs/log-batch": self._log_batch,
            "runs/log-inputs": self._log_inputs,
            # Of models the files are what counts, and the client has put those among the artifacts.
            "runs/log-model": self._accept,
            "runs/outputs": self._accept,
        }
        self._get: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "experiments/get": lambda _: {"experiment": self._experiment_response()},
            "experiments/get-by-name": self._name_experiment,
            "runs/get": lambda said: {"run": self._known(said).answer()},
            "metrics/get-history": self._show_history,
        }

    def answer(self, method: str, path: str, said: Mapping[str, Any]) -> dict[str, Any]:
        """`path`: below `answers.PREFIX`. Raises Refused."""
        if path == "logged-models" or path.startswith("logged-models/"):
            return self._models.answer(method, path.removeprefix("logged-models").strip("/"), said)
        do = (self._get if method == "GET" else self._post).get(path)
        if do is None:
            raise Refused("ENDPOINT_NOT_FOUND", f"The studio does not answer {method} {path[:100]}: docs/mlflow.md says what it does.")
        return do(said)

    def _experiment_response(self) -> dict[str, Any]:
        return answers.experiment(EXPERIMENT, self._experiment, artifacts=self._run.artifacts)

    def _name_experiment(self, said: Mapping[str, Any]) -> dict[str, Any]:
        self._experiment = answers.text(said, "experiment_name" if "experiment_name" in said else "name")[: answers.LONGEST_NAME]
        return {"experiment": self._experiment_response(), "experiment_id": EXPERIMENT}

    def _known(self, said: Mapping[str, Any]) -> Run:
        key = said.get("run_id") or said.get("run_uuid") or ""
        run = self._runs.get(str(key))
        if run is None:
            raise Refused("RESOURCE_DOES_NOT_EXIST", f"Run {str(key)[:60]!r} is not one that this script has begun: others it cannot read.")
        return run

    def _accept(self, said: Mapping[str, Any]) -> dict[str, Any]:
        self._known(said)
        return {}

    def _create(self, said: Mapping[str, Any]) -> dict[str, Any]:
        tags = {answers.name(each): answers.value(each) for each in answers.records(said, "tags")}
        asked = answers.text(said, "run_name", default="") or tags.get("mlflow.runName", "")
        # A logger that makes its run itself instead of resuming MLFLOW_RUN_ID (Lightning's) means the run that it is in.
        run = self._run if not self._taken and "mlflow.parentRunId" not in tags else self._begin(asked)
        self._taken = True
        run.status, run.ended_ms = "RUNNING", None
        self._store_values(run, {}, tags)
        return {"run": run.answer()}

    def _begin(self, asked: str) -> Run:
        if len(self._runs) >= MOST_RUNS:
            refuse(f"A script may begin {MOST_RUNS} runs of MLflow: log further ones under names of their own in one.")
        number = len(self._runs)
        name = _UNFIT.sub("_", asked).strip("._ ")[:60] or f"run-{number}"
        if f"{name}/" in self._prefixes.values():
            name = f"{name}-{number}"
        artifacts = f"{self._run.artifacts}/{name.replace(' ', '%20')}"
        run = Run(f"{self._run.key}-{number}", name, EXPERIMENT, self._run.user, artifacts, began_ms=self._now_ms())
        self._runs[run.key], self._prefixes[run.key] = run, f"{name}/"
        return run

    def _update(self, said: Mapping[str, Any]) -> dict[str, Any]:
        run = self._known(said)
        self._taken = True
        status = said.get("status", run.status)
        run.status = status if status in ENDED else "RUNNING"
        run.ended_ms = (answers.whole(said, "end_time") or self._now_ms()) if status in ENDED else None
        if isinstance(said.get("run_name"), str) and said["run_name"]:
            run.name = said["run_name"][: answers.LONGEST_NAME]
        return {"run_info": run.info()}

    def _search(self, said: Mapping[str, Any]) -> dict[str, Any]:
        wanted = said.get("filter", "")
        return {"runs": [run.answer() for run in answers.matching(self._runs.values(), wanted if isinstance(wanted, str) else "")]}

    def _log_batch(self, said: Mapping[str, Any]) -> dict[str, Any]:
        metrics, parameters, tags = (answers.records(said, key) for key in ("metrics", "params", "tags"))
        return self._log(said, metrics=metrics, parameters=parameters, tags=tags)

    def _log(
        self,
        said: Mapping[str, Any],
        *,
        metrics: Sequence[Mapping[str, Any]] = (),
        parameters: Iterable[Mapping[str, Any]] = (),
        tags: Iterable[Mapping[str, Any]] = (),
    ) -> dict[str, Any]:
        """All of it is read before any of it counts."""
        run = self._known(said)
        points = [(answers.name(each), answers.point(each)) for each in metrics]
        of_models = [bool(each.get("model_id")) for each in metrics]
        points = [one for one, is_of_model in zip(points, of_models, strict=True) if not (is_of_model and self._is_known(run, *one))]
        told = {answers.name(each): answers.value(each) for each in parameters}
        tagged = {answers.name(each): answers.value(each) for each in tags}
        if len({(run.key, name) for name, _ in points} | self._history.keys()) > MOST_METRICS:
            refuse(f"A run has at most {MOST_METRICS} metrics: log the rest as a file (mlflow.log_dict).")
        self._taken = True
        self._store_values(run, told, tagged)
        self._draw(run, points)
        return {}

    def _store_values(self, run: Run, parameters: dict[str, str], tags: dict[str, str]) -> None:
        """A parameter may be logged again with another value: a script that is started again does so."""
        for kept, new in ((run.parameters, parameters), (run.tags, tags)):
            if len(kept.keys() | new.keys()) > answers.MOST_NAMES:
                refuse(f"A run has at most {answers.MOST_NAMES} parameters, and as many tags: log the rest as a file (mlflow.log_dict).")
        new_parameters = {name: value for name, value in parameters.items() if run.parameters.get(name) != value}
        new_tags = {name: value for name, value in tags.items() if run.tags.get(name) != value}
        run.parameters |= parameters
        run.tags |= tags
        prefix = self._prefixes[run.key]
        for noted in journal.Noted.of(
            {f"{prefix}{name}": value for name, value in new_parameters.items()},
            {f"{prefix}{name}": value for name, value in new_tags.items()},
        ):
            self._record.note(noted)

    def _drop_tag(self, said: Mapping[str, Any]) -> dict[str, Any]:
        run, name = self._known(said), answers.name(said)
        if run.tags.pop(name, None) is None:
            raise Refused("RESOURCE_DOES_NOT_EXIST", f"The run has no tag {name[:60]!r}.")
        self._record.note(journal.Noted({}, {}, (f"{self._prefixes[run.key]}{name}",)))
        return {}

    def _is_known(self, run: Run, name: str, point: Point) -> bool:
        """Of a model that is logged the client tells the run's last figures again, as its own."""
        late = self._history.get((run.key, name), [])[-LATE:]
        return any((each.at_ms, each.value) == (point.at_ms, point.value) for each in late)

    def _draw(self, run: Run, points: list[tuple[str, Point]]) -> None:
        lines: dict[tuple[Group, int, int], dict[str, float]] = {}
        for name, point in points:
            last = run.metrics.get(name)
            if point.step <= 0:  # logged without a step: counted by its calls
                point.step = 0 if last is None else last.step + 1
            run.metrics[name] = point
            history = self._history.setdefault((run.key, name), [])
            if self._kept < MOST_KEPT:
                self._kept += 1
                history.append(point)
            lines.setdefault((answers.group_of(name), point.step, point.at_ms), {})[f"{self._prefixes[run.key]}{name}"] = point.value
        for (group, step, at_ms), metrics in lines.items():
            names = list(metrics)
            for first in range(0, len(names), MOST_IN_LINE):
                self._record.figures(group, step, {name: metrics[name] for name in names[first : first + MOST_IN_LINE]}, t=at_ms / 1000)

    def _log_inputs(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """Data sets that the script names: kept as a tag each, for people to read."""
        run, inputs = self._known(said), answers.records(said, "datasets")
        named = {}
        for each in inputs[: answers.MOST_NAMES]:
            about = each.get("dataset")
            if isinstance(about, dict):
                named[f"dataset.{answers.text(about, 'name')[:200]}"] = answers.text(about, "digest", default="")
        self._store_values(run, {}, {answers.name({"key": name}): value for name, value in named.items()})
        run.inputs += inputs[: answers.MOST_NAMES - len(run.inputs)]
        return {}

    def _show_history(self, said: Mapping[str, Any]) -> dict[str, Any]:
        run, name = self._known(said), answers.text(said, "metric_key")
        return {"metrics": [answers.metric(name, point) for point in self._history.get((run.key, name), [])]}
