"""Value lists as the page reads them, against the reader that counts: what is typed into a field is what the runs are told."""

from __future__ import annotations

import random
import shlex

import pytest

from experiments.errors import DomainError
from experiments.services import grid
from tests.web.browsing import Site, Visit, go

SEED = 7
PIECES = ("a", "0.1", ",", "{", "}", "'", '"', "\\", " ", "-", "--lr", "=", "{1,2}", "'a b'", "ü")
ASK = """async ([commands, fields]) => {
    const grid = await import('/static/js/grid.js');
    return [commands.map(grid.count), fields.map((field) => grid.quoted(grid.fromField(field))),
            fields.map((field) => grid.quoted(grid.fromField(grid.toField(grid.fromField(field)))))];
}"""


def made(draw: random.Random, most: int) -> str:
    return "".join(draw.choice(PIECES) for _ in range(draw.randrange(most)))


def typed(value: str) -> str:
    """As somebody types one of several values."""
    return f'"{value}"' if "," in value or value != value.strip() else value


def test_page_and_studio_agree_about_lists(visit: Visit, site: Site) -> None:
    draw = random.Random(SEED)
    page = visit()
    go(page, site, "new experiment")
    commands = [made(draw, 12) for _ in range(2000)]
    lists = [
        [draw.choice(["0.1", "a b", "x,y", "it's", "-3", "1e-4", "a/b", "{x}", "ü"]) for _ in range(draw.randrange(2, 5))]
        for _ in range(200)
    ]
    counted, words, again = page.evaluate(ASK, [commands, [", ".join(map(typed, values)) for values in lists]])
    for command, count in zip(commands, counted, strict=True):
        try:
            found = grid.expanded(command)
        except DomainError as refused:
            assert count > 1, (command, refused)
            continue
        assert count == len(found), command
    for values, word, shown in zip(lists, words, again, strict=True):
        told = grid.expanded(f"main.py --x {word}")
        assert [shlex.split(each)[-1] for each in told] == values, word
        assert shown == word, "what the field shows of it says the same"


@pytest.mark.parametrize(("typed_", "word"), [("0.1", "0.1"), ("0.1,", "0.1"), ('"64,64"', "64,64"), ("a b", "'a b'"), (" ", "''")])
def test_one_value_is_no_list(visit: Visit, site: Site, typed_: str, word: str) -> None:
    page = visit()
    go(page, site, "new experiment")
    ((), (said,), _) = page.evaluate(ASK, [[], [typed_]])
    assert said == word
