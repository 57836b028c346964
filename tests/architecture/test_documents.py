"""What the documents name is there: links lead to files, and each line for people who come from WMLA names the tests that hold it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def test_links_between_documents_lead_to_files() -> None:
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    broken = [
        f"{document.relative_to(ROOT)}: {target}"
        for document in documents
        for target in LINK.findall(document.read_text())
        if "://" not in target and not (document.parent / target).exists()
    ]
    assert broken == []


def test_every_line_for_people_from_wmla_names_tests_that_are_there() -> None:
    rows = [line for line in (ROOT / "docs/migrating-from-wmla.md").read_text().splitlines() if line.startswith("| ")]
    lines = [row for row in rows if not row.startswith("| what you have")]
    assert len(lines) > 30
    for line in lines:
        named = re.findall(r"`((?:\w+/)+test_\w+\.py)`", line.rsplit(" | ", 1)[1])
        assert named, line
        assert all((ROOT / "tests" / name).is_file() for name in named), line


# What somebody who has just come asks first; each has a line in "Where to look", whose first file one finds in one guess by its name.
QUESTIONS = {
    "where a hang is detected": "hang_detector",
    "where gradients are added": "reduce",
    "who writes a grant": "scheduling",
    "who may see a run": "access",
    "where a zip is checked": "zipcheck",
    "what happens when a slot is asked back": "reclaim",
    "where a worker is forked": "fork",
    "where state is handed to a newcomer": "transfer",
    "where GPU use is read": "utilization",
    "where webhooks are sent": "webhook",
    "what travels between machines": "replication",
    "which machine a run's driver lives on": "placement",
}


def section(begin: str, end: str) -> str:
    text = (ROOT / "docs/architecture.md").read_text()
    return text[text.index(begin) : text.index(end)]


def test_the_map_of_the_architecture_answers_what_newcomers_ask_with_a_file_that_is_called_so() -> None:
    answers = re.findall(r"^\| ([^|]+) \| `([^`]+)`", section("## Where to look", "## Rooms of"), re.MULTILINE)
    for question, word in QUESTIONS.items():
        names = [Path(file).name for asked, file in answers if asked.startswith(question)]
        assert len(names) == 1, question
        assert word in names[0], f"{question}: {names[0]}"


def test_the_map_of_the_architecture_names_files_that_are_there() -> None:
    named = []
    for line in re.findall(r"^\|.*", section("## Where to look", "## Rooms of"), re.MULTILINE):
        folder = ROOT
        for name in re.findall(r"`([a-z_/.]+\.(?:py|js))`", line):
            path = (folder if "/" not in name else ROOT) / name  # a bare name stands beside the one before it
            folder = path.parent
            named.append(path)
    assert len(named) > 30
    assert [str(path.relative_to(ROOT)) for path in named if not path.is_file()] == []
    rooms = re.findall(r"^\| ([^|]+) \|", section("## Rooms of", "## What the sockets say"), re.MULTILINE)
    files = [name for cell in rooms for name in re.findall(r"`([a-z_/]+\.py)`", cell)]
    assert len(files) > 50
    assert [name for name in files if not (ROOT / "experiments" / name).is_file()] == []
