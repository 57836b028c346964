"""The journal: what is written is read back, torn and hostile lines do no harm, sequence numbers have no gap."""

import errno
import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_runtime import journal, journal_writer
from training_runtime.errors import JournalError

EVENTS = [
    journal.Started(1, 4, 32, 3, 12, 1500, 0, 27_000, 216_000),
    journal.Generation(2, 812, 3, (journal.Member(0, 5, 4711),), 4, "bob's run started", 23.0, 0),
    journal.Train(1, 1, {"loss": 2.3, "accuracy": 0.1}, 128, 4, 0.02),
    journal.Test(12, 1, {"loss": 1.9}, 297),
    journal.Digest(12, 1, "9f86d081884c7d65"),
    journal.Checkpoint(12, 1, "model", ("model/train/model_epoch_1.pth",), 120_000),
    journal.Suspended(40, 4, "carol's run has a higher priority"),
    journal.Resumed(40, 4, "a slot is free"),
    journal.Exactness(("the same samples, loaded twice, were not the same",), True, '{"torch": "2.13.0"}'),
    journal.Warned("onnx is not installed"),
    journal.Failed("ValueError: no such file", "Traceback ...", "worker on slot 2"),
    journal.Trained(36, 3),
    journal.Finished("completed", 36, 3, {"test loss": 0.1}, 61.5),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / journal.FILE_NAME


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: e.kind)
def test_every_event_is_read_back_as_written(path: Path, event: journal.Event) -> None:
    writer = journal_writer.Writer(path, 7)
    writer.write(event, t=12.5)
    assert writer.flush() == path.stat().st_size
    writer.close()
    assert list(journal.follow(path)) == [journal.Line(7, 1, 12.5, event)]


def test_a_loss_that_is_not_a_number_travels_as_valid_json(path: Path) -> None:
    writer = journal_writer.Writer(path, 7)
    writer.write(journal.Train(1, 1, {"loss": math.nan, "norm": math.inf, "low": -math.inf}, 8, 1, 0.1))
    writer.close()
    json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    [line] = journal.follow(path)
    assert isinstance(line.event, journal.Train)
    assert math.isnan(line.event.metrics["loss"])
    assert (line.event.metrics["norm"], line.event.metrics["low"]) == (math.inf, -math.inf)


def test_the_sequence_goes_on_after_a_restart_and_a_torn_line_is_cut_off(path: Path) -> None:
    first = journal_writer.Writer(path, 7)
    first.write(EVENTS[0])
    first.close()
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"v":1,"run":7,"seq":2,"ki')
    second = journal_writer.Writer(path, 7)
    second.write(EVENTS[2])
    second.close()
    assert [line.seq for line in journal.follow(path)] == [1, 2]
    assert path.read_bytes().startswith(whole)


def test_a_reader_leaves_a_line_that_is_still_being_written(path: Path) -> None:
    whole = journal.format_line(7, 1, 0.0, EVENTS[2])
    path.write_bytes(whole + b'{"v":1')
    batch = journal.read(path, 0)
    assert (len(batch.lines), batch.end_offset) == (1, len(whole))
    assert journal.read(path, batch.end_offset).end_offset == batch.end_offset


def test_a_missing_journal_reads_as_empty(path: Path) -> None:
    assert journal.read(path, 0) == journal.Batch(0, 0, ())


@pytest.mark.parametrize(
    "raw",
    [
        b"{}",
        b"null",
        b'{"v":2,"run":1,"seq":1,"t":0,"kind":"warning","message":""}',
        b'{"v":1,"run":1,"seq":1,"t":0,"kind":"launch"}',
        b'{"v":1,"run":1,"seq":1,"t":0,"kind":"warning","message":["x"]}',
        b'{"v":1,"run":1,"seq":1,"t":0,"kind":"train","step":1,"epoch":1,"metrics":{"loss":"much"},"samples":1,"workers":1,"step_s":0}',
        b'{"v":1,"run":1,"t":0,"kind":"warning","message":""}',
        b'{"v":1,"run":1,"seq":1,"kind":"warning","message":"","t":1' + b"0" * 400 + b"}",
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_a_hostile_line_is_rejected_and_the_rest_is_read(path: Path, raw: bytes) -> None:
    with pytest.raises(JournalError):
        journal.parse(raw)
    path.write_bytes(raw + b"\n" + journal.format_line(7, 2, 0.0, EVENTS[7]))
    batch = journal.read(path, 0)
    assert [line.seq for line in batch.lines] == [2]
    assert len(batch.rejected) == 1


def test_a_line_without_an_end_cannot_stop_the_reader(path: Path) -> None:
    path.write_bytes(b"x" * 5000 + b"\n" + journal.format_line(7, 1, 0.0, EVENTS[7]))
    seen, offset = [], 0
    while (batch := journal.read(path, offset, limit_bytes=2000)).end_offset > offset:
        seen += batch.lines
        offset = batch.end_offset
    assert [line.seq for line in seen] == [1]


def test_a_journal_that_is_a_symbolic_link_is_not_written(tmp_path: Path, path: Path) -> None:
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError):
        journal_writer.Writer(path, 7)


@given(st.binary(max_size=400))
def test_no_bytes_make_the_reader_raise(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    path = tmp_path_factory.mktemp("journal") / journal.FILE_NAME
    path.write_bytes(raw)
    assert journal.read(path, 0).end_offset <= len(raw)


class Full:
    """`os.write` on a disk with so much room."""

    def __init__(self, room: int) -> None:
        self.room, self.write = room, os.write

    def __call__(self, fd: int, data: bytes) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = self.write(fd, bytes(data[: self.room]))
        self.room -= written
        return written


def test_lines_that_a_full_disk_did_not_take_are_written_when_there_is_room(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = journal_writer.Writer(path, 7)
    disk = Full(100)
    monkeypatch.setattr(os, "write", disk)
    for event in EVENTS:
        writer.write(event)
    with pytest.raises(OSError):
        writer.flush()
    assert path.stat().st_size == 100
    with pytest.raises(OSError):
        writer.flush()
    disk.room = 1 << 20
    assert writer.flush() == path.stat().st_size
    writer.close()
    assert [line.event for line in journal.follow(path)] == EVENTS
    assert not journal.read(path, 0).rejected


def test_opening_a_long_journal_reads_only_its_end(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = journal_writer.Writer(path, 7)
    for step in range(20_000):
        first.write(journal.Train(step + 1, 1, {"loss": 1.0}, 8, 1, 0.1))
    first.close()
    parsed = []
    parse = journal.parse
    for module in (journal, journal_writer):
        monkeypatch.setattr(module, "parse", lambda raw: parsed.append(raw) or parse(raw))
    assert journal_writer.Writer(path, 7).seq == 20_000
    assert len(parsed) == 1


def test_a_hostile_end_hides_no_line_before_it(path: Path) -> None:
    path.write_bytes(journal.format_line(7, 1, 0.0, EVENTS[7]) + b"x\n" * (1 << 20))
    writer = journal_writer.Writer(path, 7)
    assert (writer.seq, writer.flush()) == (1, path.stat().st_size)


def test_zeros_that_a_power_loss_left_at_the_end_are_cut_off(path: Path) -> None:
    whole = journal.format_line(7, 1, 0.0, EVENTS[7])
    path.write_bytes(whole + b"\0" * 500 + b"\n" + b"\0" * 3000)
    assert journal_writer.Writer(path, 7).seq == 1
    assert path.read_bytes() == whole


def test_a_reader_waits_for_what_arrives_later_than_the_size(path: Path) -> None:
    lines = [journal.format_line(7, seq, 0.0, EVENTS[7]) for seq in (1, 2, 3)]
    path.write_bytes(lines[0] + b"\0" * len(lines[1]) + lines[2])
    batch = journal.read(path, 0)
    assert ([line.seq for line in batch.lines], batch.rejected) == ([1], ())
    assert journal.read(path, 0, final=True).end_offset == path.stat().st_size, "at the end nothing more will come"
    path.write_bytes(b"".join(lines))
    assert [line.seq for line in journal.read(path, batch.end_offset).lines] == [2, 3]


def test_a_mark_tells_a_file_that_was_cut_and_has_grown_again(path: Path) -> None:
    lines = [journal.format_line(7, seq, float(seq), EVENTS[7]) for seq in range(1, 9)]
    path.write_bytes(b"".join(lines[:5]))
    seen = journal.read(path, 0)
    assert journal.read(path, seen.end_offset).before == seen.after, "the same file"
    path.write_bytes(b"".join(lines[:3]))
    assert journal.read(path, seen.end_offset).before == ""
    path.write_bytes(b"".join(lines[:3]) + b"".join(journal.format_line(7, seq, 0.5, EVENTS[7]) for seq in range(4, 9)))
    assert journal.read(path, seen.end_offset).before not in ("", seen.after)
