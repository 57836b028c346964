"""Which training of a script is which, in a process that leaves out what was done before."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from training_runtime.elastic.trainers import identity

LIBRARY = """
class Trial:
    def __init__(self, number, **params):
        self.number, self.params = number, params

def search(function, trials):
    while trials:
        trial = trials.pop(0)
        function(trial)

def minimize(function, points):
    while points:
        function(points.pop(0))

def main(function, *arguments):
    function(*arguments)

class Trainer:
    def fit(self):
        fit()
"""
# Each begins three trainings; `left_out` says how many of them were done before, in a process before this one.
SCRIPTS = {
    "at lines of their own": "if left_out < 1: fit()\nif left_out < 2: fit()\nfit()",
    "in a loop": "for fold in range(left_out, 3):\n    fit()",
    "in a loop around a function": "def run(name):\n    fit()\nfor name in ['a', 'b', 'c'][left_out:]:\n    run(name)",
    "in a comprehension": "[fit() for each in [0.1, 0.2, 0.3][left_out:]]",
    "in a loop that is counted": """
import time
k, until = left_out, time.time() + 99
while time.time() < until and k < 3:
    k += 1
    fit()""",
    "in a loop that ends by what it sets": "done = left_out\nwhile done < 3:\n    fit()\n    done = done + 1",
    "with arrays": "import numpy as np\nfor train, test in [(np.arange(k), np.ones(k)) for k in range(3)][left_out:]:\n    fit()",
    "with settings": """
import argparse, dataclasses, enum, pathlib, torch
@dataclasses.dataclass
class Settings:
    rate: float
    more: dict
class Kind(enum.Enum):
    LARGE = object()
def build(): pass
settings = [Settings(0.1, {"kinds": {Kind.LARGE}, "f": build}), argparse.Namespace(rate=0.1), (pathlib.Path("a"), torch.ones(2), object())]
for each in settings[left_out:]:
    fit()""",
    "of a search": "def run(trial):\n    fit()\nlibrary.search(run, [library.Trial(k, rate=k / 7) for k in range(left_out, 3)])",
    "of a search by values": "def run(values):\n    fit()\nlibrary.minimize(run, [{'rate': k} for k in (1, 2, 3)][left_out:] )",
    "in a library's trainer": "for fold in range(left_out, 3):\n    library.Trainer().fit()",
}


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], list[identity.Identity]]:
    """What a process of a run with this script has begun. A thread is called by none of ours."""
    found = list[identity.Identity]()
    folder = tmp_path / "env" / "site-packages"
    folder.mkdir(parents=True)
    (folder / "library.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(folder))

    def fit() -> None:
        found.append(identity.of_caller(sys._getframe(1)))

    def run(script: str, left_out: int) -> list[identity.Identity]:
        found.clear()
        monkeypatch.delitem(sys.modules, "library", raising=False)
        __import__("library").fit = fit
        path = tmp_path / f"{len(script)}.py"  # a file stays as it is while there is a process
        path.write_text(f"import library\n{script}\n")
        with ThreadPoolExecutor(1) as pool:
            pool.submit(runpy.run_path, str(path), {"fit": fit, "left_out": left_out}).result()
        return [*found]

    return run


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_process_that_leaves_out_what_was_done_knows_what_is_left(
    begun: Callable[[str, int], list[identity.Identity]], name: str
) -> None:
    whole = begun(SCRIPTS[name], 0)
    assert len(set(whole)) == 3
    assert [begun(SCRIPTS[name], left_out) for left_out in (0, 1, 2)] == [whole, whole[1:], whole[2:]]


def test_what_a_script_knows_beside_its_loops_is_another_thing_in_each_process_and_does_not_count(
    begun: Callable[..., list[identity.Identity]],
) -> None:
    script = "import os, time, uuid\nstarted, name = time.time(), uuid.uuid4().hex\ndef run(when):\n    seed = os.urandom(4)\n    fit()\n"
    script += "library.main(run, time.time())"
    assert begun(script, 0) == begun(script, 0)


def test_a_script_that_cannot_be_read_any_more_is_known_by_its_lines(begun: Callable[..., list[identity.Identity]]) -> None:
    found = begun("exec(compile('fit()\\nfit()', '<gone>', 'exec'))", 0)
    assert found == begun("exec(compile('fit()\\nfit()', '<gone>', 'exec'))", 0)
    assert found[0] != found[1]


def test_two_branches_are_two_lines_with_the_same_loops(begun: Callable[..., list[identity.Identity]]) -> None:
    script = "for fold in range(2):\n    if left_out:\n        fit()\n    else:\n        fit()"
    first, again = begun(script, 0), begun(script, 1)
    assert [each.loops for each in first] == [each.loops for each in again]
    assert len({each.loops for each in first}) == 2
    assert not {each.lines for each in first} & {each.lines for each in again}


def test_what_a_script_lets_go_of_is_gone(begun: Callable[..., list[identity.Identity]]) -> None:
    """Between two folds, say, whose models have no room beside each other."""
    script = """
import weakref
class Model: pass
def run(folds):
    for fold in folds:
        model = Model()
        seen = weakref.ref(model)
        fit()
        assert (fold, folds) == (fold, range(2))
        del model
        assert seen() is None, fold
run(range(2))
"""
    assert len(begun(script, 0)) == 2


def test_of_a_variable_without_end_no_more_is_read_than_is_needed(begun: Callable[..., list[identity.Identity]]) -> None:
    script = """
class Endless(list):
    read = 0
    def __iter__(self):
        while True:
            Endless.read += 1
            yield [self.read] * 1000
for fold, rows in enumerate([Endless(), Endless()]):
    fit()
assert Endless.read < 1000
"""
    assert len(set(begun(script, 0))) == 2
