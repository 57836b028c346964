"""What is seen in a cell: sentences, curves as a picture and as text, nothing of it as markup of somebody else's."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET

import pytest

from training_runtime.fabric.notebook import plot
from training_runtime.fabric.notebook.cell import Cell
from training_runtime.fabric.notebook.seen import Curve, Seen, figures, sentence, thin

RUNNING = Seen("running", step=57, steps=210, epoch=3, epochs=10, workers=2, rate=12.53)


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (Seen("queued", "waits: needs 1 slot."), "Queued. Waits: needs 1 slot"),
        (Seen("starting"), "Starting"),
        (RUNNING, "Running on 2 slots: epoch 3 of 10, step 57 of 210, 12.5 steps/s"),
        (Seen("running", "granted", step=1, epoch=1, workers=1), "Running on 1 slot: epoch 1, step 1"),
        (Seen("suspended", "Bob's job is first", step=9), "Suspended: step 9. Bob's job is first"),
        (Seen("completed", "done", step=210, steps=210), "Completed: step 210 of 210"),
        (Seen("failed", "ValueError: no"), "Failed. ValueError: no"),
    ],
)
def test_the_status_is_a_sentence(seen: Seen, said: str) -> None:
    assert sentence(seen) == said


def with_curves(*, steps: int = 500) -> Seen:
    seen = Seen("running", step=steps, steps=steps)
    for step in range(1, steps + 1):
        seen.add("train", step, {"loss": 1 / step, "accuracy": 1 - 1 / step})
    seen.add("test", steps, {"loss": 0.5, "<b>&": 1.0})
    return seen


def test_curves_are_drawn_a_panel_each_and_short() -> None:
    drawn = plot.svg(with_curves(steps=100_000))
    found = ET.fromstring(drawn)
    lines = found.findall(".//{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 2
    assert len(drawn) < 20_000
    assert [text.text for text in found.iter("{http://www.w3.org/2000/svg}tspan") if text.get("font-weight")] == [
        "loss",
        "<b>&",
        "accuracy",
    ]


def test_what_is_no_number_is_left_out_and_nothing_is_drawn_of_nothing() -> None:
    seen = Seen("running")
    assert plot.svg(seen) == plot.text(seen) == ""
    for step, value in enumerate((math.nan, math.inf, 2.0, 2.0)):
        seen.add("train", step, {"loss": value})
    assert thin(seen.curves[("train", "loss")], 10) == [(2, 2.0), (3, 2.0)]
    ET.fromstring(plot.svg(seen))
    only = Seen("running")
    only.add("train", 1, {"loss": math.nan})
    assert plot.svg(only) == ""


def test_a_long_curve_keeps_its_peaks() -> None:
    values = [0.0] * 10_000
    values[6_001] = 9.0
    kept = thin(Curve("train", "loss", list(range(10_000)), values), 100)
    assert (6_001, 9.0) in kept
    assert len(kept) <= 100
    assert kept == sorted(kept)


def test_the_cell_shows_it_all_with_the_link_and_as_text_too() -> None:
    cell = Cell("Run wmla-7", link="http://127.0.0.1/runs/7/?a=1&b='\"", place="<i>")
    seen = with_curves()
    seen.reason, seen.state = "<script>alert(1)</script>", "failed"
    html, text = cell.html(seen), cell.text(seen)
    assert "<script" not in html + plot.svg(seen)
    assert "<i>" not in html
    assert 'href="http://127.0.0.1/runs/7/?a=1&amp;b=&#x27;&quot;"' in html
    assert "Failed: step 500 of 500. &lt;script&gt;" in html
    assert "train loss █" in text
    assert figures(seen).startswith("train loss: 0.002   test loss: 0.5")
