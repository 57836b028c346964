"""How a log is kept to a size: which bytes stay, and which files are not touched."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from training_runtime.host.runs import log_cut

MIB = 1 << 20
MOST = 4 * MIB


@pytest.fixture
def top(tmp_path: Path) -> Path:
    (tmp_path / "log" / "driver").mkdir(parents=True)
    return tmp_path


def cut(top: Path) -> int:
    fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return log_cut.cut(fd, MOST)
    finally:
        os.close(fd)


def written(top: Path, size: int, name: str = "driver") -> Path:
    """A log of lines of 100 bytes."""
    path = top / "log" / name / "console.log"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(b"%098d\n\n" % number for number in range(size // 100)))
    return path


@pytest.mark.parametrize("size", [0, 1000, MOST - 100])
def test_a_log_that_is_not_too_large_stays_as_it_is(top: Path, size: int) -> None:
    path = written(top, size)
    before = path.read_bytes()
    assert cut(top) == 0
    assert path.read_bytes() == before


@pytest.mark.parametrize("size", [MOST + 200, 3 * MOST, 10 * MOST])
def test_the_beginning_and_the_end_stay_and_a_sentence_between_them(top: Path, size: int) -> None:
    path = written(top, size)
    before = path.read_bytes()
    assert cut(top) == 1
    after = path.read_bytes()
    head, _, rest = after.partition(b"\n[EDT Studio: ")
    said, _, tail = rest.partition(b"]\n")
    assert MOST // 2 <= len(after) <= MOST // 2 + MIB + 400
    assert before.startswith(head)
    assert before.endswith(tail)
    assert MIB <= len(head) <= MIB + 100
    assert len(tail) > MOST // 2 - 200
    assert head.endswith(b"\n")
    assert tail[:1].isdigit() or tail[:1] == b"\n"
    left_out = round((len(before) - len(head) - len(tail)) / MIB)
    assert said.decode() == (
        f"{left_out} MiB were left out here. A log keeps its beginning and what was written last, 4 MiB at most (EDT_RUN_LOG)."
    )


def test_who_writes_goes_on_at_the_end(top: Path) -> None:
    path = written(top, 2 * MOST)
    writer = os.open(path, os.O_WRONLY | os.O_APPEND)
    cut(top)
    os.write(writer, b"one more\n")
    os.close(writer)
    assert path.read_bytes().endswith(b"\none more\n")
    assert b"\0" not in path.read_bytes()


def test_it_is_cut_again_when_it_has_grown_again(top: Path) -> None:
    path = written(top, 2 * MOST)
    cut(top)
    with open(path, "ab") as log:
        log.write(b"y" * 99 * 40_000)
    assert cut(top) == 1
    assert path.stat().st_size <= MOST
    assert path.read_bytes().startswith(b"%098d\n" % 0)


def test_a_log_of_one_line_is_cut_too(top: Path) -> None:
    path = top / "log" / "driver" / "console.log"
    path.write_bytes(b"\r" * 3 * MOST)
    assert cut(top) == 1
    assert path.stat().st_size <= MOST


def test_of_all_logs_those_that_are_too_large_are_cut(top: Path) -> None:
    paths = [written(top, size, f"worker-{n}") for n, size in enumerate((100, 2 * MOST, 3 * MOST))]
    assert cut(top) == 2
    assert paths[0].stat().st_size == 100


def test_no_link_second_name_pipe_or_file_of_somebody_else_is_touched(top: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside") / "victim"
    outside.write_bytes(b"x" * 2 * MOST)
    folders = [top / "log" / name for name in ("link", "second", "pipe", "other")]
    for folder in folders:
        folder.mkdir()
    (folders[0] / "console.log").symlink_to(outside)
    os.link(outside, folders[1] / "console.log")
    os.mkfifo(folders[2] / "console.log")
    (folders[3] / "console.log").write_bytes(b"x" * 2 * MOST)
    if os.geteuid() == 0:
        os.chown(folders[3] / "console.log", 12345, 12345)
    (top / "log" / "away").symlink_to(outside.parent)
    assert cut(top) == int(os.geteuid() != 0)
    assert outside.stat().st_size == 2 * MOST


def test_a_run_without_logs_or_with_a_link_in_their_place_is_left_alone(tmp_path: Path) -> None:
    assert cut(tmp_path) == 0
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "driver").mkdir(parents=True)
    (elsewhere / "driver" / "console.log").write_bytes(b"x" * 2 * MOST)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "log").symlink_to(elsewhere)
    assert cut(tmp_path / "run") == 0
