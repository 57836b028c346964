"""The tables of what was tried are whole, and name tests that there are: this one's, and the one of promises in docs/sandbox.md."""

from __future__ import annotations

import re

import pytest

from tests.attack.table import EXPLOITS, FINDINGS, GROUPS_OF_ATTACKS, Tried
from tests.e2e.studio import REPOSITORY

ALL = {**{f"group {number}": each for number, each in GROUPS_OF_ATTACKS.items()}, **FINDINGS, **EXPLOITS}
LEVELS = {"user+landlock", "landlock", "user", "limits", "off"}


def exists(test: str) -> bool:
    name, _, function = test.partition("::")
    path = REPOSITORY / "tests" / name
    return path.is_file() and (not function or re.search(rf"^(async )?def {function}\(", path.read_text(), re.MULTILINE) is not None)


def test_every_attack_of_the_reviews_is_in_it() -> None:
    assert sorted(GROUPS_OF_ATTACKS) == list(range(1, 16))
    assert list(FINDINGS) == [f"A{number}" for number in range(1, 21)]
    assert list(EXPLOITS) == [f"E{number}" for number in range(1, 15)]


@pytest.mark.parametrize("name", list(ALL))
def test_every_test_that_it_names_is_there_and_what_has_none_says_why(name: str) -> None:
    tried: Tried = ALL[name]
    assert tried.tests or tried.left
    assert [test for test in tried.tests if not exists(test)] == []


def test_every_promise_of_the_box_names_its_tests_and_levels() -> None:
    page = (REPOSITORY / "docs" / "sandbox.md").read_text().split("## What is promised\n", 1)[1].split("\n## ", 1)[0]
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in page.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 11
    for number, (promise, tests, levels) in enumerate(rows, 1):
        assert promise.startswith(f"{number}. "), promise
        named = re.findall(r"`([\w/]+\.py(?:::\w+)?)`", tests)
        assert named, promise
        assert [test for test in named if not exists(test)] == [], promise
        said = set(re.findall(r"`([\w+]+)`", levels))
        assert said, promise
        assert said <= LEVELS, promise
