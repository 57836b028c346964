"""What a run may take of the disk: facts in, the limit, when to look and the sentence out."""

from __future__ import annotations

import pytest

from training_runtime.host.meter.disk_values import GIB, SELDOM_S, Disk, Limits, Most, Use, basis, is_due, judge, most, words
from training_runtime.host.settings import disk_limits

MIB = 1 << 20
ENOUGH = 512 * MIB


TENTH = 40 * GIB  # of the disk below


def empty_disk(free: int, *, total: int = 400 * GIB, files: int | None = None) -> Disk:
    return Disk(total, free, files)


@pytest.mark.parametrize(
    ("limits", "free", "taken", "expected"),
    [
        (Limits(), 100 * GIB + ENOUGH, 0, Most(90 * GIB, 1_000_000, own=False)),
        (Limits(), 100 * GIB + ENOUGH, 500 * GIB, Most(590 * GIB, 1_000_000, own=False)),  # what it has already is not held against it
        (Limits(), 101 * GIB + ENOUGH, 0, Most(101 * GIB - 101 * GIB // 10, 1_000_000, own=False)),
        (Limits(), 3 * GIB + ENOUGH, 0, Most(TENTH, 1_000_000, own=False)),  # it is no hog for what others have left it
        (Limits(), 0, 0, Most(TENTH, 1_000_000, own=False)),
        (Limits(disk=5 * GIB, files=500), 100 * GIB, 0, Most(5 * GIB, 500)),
        (Limits(disk=0.25), 300 * GIB, 0, Most(100 * GIB, 1_000_000)),
        (Limits(disk=0.25), 100 * GIB + ENOUGH, 0, Most(90 * GIB, 1_000_000, own=False)),  # the disk has not got as much
        (Limits(disk=0, files=0), 100 * GIB, 0, Most(None, None)),
    ],
)
def test_what_a_run_may_take_follows_from_the_settings_and_the_room(limits: Limits, free: int, taken: int, expected: Most) -> None:
    disk = empty_disk(free)
    assert most(limits, disk, basis(None, Use(bytes=taken), disk, enough_bytes=ENOUGH)) == expected


def test_room_that_others_take_makes_no_limit_smaller_and_room_that_is_made_raises_it() -> None:
    given = basis(None, Use(bytes=GIB), empty_disk(100 * GIB + ENOUGH), enough_bytes=ENOUGH)
    before = most(Limits(), empty_disk(0), given).bytes
    others_wrote = basis(given, Use(bytes=2 * GIB), empty_disk(3 * GIB), enough_bytes=ENOUGH)
    assert most(Limits(), empty_disk(0), others_wrote).bytes == before
    made = basis(others_wrote, Use(bytes=2 * GIB), empty_disk(300 * GIB + ENOUGH), enough_bytes=ENOUGH)
    assert most(Limits(), empty_disk(0), made).bytes == 302 * GIB - 301 * GIB // 10


@pytest.mark.parametrize("free", [2 * GIB, 10 * GIB, 100 * GIB, 5000 * GIB])
@pytest.mark.parametrize("step", [MIB * 64, GIB // 3])
def test_a_run_that_writes_without_end_is_over_its_limit_while_enough_is_free(free: int, step: int) -> None:
    """Alone on the disk, measured after each step; a step larger than what stays could not be seen in time by anybody."""
    given, taken = None, 0
    while taken < free:
        disk = empty_disk(free - taken, total=free + ENOUGH)
        given = basis(given, Use(bytes=taken), disk, enough_bytes=ENOUGH)
        if judge(Use(bytes=taken), most(Limits(), disk, given)):
            break
        taken += max(step, free // 1000)
    assert free - taken >= ENOUGH


MAY = Most(10 * GIB, 1000)


@pytest.mark.parametrize(
    ("use", "may", "expected"),
    [
        (Use(10 * GIB, 1000), MAY, ""),
        (Use(), Most(None, None), ""),
        (Use(1 << 60, 1 << 40), Most(None, None), ""),
        (Use(12 * GIB, 10), MAY, "its files take 12 GiB of the disk, and its limit on this machine is 10 GiB. What it has written is kept"),
        (Use(12 * GIB, 10, whole=False), MAY, "its files take at least 12 GiB of the disk"),
        (Use(12 * GIB, 10), Most(10 * GIB, 5, own=False), "is 10 GiB, which leaves others some of what the disk had room for. What it"),
        (Use(12 * GIB, 10), MAY, "ask an administrator for more (EDT_RUN_DISK)."),
        (Use(300 * MIB, 10), Most(192 * MIB, 5), "its files take 300 MiB of the disk, and its limit on this machine is 192 MiB."),
        (Use(5, 1001, whole=False), MAY, "it has more than 1,000 files and folders, its limit on this machine."),
        (Use(5, 1001), MAY, "ask an administrator for more (EDT_RUN_FILES)."),
        (Use(5, 900, whole=False), MAY, ""),  # it was not counted to the end: nothing is said of it
        (Use(5, 900, whole=False, deep=True), MAY, "its folders lie so deep inside each other that"),
        (Use(5, 900, whole=False, deep=True), Most(None, None), "its folders lie so deep inside each other that"),
    ],
)
def test_a_run_ends_with_a_sentence_that_says_what_to_do(use: Use, may: Most, expected: str) -> None:
    said = judge(use, may)
    assert said == "" if not expected else (expected in said and said.startswith("The run was ended: ")), said


QUIET = {"age_s": 5.0, "took_s": 0.01, "before": Disk(100 * GIB, 50 * GIB, 10_000), "now": Disk(100 * GIB, 50 * GIB, 10_000)}
QUIET |= {"use": Use(2 * GIB, 200), "may": Most(4 * GIB, 1000)}


@pytest.mark.parametrize(
    ("changed", "due"),
    [
        ({}, False),
        ({"age_s": SELDOM_S}, True),
        ({"age_s": SELDOM_S, "took_s": 1.0}, False),  # a large folder, on a disk that nobody writes to
        ({"age_s": 31.0, "took_s": 1.0}, True),
        ({"now": Disk(100 * GIB, 49 * GIB, 10_000)}, False),  # half of what it may still take
        ({"now": Disk(100 * GIB, 49 * GIB - 1, 10_000)}, True),
        ({"now": Disk(100 * GIB, 40 * GIB, 10_000), "may": Most(None, 1000)}, False),
        ({"now": Disk(100 * GIB, 40 * GIB, 10_000), "age_s": 0.2}, False),
        ({"now": Disk(100 * GIB, 40 * GIB, 10_000), "took_s": 2.0}, False),  # measuring would take all of a processor
        ({"now": Disk(100 * GIB, 40 * GIB, 10_000), "took_s": 2.0, "age_s": 8.0}, True),
        ({"now": Disk(100 * GIB, 50 * GIB, 9_600)}, False),
        ({"now": Disk(100 * GIB, 50 * GIB, 9_599)}, True),
        ({"now": Disk(100 * GIB, 50 * GIB, 9_599), "may": Most(4 * GIB, None)}, False),
        ({"now": Disk(100 * GIB, 50 * GIB, None)}, False),
        ({"now": Disk(100 * GIB, 90 * GIB, 20_000)}, False),  # somebody has deleted something
    ],
)
def test_a_run_is_measured_more_often_the_faster_the_disk_fills(changed: dict, due: bool) -> None:
    assert is_due(**(QUIET | changed)) is due


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (Limits(), "a run may have nine tenths of the room on the disk and 1,000,000 files and folders"),
        (Limits(disk=0.5), "a run may have 200 GiB of the disk and 1,000,000 files and folders"),
        (Limits(disk=64 * MIB, files=0), "a run may have 64 MiB of the disk"),
        (Limits(disk=0), "a run may have 1,000,000 files and folders"),
        (Limits(disk=0, files=0), ""),
    ],
)
def test_the_notes_of_a_machine_say_what_a_run_may_have(limits: Limits, expected: str) -> None:
    assert words(limits, empty_disk(0)) == expected


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("EDT_RUN_DISK=16", "a share of the file system up to 1, or bytes from"),
        ("EDT_RUN_DISK=much", "is not a number"),
        ("EDT_RUN_DISK=-1", "must not be negative"),
        ("EDT_RUN_FILES=3", "must be at least 100"),
        ("EDT_RUN_LOG=1000", "must be at least 4194304"),
    ],
)
def test_a_setting_that_is_none_is_refused_with_what_would_be_one(setting: str, problem: str) -> None:
    name, value = setting.split("=")
    with pytest.raises(ValueError, match=problem):
        disk_limits({name: value})


def test_settings_are_taken_as_they_are() -> None:
    assert disk_limits({}) == Limits(None, 1_000_000)
    assert disk_limits({"EDT_RUN_DISK": "0.5", "EDT_RUN_FILES": "0"}) == Limits(0.5, 0)
    assert disk_limits({"EDT_RUN_DISK": "0"}) == Limits(0.0, 1_000_000)
