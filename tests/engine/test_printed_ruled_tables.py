"""Tables with a rule below their head, as spaCy prints its trainings, are read: which figures, and at which step."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from training_runtime.elastic.script_logs.printed_lines import PrintedLines

TRAINING = """
=========================== Training pipeline ===========================
Pipeline: ['tok2vec', 'ner']
E    #       LOSS TOK2VEC  LOSS NER  ENTS_F  ENTS_P  ENTS_R  SCORE
---  ------  ------------  --------  ------  ------  ------  ------
  0       0          0.00     32.00    1.50    1.20    2.00    0.02
/usr/lib/x.py:4: UserWarning: no alignment of 7 entities
  3     200         12.25   1500.50   88.00   90.00   86.00    0.88
Saved pipeline to output directory
out/model-last
"""


def read(text: str) -> list[tuple[str, str, int, float]]:
    lines = PrintedLines()
    return [(each.group, each.name, each.step, each.value) for line in text.splitlines() for each in lines.add(line)]


def test_each_row_is_a_step_of_its_curves() -> None:
    names = ("LOSS TOK2VEC", "LOSS NER", "ENTS_F", "ENTS_P", "ENTS_R", "SCORE")
    rows = {0: (0.0, 32.0, 1.5, 1.2, 2.0, 0.02), 200: (12.25, 1500.5, 88.0, 90.0, 86.0, 0.88)}
    assert read(TRAINING) == [("train", name, step, value) for step, of in rows.items() for name, value in zip(names, of, strict=True)]


def test_other_tables_are_no_curves() -> None:
    assert read("Name   Size\n-----  ----\nloss   3\n  4      5") == []
    assert read("#      Size\n-----  ----\n  4      5") == []
    assert read("---  ---\n 1  2") == []


@given(st.lists(st.text(max_size=30) | st.sampled_from(["#  LOSS", "-  ----", "1  2", "1  nan", "٣  1", "9" * 400 + "  1"]), max_size=10))
def test_whatever_a_table_holds_nothing_is_raised(lines: list[str]) -> None:
    read("\n".join(lines))
