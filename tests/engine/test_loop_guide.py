"""docs/elastic-in-ten-lines.md: its code does what it says, as it is printed."""

from __future__ import annotations

import re
from pathlib import Path

from tests.engine.test_laptop import laptop

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "elastic-in-ten-lines.md"
HEAD, PLAIN, ELASTIC, *MORE = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), flags=re.DOTALL)


def said(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith(("weights", "best", "two"))]


def test_the_code_of_the_guide_trains_and_comes_to_the_same_on_a_laptop(start, tmp_path: Path) -> None:
    assert len(MORE) == 4
    outputs = []
    for block in (ELASTIC, *MORE):
        run = start(HEAD + block)
        run.members(0, 1)
        assert run.wait() == 0, run.tail()
        outputs.append(said(run.log.read_text()))
    assert [len(each) for each in outputs] == [1, 1, 1, 1, 1]
    (tmp_path / "laptop").mkdir()
    alone, _ = laptop(tmp_path / "laptop", code=HEAD + ELASTIC, slots=1).communicate(timeout=120)
    assert said(alone) == outputs[0], alone


def test_the_plain_loop_of_the_guide_runs(start) -> None:
    run = start(HEAD + PLAIN, elastic=False, max_slots=1)
    run.members(0)
    assert run.wait() == 0, run.tail()
    assert "last loss 0." in run.log.read_text()
