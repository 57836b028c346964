"""Templates do not get longer lines than they have: how many are long, and how long the longest is, only falls."""

from __future__ import annotations

from tests.architecture.source import ROOT

LONG, LONGEST = 200, 929
HOW_MANY = 138


def test_no_template_gets_longer_lines_than_there_are() -> None:
    templates = sorted((ROOT / "templates").rglob("*.html"))
    assert len(templates) > 150, "they have moved"
    lengths = {
        f"{path.relative_to(ROOT)}:{number}": len(line)
        for path in templates
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > LONG
    }
    assert not {place: length for place, length in lengths.items() if length > LONGEST}
    assert len(lengths) <= HOW_MANY, f"break the new ones: {sorted(lengths, key=lambda place: -lengths[place])}"
