"""The demonstration's judgement and its picture: pure, on made-up grants, steps and lanes."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import zipfile
from pathlib import Path

import pytest

from experiments.management.demonstration import picture, story, verdict
from experiments.management.demonstration.verdict import Held, Share
from experiments.selectors.timeline import Bar

NOON = dt.datetime(2026, 1, 1, 12, 0, tzinfo=dt.UTC)
ALICE, BOB = 1, 2


def at(seconds: float) -> dt.datetime:
    return NOON + dt.timedelta(seconds=seconds)


def held(run: int, begin: float, end: float | None) -> Held:
    return Held(run, at(begin), None if end is None else at(end))


AS_PROMISED = [
    *(held(ALICE, 0, 100) for _ in range(2)),
    *(held(ALICE, 0, 20) for _ in range(2)),
    *(held(BOB, 20, 130) for _ in range(2)),
    *(held(BOB, 100, 130) for _ in range(2)),
]


def pairs(seen: list[Share]) -> list[tuple[int, int]]:
    return [(share.first, share.second) for share in seen]


def walk(*held: tuple[int, int]) -> list[Share]:
    return [Share(at(i), *pair) for i, pair in enumerate(held)]


def test_shares_follow_the_grants() -> None:
    seen = verdict.shares(AS_PROMISED, first=ALICE, second=BOB)
    assert pairs(seen) == [(4, 0), (2, 2), (0, 4), (0, 0)]
    assert [share.at for share in seen] == [at(0), at(20), at(100), at(130)]


def test_a_slot_that_changes_hands_later_than_another_is_seen() -> None:
    grants = [held(ALICE, 0, 20), held(ALICE, 0, 21), held(BOB, 20.5, None), held(BOB, 21.5, None)]
    assert pairs(verdict.shares(grants, first=ALICE, second=BOB)) == [(2, 0), (1, 0), (1, 1), (0, 1), (0, 2)]


def test_grants_of_others_do_not_count() -> None:
    assert verdict.shares([held(99, 0, None)], first=ALICE, second=BOB) == []


def test_nothing_is_missing_when_it_went_as_promised() -> None:
    assert verdict.missing_shares(verdict.shares(AS_PROMISED, first=ALICE, second=BOB), slots=4) == ""


@pytest.mark.parametrize(
    ("seen", "slots", "fault"),
    [
        ([(0, 0), (3, 0), (2, 2), (0, 4)], 4, "the first run never held all 4 slots"),
        ([(0, 0), (4, 0), (3, 1), (0, 4)], 4, "the two runs never held half of the 4 slots each"),
        ([(0, 0), (4, 0), (2, 1), (2, 2), (0, 2)], 4, "the run that was left never grew back to 4 slots"),
        ([(2, 2), (4, 0)], 4, "the two runs never held half of the 4 slots each"),
    ],
)
def test_what_did_not_come_is_named(seen: list[tuple[int, int]], slots: int, fault: str) -> None:
    assert verdict.missing_shares(walk(*seen), slots=slots) == fault


def test_an_odd_number_of_slots_is_halved_as_well_as_it_can_be() -> None:
    assert verdict.missing_shares(walk((3, 0), (2, 1), (0, 3)), slots=3) == ""


@pytest.mark.parametrize(("first", "second", "shared"), [(30, 40, True), (10, 40, False), (30, 120, False)])
def test_both_must_make_steps_while_they_share(first: float, second: float, shared: bool) -> None:
    seen = verdict.shares(AS_PROMISED, first=ALICE, second=BOB)  # half each from 20 to 100 s
    fault = verdict.missing_work(seen, slots=4, first=[at(first).timestamp()], second=[at(second).timestamp()])
    assert fault == ("" if shared else "the two runs never both made steps while they held half of the slots each")


@pytest.mark.parametrize(
    ("steps", "fault"),
    [
        ([1, 2, 3], ""),
        ([1, 3], "step 2 was lost"),
        ([1, 2, 2, 3], "step 2 was repeated"),
        ([1, 2], "2 of 3 steps were made"),
        ([], "0 of 3 steps were made"),
    ],
)
def test_lost_and_repeated_steps_are_named(steps: list[int], fault: str) -> None:
    assert verdict.missing_steps(steps, total=3) == fault


def test_a_lane_shows_who_held_the_slot_when() -> None:
    def bar(run: int, begin: float, end: float | None) -> Bar:
        return Bar(run, "run", "person", at(begin), None if end is None else at(end), False, "")

    bars = [bar(ALICE, 0, 4), bar(BOB, 6, None)]
    assert picture.lane_text(bars, marks={ALICE: "A", BOB: "B"}, begin=at(0), end=at(10), width=10) == "AAAA··BBBB"


def test_the_example_is_zipped_to_the_same_bytes_each_time() -> None:
    assert story.bundle() == story.bundle()
    with zipfile.ZipFile(io.BytesIO(story.bundle())) as archive:
        assert archive.namelist() == ["digits/main.py", "digits/README.md"]


def test_the_examples_data_is_what_its_script_makes_of_scikit_learns_digits(tmp_path: Path) -> None:
    import importlib.util

    specification = importlib.util.spec_from_file_location("prepare", story.EXAMPLE / "prepare.py")
    assert specification is not None
    assert specification.loader is not None
    prepare = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(prepare)
    prepare.write(tmp_path)
    kept = sorted((story.EXAMPLE / "data").iterdir())
    assert [path.name for path in kept] == sorted(path.name for path in tmp_path.iterdir())
    for path in kept:  # unpacked: another zlib may pack the same bytes differently
        assert gzip.decompress(path.read_bytes()) == gzip.decompress((tmp_path / path.name).read_bytes())
