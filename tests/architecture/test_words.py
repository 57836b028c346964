"""The field's words: what was once called otherwise here is not called so again (docs/glossary.md has what it is called)."""

from __future__ import annotations

import re

from tests.architecture.source import ROOT, functions, modules

GIVEN_UP = {
    "arena": "segment",
    "bury": "terminate",
    "chronicle": "recorder",
    "doorbell": "semaphore",
    "hang_up": "close",
    "household": "fork server",
    "keeper": "shim",
    "kinship": "process handles",
    "outpost": "remote node",
    "OutwardFailed": "RequestFailed",
    "OutwardRefused": "AddressRefused",
    "relay": "bridge",
    "roster": "worker table",
    "seat": "worker id",
    "see_off": "drain",
    "vigil": "hang detector",
}
PLACES = ("training_runtime", "experiments", "webapp", "edt_client", "tests", "benchmarks", "docs")

MAY = ("tests/architecture/test_words.py", "training_runtime/host/state.py", "tests/host/test_saved_state.py")  # reads files from before


def test_nothing_is_called_by_a_word_that_was_given_up() -> None:
    words = re.compile(rf"(?<![a-z])({'|'.join(GIVEN_UP)})s?(?![a-z])", re.IGNORECASE)
    here = {ROOT / path for path in MAY}
    files = [path for place in PLACES for kind in ("*.py", "*.md") for path in (ROOT / place).rglob(kind) if path not in here]
    found = [f"{path.relative_to(ROOT)}: {word}" for path in files for word in words.findall(path.read_text())]
    assert len(files) > 1000, "the places have moved"
    assert not found, f"now called: {GIVEN_UP}"


# A function says what it does or what it gives; these names say neither.
EMPTY = {"asked", "given", "hear", "heard", "hear_host", "kept", "kept_of", "let_go", "looked_at", "said", "said_of"}
EMPTY |= {"taken", "told", "wanted"}


def test_a_function_has_a_name_that_says_what_it_does_or_gives() -> None:
    named = {f"{module.name}.{each.name}" for module in modules() for each in functions(module) if each.name.lstrip("_") in EMPTY}
    assert named == set()
