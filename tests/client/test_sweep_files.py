"""A sweep file of Weights & Biases says what a search of the studio is asked for; what would be another search is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from edt_client import sweep_files
from edt_client.cli import values
from edt_client.errors import ClientError
from experiments.searches import studio_spec

BAYES = """
program: train.py
name: learning rates
method: bayes
project: digits
metric:
  name: val/loss
  goal: minimize
parameters:
  learning_rate:
    distribution: log_uniform_values
    min: 1e-4
    max: 1e-1
  batch_size:
    values: [16, 32, 64]
  layers:
    min: 1
    max: 4
  dropout:
    min: 0.0
    max: 0.5
  width:
    distribution: q_uniform
    q: 8
    min: 8
    max: 64
  nesterov:
    min: 0
    max: 1
  warm_up:
    distribution: log_uniform
    min: 0
    max: 1
  epochs:
    value: 5
early_terminate:
  type: hyperband
  min_iter: 3
run_cap: 12
"""


def of(**changes: Any) -> dict[str, Any]:
    return {"program": "train.py", "method": "bayes", "metric": {"name": "loss"}, "parameters": {"lr": {"min": 0.1, "max": 0.2}}, **changes}


def test_ranges_values_and_wishes_become_those_of_a_search() -> None:
    found = sweep_files.parse(BAYES, "sweep.yaml")
    assert (found.begins, found.arguments, found.name, found.grid) == (("train.py",), ("--epochs=5",), "learning rates", False)
    assert found.parameters == {
        "learning_rate": "0.0001..0.1 log",
        "batch_size": ["16", "32", "64"],
        "layers": "1..4",
        "dropout": "0.0..0.5",
        "width": "8..64 step 8",
        "nesterov": ["0", "1"],
        "warm_up": "1.0..2.718281828459045 log",
    }
    assert found.asked == {"method": "tpe", "metric": "val/loss", "goal": "minimize", "trials": 12, "early_stop": True}


def test_the_studio_reads_each_of_them_as_it_was_meant() -> None:
    found = sweep_files.parse(BAYES, "sweep.yaml")
    wishes = studio_spec.parse({**found.asked, "at_once": 1, "parameters": found.parameters})
    assert {each.name: each.kind for each in wishes.parameters} == {
        "learning_rate": "double",
        "batch_size": "str",
        "layers": "int",
        "dropout": "double",
        "width": "int",
        "nesterov": "str",
        "warm_up": "double",
    }


def test_a_command_says_what_stands_before_and_behind_its_parameters() -> None:
    command = ["${env}", "python3", "${program}", "fit", "${args}", "--quiet"]
    found = sweep_files.parse(yaml.safe_dump(of(command=command)), "sweep.yaml")
    assert (found.begins, found.arguments) == (("train.py",), ("fit", "--quiet"))


@pytest.mark.parametrize("words", [["-m", "letters.train", "fit"], ["-m", "${program}", "fit"]])
def test_a_command_may_name_a_module(words: list[str]) -> None:
    command = ["${env}", "${interpreter}", *words, "${args}"]
    program = "letters.train" if "${program}" in words else None
    found = sweep_files.parse(yaml.safe_dump(of(command=command, program=program)), "sweep.yaml")
    assert (found.begins, found.arguments) == (("-m", "letters.train"), ("fit",))


def test_a_script_that_takes_words_has_each_parameter_as_a_word_already() -> None:
    parameters = {"optimizer.lr": {"min": 0.1, "max": 0.2}, "model": {"values": ["small", "large"]}, "epochs": {"value": 3}}
    said = of(parameters=parameters, command=["${env}", "${interpreter}", "${program}", "${args_no_hyphens}"])
    found = sweep_files.parse(yaml.safe_dump(said, sort_keys=False), "sweep.yaml")
    assert found.arguments == ("epochs=3", "optimizer.lr=0.1", "model=small")
    assert list(found.parameters) == ["optimizer.lr", "model"]


def test_a_grid_has_a_list_for_each_parameter() -> None:
    said = of(method="grid", parameters={"lr": {"values": [0.1, 0.01]}, "deep": {"values": [True, False]}, "seed": {"value": 7}})
    found = sweep_files.parse(yaml.safe_dump(said, sort_keys=False), "sweep.yaml")
    assert (found.grid, found.parameters, found.arguments) == (True, {"lr": ["0.1", "0.01"], "deep": ["True", "False"]}, ("--seed=7",))


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (of(method="grid"), "a grid has no ranges, and lr has one"),
        (of(method="genetic"), "none of bayes, random and grid"),
        (of(program=None), "it names no program"),
        (of(parameters={"lr": {"value": 1}}), "nothing differs"),
        (of(parameters={"lr": 3}), "parameter lr has no values"),
        (of(parameters={"lr": {"min": 1}}), "numbers for its min and max"),
        (of(parameters={"lr": {"min": True, "max": 4}}), "numbers for its min and max"),
        (of(parameters={"lr": {"distribution": "normal", "mu": 0, "sigma": 1}}), "the distribution normal, which is not known"),
        (of(parameters={"lr": {"values": [1, 2], "probabilities": [0.1, 0.9]}}), "have probabilities"),
        (of(parameters={"lr": {"values": [[1], [2]]}}), "no list of numbers or texts"),
        (of(parameters={"optimizer": {"parameters": {"lr": {"value": 1}}}}), "has parameters of its own"),
        (of(metric={"name": "loss", "goal": "least"}), "neither minimize nor maximize"),
        (of(parameters={"lr": {"distribution": "log_uniform", "min": 1, "max": 1000}}), "numbers for its min and max"),
        (of(command=["${program}", "--out=${envvar:HOME}", "${args}"]), "--out=${envvar:HOME}, which has no counterpart"),
        (of(run_cap="many"), "is no number of runs"),
        (of(command=["${program}", "${args_json}"]), "${args_json}, which has no counterpart"),
        (of(command=["torchrun", "${program}", "${args}"]), "its type by --type"),
        (of(command=["torchrun", "-m", "letters.train", "${args}"]), "its type by --type"),
        (of(command=["python", "${program}"]), "hands no parameters to the script"),
    ],
)
def test_what_would_be_another_search_is_refused_by_name(said: dict[str, Any], reason: str) -> None:
    with pytest.raises(ClientError) as refused:
        sweep_files.parse(yaml.safe_dump(said), "sweep.yaml")
    assert reason in str(refused.value)
    assert str(refused.value).startswith("sweep.yaml")


@pytest.mark.parametrize("text", ["", "a: [", "- 1", "parameters: {}", "parameters: [lr]"])
def test_what_is_no_sweep_file_is_said_to_be_none(text: str) -> None:
    with pytest.raises(ClientError, match=r"sweep\.yaml is no"):
        sweep_files.parse(text, "sweep.yaml")


def test_a_file_for_the_other_command_names_it(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(BAYES)
    with pytest.raises(ClientError, match="edt search "):
        values.sweep_file(tmp_path, ["sweep.yaml"], grid=True)
    with pytest.raises(ClientError, match="There is no file other"):
        values.sweep_file(tmp_path, ["other.yaml"], grid=False)
    assert values.sweep_file(tmp_path, ["main.py"], grid=False) is None
    assert values.sweep_file(Path(), [str(tmp_path / "sweep.yaml")], grid=False) is not None
