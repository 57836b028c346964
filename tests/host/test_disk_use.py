"""Measuring a folder that hostile code owns: what counts, what does not, and what must not hurt."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import mmap
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.host.conftest import REPOSITORY, is_root
from training_runtime.host import processes
from training_runtime.host.meter import disk_use
from training_runtime.host.meter.disk_use import MeasureRequest, measure
from training_runtime.host.meter.disk_values import Use
from training_runtime.host.processes import Traces

MIB = 1 << 20


def order(folder: Path, *, most_files: int = 0, limit_s: float = 60.0) -> MeasureRequest:
    own = processes.look(os.getpid())
    assert own is not None
    return MeasureRequest(
        str(folder), Traces(own.parent, processes.look(own.parent).start_ticks, own.pid, str(folder), own.start_ticks), most_files, limit_s
    )


def write(path: Path, size: int) -> Path:
    path.write_bytes(b"x" * size)
    return path


def near(found: int, expected: int) -> bool:
    """Folders and the ends of files take some blocks too."""
    return expected <= found < expected + MIB // 2


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    before = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    os.chdir(folder)
    try:
        yield
    finally:
        os.fchdir(before)
        os.close(before)


def nest(folder: Path, levels: int) -> None:
    """Paths become longer than any call takes, so it goes down step by step; the last one holds a file."""
    with inside(folder):
        for _ in range(levels):
            Path("d" * 40).mkdir()
            os.chdir("d" * 40)
        write(Path("at-the-end"), MIB)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Removed by a program that goes down as deep as there is anything."""
    (tmp_path / "run").mkdir()
    yield tmp_path / "run"
    subprocess.run(["rm", "-rf", str(tmp_path / "run")], check=True)


def test_files_and_folders_count_each_with_what_it_takes(folder: Path) -> None:
    write(folder / "one", MIB)
    (folder / "below").mkdir()
    write(folder / "below" / "two", MIB)
    found = measure(order(folder))
    assert found == Use(found.bytes, 4)
    assert near(found.bytes, 2 * MIB)


def test_a_file_with_several_names_takes_its_room_once_and_each_name_counts(folder: Path) -> None:
    write(folder / "one", MIB)
    (folder / "below").mkdir()
    for number in range(50):
        (folder / "below" / str(number)).hardlink_to(folder / "one")
    found = measure(order(folder))
    assert near(found.bytes, MIB)
    assert found.files == 53


def test_a_sparse_file_counts_with_its_blocks(folder: Path) -> None:
    with open(folder / "sparse", "wb") as file:
        file.truncate(1 << 40)
        file.seek(1 << 39)
        file.write(b"x" * MIB)
    assert near(measure(order(folder)).bytes, MIB)


def test_a_link_is_not_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "others").mkdir()
    write(tmp_path / "others" / "large", 4 * MIB)
    (folder / "folder").symlink_to(tmp_path / "others")
    (folder / "file").symlink_to(tmp_path / "others" / "large")
    (folder / "round").symlink_to(folder)
    os.mkfifo(folder / "pipe")
    found = measure(order(folder))
    assert near(found.bytes, 0)
    assert found.files == 5
    (tmp_path / "entry").symlink_to(folder)
    with pytest.raises(OSError, match="entry"):
        measure(order(tmp_path / "entry"))


def test_folders_nested_five_thousand_deep_are_counted_to_the_end(folder: Path) -> None:
    nest(folder, 5000)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, before[1]))
    try:
        found = measure(order(folder))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert found.files == 5002
    assert found.whole
    assert not found.deep
    assert found.bytes > MIB


def test_folders_that_are_nested_to_tangle_whoever_counts_are_called_deep(folder: Path) -> None:
    """Beyond the folders that are open at once there are more beside each other than can wait."""
    nest(folder, disk_use._LEVELS - 1)
    with inside(folder):
        for _ in range(disk_use._LEVELS - 1):
            os.chdir("d" * 40)
        for number in range(disk_use._LATER + 2):
            Path(str(number)).mkdir()
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert measure(order(folder)).deep
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_it_is_counted_no_further_than_there_may_be_files(folder: Path) -> None:
    for number in range(3000):
        write(folder / str(number), 0)
    found = measure(order(folder, most_files=200))
    assert found == Use(found.bytes, 201, whole=False)


def test_it_is_counted_no_longer_than_is_allowed(folder: Path) -> None:
    for number in range(3000):
        write(folder / str(number), 0)
    found = measure(order(folder, limit_s=0.0))
    assert (found.files, found.whole) == (disk_use._LOOK_AT_CLOCK, False)


def test_what_is_deleted_but_open_or_mapped_counts(folder: Path) -> None:
    with open(write(folder / "open", MIB), "r+b"), open(write(folder / "mapped", MIB), "r+b") as mapped:
        memory = mmap.mmap(mapped.fileno(), MIB)
        mapped.close()
        for name in ("open", "mapped"):
            (folder / name).unlink()
        assert near(measure(order(folder)).bytes, 2 * MIB if is_root else MIB)
        memory.close()
    assert near(measure(order(folder)).bytes, 0)


def test_a_folder_that_the_run_has_closed_to_itself_hides_nothing(folder: Path) -> None:
    """Where the studio has no more rights than the run."""
    closed = folder / "closed"
    closed.mkdir()
    write(closed / "large", MIB)
    if is_root:
        for path in (folder, closed, closed / "large"):
            os.chown(path, 65534, 65534)
    closed.chmod(0)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)  # those above it are closed to others
        if is_root:
            os.setgid(65534)
            os.setuid(65534)
        count = disk_use._Count(0, time.monotonic() + 60)
        disk_use._walk(at, count)
        os.write(writer, str(count.bytes).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert near(int(os.read(reader, 100)), MIB)
    for end in (reader, writer):
        os.close(end)


def test_files_that_come_and_go_meanwhile_are_no_error(folder: Path) -> None:
    code = (
        "import os, sys\nos.chdir(sys.argv[1])\nwhile True:\n"
        "  os.makedirs('a/b/c', exist_ok=True)\n  open('a/b/f', 'w').close()\n"
        "  os.rename('a/b', 'e')\n  os.unlink('e/f')\n  os.removedirs('e/c')\n"
    )
    churning = subprocess.Popen([sys.executable, "-c", code, str(folder)])
    try:
        write(folder / "stays", MIB)
        found = [measure(order(folder)).bytes for _ in range(30)]
        assert max(found) >= MIB
        assert max(found) < 2 * MIB
        assert churning.poll() is None
    finally:
        churning.kill()
        churning.wait()


def test_who_measures_answers_each_line_and_ends_with_its_input(folder: Path, tmp_path: Path) -> None:

    write(folder / "one", MIB)
    lines = [json.dumps(dataclasses.asdict(order(each))) for each in (folder, tmp_path / "none", folder)]
    done = subprocess.run(
        [sys.executable, "-m", "training_runtime.host.meter.disk_use"],
        cwd=REPOSITORY,
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    first, second, third = map(json.loads, done.stdout.splitlines())
    assert near(first["bytes"], MIB)
    assert "No such file" in second["problem"]
    assert third["bytes"] == first["bytes"]
