"""The settings that the studio knows by name are those that the documents name."""

from __future__ import annotations

import re
from pathlib import Path

from webapp.setting_names import NAMES, is_known

REPOSITORY = Path(__file__).resolve().parents[2]
NOT_OF_A_STUDIO = {"EDT_PICTURES", "EDT_PULL_", "EDT_AGENT_PAUSE_S"}  # of its tests, a beginning of two, one that is gone
NOT_FOR_PEOPLE = {"EDT_TERM_GRACE_S"}  # for tests that do not wait for what is to be killed


def test_every_setting_of_the_documents_is_known_and_no_other() -> None:
    documents = [REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md")]
    named = {name for path in documents for name in re.findall(r"(?<![A-Z_])EDT_[A-Z_]+", path.read_text())} - NOT_OF_A_STUDIO
    assert {name for name in named if not is_known(name)} == set()
    assert NAMES - named == NOT_FOR_PEOPLE
