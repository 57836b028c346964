"""Sweep files of Weights & Biases (`wandb sweep sweep.yaml`), as what a search of the studio is asked for. Pure.

What its keys mean is in docs.wandb.ai, "Sweep configuration". What has no ends (`normal` and its kin), probabilities of values, and
parameters within parameters are refused: another search than was asked for helps nobody."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from edt_client.errors import ClientError

METHODS = {"bayes": "tpe", "random": "random"}
ENDINGS = (".yaml", ".yml")
LINEAR = ("", "uniform", "int_uniform", "q_uniform")
ON_LOGS = ("log_uniform_values", "q_log_uniform_values", "inv_log_uniform_values")
EXPONENTS = ("log_uniform", "q_log_uniform", "inv_log_uniform")  # their ends are natural logarithms of the values
MOST_EXPONENT = 700.0  # beyond it there is no such number
PROGRAM, ARGUMENTS, AS_WORDS = "${program}", "${args}", "${args_no_hyphens}"
USUAL = ("${env}", "${interpreter}", PROGRAM, ARGUMENTS)
KNOWN = (*USUAL, AS_WORDS, "python", "python3")


@dataclass(frozen=True)
class SweepFile:
    """`begins`: the script, or -m and a module. `grid`: every combination is asked for, and there is no search. `arguments`: of all its
    runs, with a first value for each parameter where the script takes words, lr=0.1. `asked`: method, metric, goal, trials and early_stop,
    as far as the file says them."""

    begins: tuple[str, ...]
    arguments: tuple[str, ...]
    parameters: dict[str, str | list[str]]
    grid: bool
    name: str = ""
    asked: dict[str, Any] = field(default_factory=dict)


def is_sweep_file(word: str) -> bool:
    return word.endswith(ENDINGS)


def parse(text: str, path: str) -> SweepFile:
    """Raises ClientError, by the path of the file."""
    try:
        said = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ClientError(f"{path} is no YAML: {' '.join(str(error).split())[:200]}") from None
    if not isinstance(said, Mapping) or not isinstance(said.get("parameters"), Mapping) or not said["parameters"]:
        raise ClientError(f"{path} is no sweep file of Weights & Biases: it has no parameters.")
    try:
        return _sweep(said)
    except _Wrong as wrong:
        raise ClientError(f"{path}: {wrong}") from None


class _Wrong(ValueError):
    """What a search cannot do of it."""


def _sweep(said: Mapping[str, Any]) -> SweepFile:
    method = said.get("method", "")
    if method not in (*METHODS, "grid"):
        raise _Wrong(f"method {method!r} is none of bayes, random and grid.")
    fixed: dict[str, list[str]] = {}
    varied: dict[str, str | list[str]] = {}
    for name, wanted in said["parameters"].items():
        values = _values(str(name), wanted)
        if isinstance(values, list) and len(values) == 1:
            fixed[str(name)] = values
        else:
            varied[str(name)] = values
    if not varied:
        raise _Wrong("nothing differs: each parameter has one value.")
    if method == "grid" and (ranged := next((name for name, values in varied.items() if isinstance(values, str)), "")):
        raise _Wrong(f"a grid has no ranges, and {ranged} has one: list its values, or let method be bayes.")
    begins, before, behind, hyphens = _command(said)
    words = [_word(name, values[0], hyphens) for name, values in fixed.items()]
    if not hyphens:
        words += [_word(name, values[0] if isinstance(values, list) else values.split("..")[0], hyphens) for name, values in varied.items()]
    return SweepFile(begins, (*before, *words, *behind), varied, method == "grid", str(said.get("name") or ""), _wishes(said))


def _word(name: str, value: str, hyphens: bool) -> str:
    return f"--{name}={value}" if hyphens else f"{name}={value}"


def _wishes(said: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"method": METHODS.get(said["method"])}
    metric = said.get("metric")
    if isinstance(metric, Mapping) and metric.get("name"):
        found |= {"metric": str(metric["name"]), "goal": metric.get("goal", "minimize")}
        if found["goal"] not in ("minimize", "maximize"):
            raise _Wrong(f"goal {found['goal']!r} is neither minimize nor maximize.")
    most = said.get("run_cap")
    if most is not None and not (isinstance(most, int) and most > 0):
        raise _Wrong(f"run_cap {most!r} is no number of runs.")
    return found | {"trials": most, "early_stop": bool(said.get("early_terminate"))}


def _command(said: Mapping[str, Any]) -> tuple[tuple[str, ...], list[str], list[str], bool]:
    """What it begins with, the words before and behind its parameters, and whether these have hyphens before their names."""
    script, words = said.get("program"), [str(each) for each in said.get("command") or USUAL]
    start = words.index(PROGRAM) if PROGRAM in words else words.index(script) if script in words else -1
    is_module = "-m" in words[:start] if start >= 0 else "-m" in words[:-1]
    if is_module:
        start = words.index("-m") + 1
        script = script if words[start] == PROGRAM else words[start]
    if not isinstance(script, str) or not script:
        raise _Wrong("it names no program: say which script is run, program: train.py")
    if wrong := next((each for each in words if "${" in each and each not in KNOWN), ""):
        raise _Wrong(f"its command has {wrong}, which has no counterpart here: write ${{args}} or ${{args_no_hyphens}}.")
    begins = ("-m", script) if is_module else (script,)
    if start < 0 or any(each not in (*KNOWN, *begins[:-1]) for each in words[:start]):
        raise _Wrong("its command has more before the script than an interpreter: name the script first, and its type by --type.")
    rest = words[start + 1 :]
    at = next((at for at, each in enumerate(rest) if each in (ARGUMENTS, AS_WORDS)), -1)
    if at < 0:
        raise _Wrong("its command hands no parameters to the script: write ${args} where they belong.")
    return begins, rest[:at], rest[at + 1 :], rest[at] == ARGUMENTS


def _values(name: str, wanted: object) -> str | list[str]:
    """A list of values, or a range as the studio has them."""
    if not isinstance(wanted, Mapping):
        raise _Wrong(f"parameter {name} has no values: write `values: [...]`, or min and max.")
    if "parameters" in wanted:
        raise _Wrong(f"parameter {name} has parameters of its own: give each a line of its own, {name}.NAME.")
    if "probabilities" in wanted:
        raise _Wrong(f"the values of {name} have probabilities, and all are as likely here: leave them out.")
    values = wanted.get("values", [wanted["value"]] if "value" in wanted else None)
    if values is not None:
        if not isinstance(values, list) or not values or any(isinstance(each, list | Mapping) for each in values):
            raise _Wrong(f"the values of {name} are no list of numbers or texts.")
        return list(dict.fromkeys(str(each) for each in values))
    return _range(name, wanted)


def _range(name: str, wanted: Mapping[str, Any]) -> str | list[str]:
    how, ends = str(wanted.get("distribution", "")), (wanted.get("min"), wanted.get("max"))
    if how not in (*LINEAR, *ON_LOGS, *EXPONENTS):
        raise _Wrong(f"parameter {name} has the distribution {how}, which is not known here: use uniform or log_uniform_values.")
    least, most = (_number(name, end) for end in ends)
    if how in EXPONENTS:
        least, most = (_number(name, math.exp(end) if end < MOST_EXPONENT else math.inf) for end in (least, most))
    if how in (*ON_LOGS, *EXPONENTS):
        return f"{_text(least, how.startswith('q_'))}..{_text(most, how.startswith('q_'))} log"  # which has no steps
    whole = how == "int_uniform" or (not how and all(isinstance(end, int) for end in ends))
    if whole and most - least <= 1:
        return [str(each) for each in dict.fromkeys((int(least), int(most)))]
    step = f" step {_text(_number(name, wanted.get('q', 1)), True)}" if how == "q_uniform" else ""
    return f"{_text(least, whole or bool(step))}..{_text(most, whole or bool(step))}{step}"


def _text(number: float, whole: bool) -> str:
    """A range of the studio's is of whole numbers where its ends are."""
    return str(int(number)) if whole and number == int(number) else repr(float(number))


def _number(name: str, said: object) -> float:
    """YAML takes 1e-4 for a text, and people write it."""
    try:
        found = float(said) if isinstance(said, int | float | str) and not isinstance(said, bool) else math.nan
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise _Wrong(f"parameter {name} needs a list of values, or numbers for its min and max.")
    return found
