"""Curves as text and as a picture, events as they come, answers of newer studios: all without a connection."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edt_client import events
from edt_client.cli import output
from edt_client.errors import NoAnswer
from edt_client.plots import braille, svg
from edt_client.things import Curve, RunFacts, Slot, read
from edt_client.transport import as_frame

values = st.lists(st.none() | st.floats(allow_nan=True, allow_infinity=True), max_size=300)


def curve(points: list[float | None]) -> Curve:
    return Curve("train", "loss <1>", list(range(len(points))), [0.0] * len(points), points, len(points), False)


@given(values, st.integers(8, 120), st.integers(1, 20))
@example([1.7e308, -1.7e308], 8, 1)
@example([5e-324, 0.0], 8, 1)
def test_any_curve_is_drawn_within_its_lines(points: list[float | None], width: int, height: int) -> None:
    lines = braille(curve(points), width=width, height=height)
    if len(lines) > 2:
        drawn = [line.split("│", 1)[1] for line in lines if "│" in line]
        assert [len(line) for line in drawn] == [width] * height
        assert any(ord(char) > 0x2800 for line in drawn for char in line), "something is drawn"


def test_a_falling_curve_begins_above_and_ends_below() -> None:
    lines = braille(curve([4.0, 3.0, 2.0, 1.0]), width=8, height=4)
    assert lines[0] == "train loss <1>: 1 at step 3"
    drawn = [line.split("│", 1)[1] for line in lines if "│" in line]
    assert drawn[0][0] != chr(0x2800)
    assert drawn[-1][-1] != chr(0x2800)
    assert drawn[0][-1] == drawn[-1][0] == chr(0x2800)


@given(st.lists(values, max_size=12))
@example([[1.7e308, -1.7e308]])
def test_any_curves_are_a_picture(many: list[list[float | None]]) -> None:
    picture = svg([curve(points) for points in many])
    assert ET.fromstring(picture).tag.endswith("svg")
    assert "nan" not in picture


def test_events_are_read_as_they_come() -> None:
    lines = ["event: hello", 'data: {"type": "hello"}', "", ": still here", "", "data: {", 'data: "type": "log"}', "", "data: nonsense", ""]
    assert [event.type for event in events.events(lines)] == ["hello", "log"]


def test_what_a_newer_studio_says_beside_it_is_left_out() -> None:
    slot = {"id": 1, "label": "GPU 0", "node": "local", "device": "gpu", "state": "free", "temperature": 40}
    assert read(Slot, slot) == Slot(1, "GPU 0", "local", "gpu", "free")
    with pytest.raises(NoAnswer, match="of another version"):
        read(Slot, {"id": 1})
    with pytest.raises(NoAnswer):
        read(RunFacts, ["no", "object"])


def test_what_people_write_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["lr [0.1]", "[red]", "a [/] b", "\x1b[2Jcleared\rover\x07", "two\nlines", "Grüße 你好"]
    output.table(("name", "state"), [(name, output.literal("[dim]", "green")) for name in names])
    said = capsys.readouterr().out
    for words in ("lr [0.1]", "[red]", "a [/] b", "\ufffd[2Jcleared\ufffdover\ufffd", "two", "lines", "Grüße 你好", "[dim]"):
        assert words in said
    assert not set(said) & set("\x1b\r\x07")


def test_a_table_of_points_is_a_frame_of_either_library() -> None:
    table = b"group,name,step,epoch,time,value,workers\ntrain,loss,1,0,1700000000.5,0.25,2\ntrain,loss,2,0,1700000001.5,,2\n"
    pandas, polars = as_frame(table, "pandas"), as_frame(table, "polars")
    assert list(pandas.columns) == list(polars.columns) == table.decode().splitlines()[0].split(",")
    assert (pandas["value"][0], polars["value"].to_list()) == (0.25, [0.25, None])
    assert len(pandas) == len(polars) == 2


def test_a_narrow_terminal_shows_all_columns_and_all_of_a_name(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "WIDE", 40)
    path = "model/train/a_checkpoint_with_a_name_that_is_longer_than_a_line.pth"
    output.table(("path", "bytes", "kind"), [(path, 123456, "checkpoint"), ("results/x.csv", 3, "table")])
    lines = capsys.readouterr().out.splitlines()
    assert "123456" in lines[1]
    assert "checkpoint" in lines[1]
    assert "".join(line.split()[0] for line in lines[1:-1]) == path


ECHOES = """
import click
from edt_client.cli import main, output
def say():
    click.echo("epoch 1 \u2713 caf\u00e9")
    output.table(("metric",), [("loss \u2193",)])
main.edt.add_command(click.Command("say", callback=say))
raise SystemExit(main.main(["say"]))
"""


def test_what_a_terminal_has_no_character_for_ends_nothing() -> None:
    """A log with a check mark, in the terminal of a machine that is set to Latin-1."""
    environment = os.environ | {"PYTHONIOENCODING": "iso-8859-1"}
    done = subprocess.run([sys.executable, "-c", ECHOES], env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode("iso-8859-1").split("\n")[0] == "epoch 1 ? café"


def test_a_run_that_a_clock_ahead_of_ours_has_started_lasts_no_negative_time() -> None:
    ahead = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=5)
    facts: Any = SimpleNamespace(started_at=ahead, ended_at=None)
    assert output.lasted(facts) == "0 s"


@pytest.mark.parametrize(
    ("metrics", "first"),
    [
        (["test loss", "train accuracy", "train loss", "test error_rate"], "test loss 1, test error_rate 1, train accuracy 1"),
        (["test eval_entropy", "test eval_loss", "test eval_runtime", "train loss"], "test eval_loss 1, test eval_entropy 1, train loss 1"),
        (["train entropy", "train loss", "train reward", "train reward_std"], "train loss 1, train reward 1, train reward_std 1"),
        (["train epoch", "train grad_norm", "train learning_rate", "train loss"], "train loss 1, train epoch 1, train grad_norm 1"),
        (
            ["test train/val/loss", "test val/loss", "train lr/pg0", "train train/loss"],
            "test val/loss 1, test train/val/loss 1, train train/loss 1",
        ),
        (
            [
                "train rollout/ep_len_mean",
                "train rollout/ep_rew_mean",
                "train train/entropy_loss",
                "train train/loss",
                "train train/value_loss",
            ],
            "train train/loss 1, train train/value_loss 1, train rollout/ep_rew_mean 1",
        ),
    ],
)
def test_of_many_metrics_those_that_people_look_at_come_first(metrics: list[str], first: str) -> None:
    assert output.best(SimpleNamespace(metrics=dict.fromkeys(metrics, 1.0))) == first  # type: ignore[arg-type]
