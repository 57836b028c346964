"""A script that ends itself, or raises an error in colours, has its reason said on the run's page."""

from __future__ import annotations

from pathlib import Path

import pytest

from training_runtime.elastic.script_logs.console_logs import LAST_BYTES, LONGEST_SHOWN, last_line

PARSES = """
import argparse
parser = argparse.ArgumentParser(prog="main.py")
parser.add_argument("--epochs", type=int)
parser.parse_args()
"""


def test_a_script_that_does_not_know_an_argument_says_which(start):
    run = start(PARSES, "--epoks", "3")
    assert run.wait() == 2
    (failed,) = run.events("error")
    assert failed.message == "the script ended with status 2, after it had printed: main.py: error: unrecognized arguments: --epoks 3"


def test_an_error_in_colours_is_said_without_them(start):
    run = start(r"raise ValueError('\x1b[1mbold\x1b[0m words')")
    assert run.wait() == 1
    assert run.events("error")[0].message == "ValueError: bold words"


@pytest.mark.parametrize(
    ("log", "ends_in"),
    [
        (b"one\ntwo\n\n  \n", "two"),
        (b" 10%|#\r\x1b[31m100%|##\x1b[0m\r\n", "100%|##"),
        (b"x" * (2 * LAST_BYTES), "x" * LONGEST_SHOWN),
        (b"\xff\n", "\ufffd"),
        (b"", ""),
    ],
)
def test_the_last_line_is_as_a_person_sees_it(tmp_path: Path, log: bytes, ends_in: str):
    (tmp_path / "console.log").write_bytes(log)
    assert last_line(tmp_path / "console.log") == ends_in
    assert last_line(tmp_path / "no.log") == ""
