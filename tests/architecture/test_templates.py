"""Templates are read in an editor: no line is longer than a screen is wide."""

from __future__ import annotations

from tests.architecture.source import ROOT

LONGEST = 160


def test_no_line_of_a_template_is_wider_than_a_screen() -> None:
    templates = sorted((ROOT / "templates").rglob("*.html"))
    assert len(templates) > 150, "they have moved"
    assert not {
        f"{path.relative_to(ROOT)}:{number}": len(line)
        for path in templates
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > LONGEST
    }
