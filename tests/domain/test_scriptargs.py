"""What is read of a script's arguments, without running it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as rounds
from hypothesis import strategies as st

from experiments.definitions import scriptargs
from experiments.definitions.script_argument import Argument

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits" / "main.py"


def only(call: str, before: str = "") -> Argument:
    found = scriptargs.read(f"import argparse\n{before}\np = argparse.ArgumentParser()\np.add_argument({call})\n")
    (argument,) = found.arguments
    return argument


def test_the_example_is_read_with_types_defaults_and_help() -> None:
    found = scriptargs.read(DIGITS.read_text())
    assert found.runnable
    assert found.description.startswith("Reads handwritten digits")
    by_name = {each.name: each for each in found.arguments}
    assert list(by_name) == ["--epochs", "--batch-size", "--engines", "--lr", "--width", "--checkpoint-every", "--seed"]
    assert (by_name["--epochs"].kind, by_name["--epochs"].default) == ("whole", "60")
    assert (by_name["--lr"].kind, by_name["--lr"].default) == ("number", "0.0005")
    assert by_name["--width"].help == "channels of the first convolution, a multiple of 4"


@pytest.mark.parametrize(
    ("call", "kind", "default"),
    [
        ('"-e", "--epochs", type=int, default=3', "whole", "3"),
        ('"--lr", type=float, default=-1e-3', "number", "-0.001"),
        ('"--lr", type=float, default=LR', "number", "0.5"),
        ('"--seconds", type=int, default=60 * 60', "whole", "3600"),
        ('"--name", default="a b"', "text", "a b"),
        ('"--opt", choices=["sgd", "adam"], default="adam"', "choice", "adam"),
        ('"--opt", choices=NAMES', "choice", None),
        ('"--fast", action="store_true"', "flag", "off"),
        ('"--slow", action="store_false"', "flag", "on"),
        ('"--amp", action=argparse.BooleanOptionalAction, default=True', "flag", "on"),
        ('"--sizes", type=int, nargs="+", default=[1, 2]', "words", "1 2"),
        ('"--one", type=int, nargs="?"', "whole", None),
        ('"data"', "text", None),
        ('"--zero", type=float, default=1 / 0', "number", None),
    ],
)
def test_kinds_and_defaults(call: str, kind: str, default: str | None) -> None:
    argument = only(call, before='LR = 0.5\nNAMES = ("a", "b")')
    assert (argument.kind, argument.default) == (kind, default)


def test_what_is_computed_is_shown_as_it_stands() -> None:
    argument = only('"--data", default=os.environ.get("DATA_DIR")')
    assert (argument.default, argument.computed) == (None, "os.environ.get('DATA_DIR')")


def test_details() -> None:
    assert only('"-b", "--batch-size", type=int').flags == ("--batch-size", "-b")
    assert only('"--amp", action=argparse.BooleanOptionalAction').off == "--no-amp"
    assert only('"--lr", type=float, default=0.1, help="rate (default: %(default)s), 5%%"').help == "rate (default: 0.1), 5%"
    assert only('"--lr", required=True').required
    assert only('"data"').positional
    assert only('"data"').required
    assert not only('"data", nargs="*"').required


@pytest.mark.parametrize(
    "source", ["def broken(", "", "x = 1", "p.add_argument()", "p.add_argument(*names)", "p.add_argument('--v', action='version')", "\0"]
)
def test_a_script_that_says_nothing_has_no_arguments(source: str) -> None:
    assert scriptargs.read(source).arguments == ()


def test_a_module_that_is_only_imported_is_not_offered() -> None:
    assert not scriptargs.read("import torch\n\nclass Net: ...\n").runnable
    assert scriptargs.read("if __name__ == '__main__':\n    print(1)\n").runnable


@rounds(max_examples=200, deadline=None)
@given(st.text(max_size=300))
def test_any_text_is_read_without_an_error(text: str) -> None:
    scriptargs.read(text)
    scriptargs.read(f"p.add_argument({text!r}, default={text!r}, choices=[{text!r}])")
