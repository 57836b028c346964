"""The shapes of MLflow's REST interface (mlflow/protos/service.proto): answers, refusals, and what is read of requests. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

PREFIX = "/api/2.0/mlflow/"
ARTIFACTS = "artifacts"  # the folder, below a run's results, of what `log_artifact` keeps
LONGEST_NAME = 250
LONGEST_VALUE = 6000
MOST_NAMES = 1000  # parameters of a run, and tags
INT64 = 2**63 - 1
_TESTS = frozenset({"val", "valid", "validation", "eval", "evaluation", "test", "dev"})
_WORDS = re.compile(r"[^a-z0-9]+")
_ULTRALYTICS = re.compile(r"metrics/(?:(?:precision|recall|mAP50|mAP50-95)(?:[BMP]|\([BMP]\))|accuracy_top[15]|mIoU|pixel_acc)")
_NAME = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]+\Z")
_UNKEPT = re.compile(r"[\x00\ud800-\udfff]")  # by a database
_CONDITION = re.compile(r"""\s*([A-Za-z_]+)\.(`[^`]+`|"[^"]+"|[\w./-]+)\s*(=|!=|<=|>=|<|>|I?LIKE)\s*('[^']*'|"[^"]*"|[-+\w.]+)\s*""", re.I)
_ORDER = re.compile(r"""\s*([A-Za-z_]+)\.(`[^`]+`|"[^"]+"|[\w./-]+)(?:\s+(ASC|DESC))?\s*""", re.I)
_KINDS = {"metric": "metrics", "metrics": "metrics", "param": "params", "params": "params", "parameters": "params"}
_KINDS |= {"tag": "tags", "tags": "tags", "attribute": "attributes", "attributes": "attributes", "attr": "attributes", "run": "attributes"}

Group = Literal["train", "test"]
Code = Literal[
    "INVALID_PARAMETER_VALUE",
    "RESOURCE_DOES_NOT_EXIST",
    "RESOURCE_ALREADY_EXISTS",
    "UNAUTHENTICATED",
    "PERMISSION_DENIED",
    "ENDPOINT_NOT_FOUND",
    "NOT_IMPLEMENTED",
    "TEMPORARILY_UNAVAILABLE",
]
STATUS: dict[Code, int] = {
    "INVALID_PARAMETER_VALUE": 400,
    "RESOURCE_DOES_NOT_EXIST": 404,
    "RESOURCE_ALREADY_EXISTS": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "ENDPOINT_NOT_FOUND": 404,
    "NOT_IMPLEMENTED": 400,  # the client would try a 501 again and again
    "TEMPORARILY_UNAVAILABLE": 503,  # as it does this
}


class Refused(Exception):
    """What the client raises as MlflowException. The message says what to do."""

    def __init__(self, code: Code, says: str) -> None:
        super().__init__(says)
        self.code: Code = code


@dataclass
class Point:
    """A value of a metric: `at_ms` in milliseconds of Unix time."""

    value: float
    at_ms: int
    step: int


@dataclass
class Run:
    """A run as the client sees it. `metrics`: the last value of each."""

    key: str
    name: str
    experiment: str
    user: str
    artifacts: str
    status: str = "RUNNING"
    began_ms: int = 0
    ended_ms: int | None = None
    parameters: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, Point] = field(default_factory=dict)
    inputs: list[Any] = field(default_factory=list)

    def answer(self) -> dict[str, Any]:
        data = {"params": _pairs(self.parameters), "tags": _pairs(self.tags | {"mlflow.runName": self.name, "mlflow.user": self.user})}
        data["metrics"] = [metric(name, point) for name, point in self.metrics.items()]
        return {"info": self.info(), "data": data, "inputs": {"dataset_inputs": self.inputs}}

    def info(self) -> dict[str, Any]:
        ended = {"end_time": self.ended_ms} if self.ended_ms is not None else {}
        return {
            "run_id": self.key,
            "run_uuid": self.key,
            "run_name": self.name,
            "experiment_id": self.experiment,
            "user_id": self.user,
            "status": self.status,
            "start_time": self.began_ms,
            **ended,
            "artifact_uri": self.artifacts,
            "lifecycle_stage": "active",
        }


def error(refused: Refused) -> dict[str, str]:
    return {"error_code": refused.code, "message": str(refused)}


def experiment(key: str, name: str, *, artifacts: str, tags: Mapping[str, str] | None = None) -> dict[str, Any]:
    return {
        "experiment_id": key,
        "name": name,
        "artifact_location": artifacts,
        "lifecycle_stage": "active",
        "tags": _pairs(tags or {}),
    }


def metric(name: str, point: Point) -> dict[str, Any]:
    """JSON has neither NaN nor infinity: they travel as MLflow's own server writes them."""
    value: float | str = point.value
    if not math.isfinite(point.value):
        value = "NaN" if math.isnan(point.value) else "Infinity" if point.value > 0 else "-Infinity"
    return {"key": name, "value": value, "timestamp": point.at_ms, "step": point.step}


def _pairs(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": name, "value": value} for name, value in values.items()]


def group_of(*texts: str) -> Group:
    """Which curves a metric belongs to, by the words in its name, or as Ultralytics calls what a validation comes to."""
    return "test" if any(_TESTS & set(_WORDS.split(text.lower())) or _ULTRALYTICS.fullmatch(text) for text in texts) else "train"


def refuse(says: str) -> NoReturn:
    raise Refused("INVALID_PARAMETER_VALUE", says)


def text(said: Mapping[str, Any], key: str, *, default: str | None = None) -> str:
    value = _any_text(said, key, default=default)
    if _UNKEPT.search(value):
        refuse(f"{key} has a character that cannot be kept: a NUL, or half of one.")
    return value


def _any_text(said: Mapping[str, Any], key: str, *, default: str | None) -> str:
    value = said.get(key, default)
    if not isinstance(value, str) or (not value and default is None):
        refuse(f"{key} is missing, or is no text.")
    return value


def name(said: Mapping[str, Any]) -> str:
    """Of a metric, a parameter or a tag."""
    value = text(said, "key")
    if len(value) > LONGEST_NAME or not _NAME.match(value):
        refuse(f"The name {value[:60]!r} has more than {LONGEST_NAME} characters, or some that cannot be shown: choose another.")
    return value


def value(said: Mapping[str, Any]) -> str:
    """Of a parameter or a tag; what is too long is cut, as the client asks of its server (MLFLOW_TRUNCATE_LONG_VALUES)."""
    clean = _any_text(said, "value", default="").replace("\0", "").encode(errors="replace").decode()
    return clean if len(clean) <= LONGEST_VALUE else f"{clean[: LONGEST_VALUE - 3]}..."


def whole(said: Mapping[str, Any], key: str, *, default: int = 0) -> int:
    """A whole number, which MLflow's own JSON writes as text now and then."""
    try:
        found = int(said.get(key, default))
    except (TypeError, ValueError, OverflowError):
        refuse(f"{key} is no whole number.")
    if not -INT64 <= found <= INT64:
        refuse(f"{key} is too large: at most {INT64}.")
    return found


def point(said: Mapping[str, Any]) -> Point:
    try:
        number = float(said.get("value", "none"))
    except (TypeError, ValueError, OverflowError):
        refuse(f"The value of {str(said.get('key'))[:60]!r} is no number: log it as a parameter or a tag.")
    return Point(number, whole(said, "timestamp"), whole(said, "step"))


def records(said: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = said.get(key, [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        refuse(f"{key} is no list of objects.")
    return found


def matching(runs: Iterable[Run], wanted: str) -> list[Run]:
    """The runs that a search's filter lets through: conditions on metrics, params, tags and attributes, joined by AND."""
    conditions = _conditions(wanted) if wanted.strip() else []
    return [run for run in runs if all(_holds(_of(run, kind, key), sign, right) for kind, key, sign, right in conditions)]


def ordered(runs: Iterable[Run], by: object) -> list[Run]:
    """Sorted as a search asks, the first of `by` above all; those without a value last."""
    found = list(runs)
    for each in reversed(by if isinstance(by, list) else [by]):
        match = _ORDER.fullmatch(str(each))
        kind = _KINDS.get(match[1].lower()) if match else None
        if match is None or kind is None:
            refuse(f"The order {str(each)[:100]!r} is not understood: use one like metrics.loss ASC or attributes.start_time DESC.")
        values = {run.key: _of(run, kind, match[2].strip('`"')) for run in found}
        have = [run for run in found if values[run.key] is not None]
        have.sort(key=lambda run: _comparable(values[run.key]), reverse=(match[3] or "").upper() == "DESC")
        found = have + [run for run in found if values[run.key] is None]
    return found


def _comparable(value: str | float | None) -> tuple[int, float, str]:
    return (1, 0.0, value) if isinstance(value, str) else (0, value if value is not None and value == value else math.inf, "")


def _conditions(wanted: str) -> list[tuple[str, str, str, str]]:
    parsed, rest = [], wanted
    while True:
        match = _CONDITION.match(rest)
        kind = _KINDS.get(match[1].lower()) if match else None
        if match is None or kind is None:
            refuse(f"The filter {wanted[:100]!r} is not understood: use conditions like metrics.loss < 0.3 AND params.lr = '0.1'.")
        parsed.append((kind, match[2].strip('`"'), match[3].upper(), match[4].strip("'\"")))
        rest = rest[match.end() :]
        if not rest:
            return parsed
        if rest[:4].upper() != "AND ":
            refuse(f"The filter {wanted[:100]!r} is not understood after {match[0].strip()[:60]!r}: join conditions by AND.")
        rest = rest[4:]


def _of(run: Run, kind: str, key: str) -> str | float | None:
    if kind == "metrics":
        last = run.metrics.get(key)
        return last.value if last is not None else None
    if kind == "params":
        return run.parameters.get(key)
    if kind == "tags":
        return (run.tags | {"mlflow.runName": run.name, "mlflow.user": run.user}).get(key)
    known: dict[str, str | float | None] = {"run_id": run.key, "run_name": run.name, "status": run.status, "user_id": run.user}
    known |= {"start_time": run.began_ms, "end_time": run.ended_ms}
    if key.lower() not in known:
        refuse(f"There is no attribute {key[:60]!r} to search by: use {', '.join(known)}.")
    return known[key.lower()]


def _holds(left: str | float | None, sign: str, right: str) -> bool:
    if left is None:
        return False
    if sign in ("LIKE", "ILIKE"):
        pattern = ".*".join(re.escape(part) for part in right.split("%"))
        return re.fullmatch(pattern, str(left), re.S | (re.I if sign == "ILIKE" else 0)) is not None
    if isinstance(left, str):
        return left == right if sign == "=" else left != right if sign == "!=" else refuse("Texts are compared by =, !=, LIKE and ILIKE.")
    try:
        number = float(right)
    except ValueError:
        refuse(f"{right[:60]!r} is no number.")
    by_sign = {"=": left == number, "!=": left != number, "<": left < number, ">": left > number}
    return by_sign.get(sign, left <= number if sign == "<=" else left >= number)
