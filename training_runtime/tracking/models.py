"""Models that a script logs (`log_model`): their files lie with the run's artifacts, what is said of them lasts as long as the driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from training_runtime.tracking import answers
from training_runtime.tracking.answers import Refused, Run, refuse

MOST_MODELS = 1000


class Models:
    def __init__(self, run: Run, now_ms: Callable[[], int]) -> None:
        self._run, self._now_ms = run, now_ms
        self._models: dict[str, dict[str, Any]] = {}

    def answer(self, method: str, path: str, said: Mapping[str, Any]) -> dict[str, Any]:
        """`path`: below logged-models/. Raises Refused."""
        key, _, what = path.partition("/")
        if (method, path) == ("POST", ""):
            return {"model": self._create(said)}
        if (method, path) == ("POST", "search"):
            return {"models": list(self._models.values())}
        model = self._models.get(key)
        if model is None:
            raise Refused("RESOURCE_DOES_NOT_EXIST", f"There is no model {key[:60]!r}: this script has not logged it.")
        if (method, what) == ("PATCH", ""):
            model["info"]["status"] = answers.text(said, "status", default="LOGGED_MODEL_READY")
        elif (method, what) == ("PATCH", "tags"):
            model["info"]["tags"] = _together(model["info"]["tags"], said, "tags")
        elif (method, what) == ("POST", "params"):
            model["data"]["params"] = _together(model["data"]["params"], said, "params")
        elif (method, what) != ("GET", ""):
            raise Refused("ENDPOINT_NOT_FOUND", f"The studio does not answer {method} of a logged model's {what[:60] or 'record'}.")
        return {"model": model}

    def _create(self, said: Mapping[str, Any]) -> dict[str, Any]:
        if len(self._models) >= MOST_MODELS:
            refuse(f"A script may log {MOST_MODELS} models: log further ones as artifacts.")
        key, now_ms = f"m-{self._run.key}-{len(self._models) + 1}", self._now_ms()
        info = {
            "model_id": key,
            "experiment_id": self._run.experiment,
            "name": answers.text(said, "name", default="model")[: answers.LONGEST_NAME],
            "creation_timestamp_ms": now_ms,
            "last_updated_timestamp_ms": now_ms,
            "artifact_uri": f"{self._run.artifacts}/models/{key}",
            "status": "LOGGED_MODEL_PENDING",
            "model_type": answers.text(said, "model_type", default=""),
            "source_run_id": answers.text(said, "source_run_id", default=""),
            "tags": _together([], said, "tags"),
        }
        model = self._models[key] = {"info": info, "data": {"params": _together([], said, "params"), "metrics": []}}
        return model


def _together(old: list[dict[str, str]], said: Mapping[str, Any], key: str) -> list[dict[str, str]]:
    values = {each["key"]: each["value"] for each in old}
    values |= {answers.name(each): answers.value(each) for each in answers.records(said, key)}
    if len(values) > answers.MOST_NAMES:
        refuse(f"A model has at most {answers.MOST_NAMES} {key}.")
    return [{"key": name, "value": value} for name, value in values.items()]
