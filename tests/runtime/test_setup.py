"""What a script's process has: its arguments as its own parser made them, and its packages, in lines of its journal."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from training_runtime import journal
from training_runtime.elastic.driver.masked_journal import masked
from training_runtime.elastic.driver.setup import Noticed, as_texts, imported
from training_runtime.masking import Mask
from training_runtime.noted import Setup


@pytest.fixture
def noticed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Setup]]:
    """What is noted of `main.py --lr 0.3` from here on."""
    found: list[Setup] = []
    monkeypatch.setattr(argparse.ArgumentParser, "parse_known_args", argparse.ArgumentParser.parse_known_args)
    monkeypatch.setattr(sys, "argv", ["main.py", "--lr", "0.3"])
    Noticed(found.append, seed=5).begin()
    yield found


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser()
    made.add_argument("--lr", type=float, default=0.1)
    made.add_argument("--batch-size", type=int, default=32)
    made.add_argument("--amp", action="store_true")
    made.add_argument("--layers", type=int, nargs="+", default=[64, 64])
    made.add_argument("--out", type=Path, default=None)
    return made


def test_what_the_parser_made_of_the_command_line_is_noted_with_the_defaults(noticed: list[Setup]) -> None:
    assert parser().parse_args().lr == 0.3
    assert noticed[0].arguments == {"lr": "0.3", "batch_size": "32", "amp": "off", "layers": "64 64"}
    assert (noticed[0].seed, noticed[0].python) == (5, ".".join(map(str, sys.version_info[:3])))
    assert {name: version for each in noticed for name, version in each.packages.items()}["pytest"] == pytest.__version__
    before = len(noticed)
    parser().parse_args(sys.argv[1:])
    assert len(noticed) == before, "what is known is not noted again"


def test_other_texts_that_a_script_parses_are_not_its_command_line(noticed: list[Setup]) -> None:
    parser().parse_args(["--lr", "9"])
    parser().parse_known_args(iter(["--lr", "9"]))  # type: ignore[arg-type]
    with pytest.raises(SystemExit):
        argparse.ArgumentParser().parse_args()
    assert not any(setup.arguments for setup in noticed)


def test_a_value_that_cannot_be_said_is_not_the_scripts_trouble(noticed: list[Setup]) -> None:
    class Odd:
        def __str__(self) -> str:
            raise RuntimeError("no words")

    odd = parser()
    odd.add_argument("--odd", default=Odd())
    assert odd.parse_args().lr == 0.3
    assert as_texts({"f": print, "o": object(), "n": None, "x" * 500: "y" * 5000}) == {"f": "print", "x" * 120: "y" * 400}


def test_a_process_that_was_forked_notes_nothing(noticed: list[Setup]) -> None:
    pid = os.fork()
    if not pid:
        parser().parse_args()
        os._exit(len(noticed))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_lines_of_any_number_of_arguments_fit_into_the_journal_and_come_back() -> None:
    many = {"\0" * 110 + str(number): "\0" * 400 for number in range(200)}
    lines = [journal.format_line(1, seq + 1, 0.0, setup) for seq, setup in enumerate(Setup.of(many, imported(), python="3", seed=1))]
    assert max(map(len, lines)) < journal.MAX_LINE_BYTES
    assert sum(len(journal.parse(line).event.arguments) for line in lines) == 200  # type: ignore[union-attr]


def test_secrets_among_the_values_are_masked() -> None:
    setup = Setup({"token": "hf_secret_1"}, {}, "3", 1)
    assert masked(setup, Mask(["hf_secret_1"])) == Setup({"token": "***"}, {}, "3", 1)
