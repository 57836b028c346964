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


def test_the_map_of_the_architecture_names_files_that_are_there() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    table = text[text.index("## Where to look") : text.index("## Rooms of")]
    named = re.findall(r"`((?:experiments|training_runtime)/[a-z_/]+\.py)`", table)
    assert len(named) > 15
    assert [name for name in named if not (ROOT / name).is_file()] == []
    rooms = re.findall(r"^\| ([^|]+) \|", text[text.index("## Rooms of") : text.index("## What the sockets say")], re.MULTILINE)
    files = [name for cell in rooms for name in re.findall(r"`([a-z_/]+\.py)`", cell)]
    assert len(files) > 50
    assert [name for name in files if not (ROOT / "experiments" / name).is_file()] == []
