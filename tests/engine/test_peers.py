"""The peers that benchmarks measure: their scripts run, die with their run, and what their lines say is counted right."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import psutil
import pytest

from benchmarks.peers.elastic import INSTALLED, Start, Stuck, Torchft, Torchrun
from benchmarks.peers.steps import Journal, Reader, Step, finished, pause_s, redone, samples_wrong


def steps(*, start: float, every: float, numbers: range, generation: int, workers: int) -> list[Step]:
    return [
        Step(start + every * i, number, generation, workers, 8 * workers * number, rank, rank)
        for i, number in enumerate(numbers)
        for rank in range(workers)
    ]


@pytest.fixture
def changed() -> list[Step]:
    """Two workers at 100 ms a step; four came after 3 s, went back to step 6, and take 200 ms a step."""
    before = steps(start=0.0, every=0.1, numbers=range(1, 10), generation=1, workers=2)
    return before + steps(start=3.8, every=0.2, numbers=range(6, 20), generation=2, workers=4)


def test_a_pause_is_the_longest_gap_over_the_usual_step_of_the_new_members(changed):
    assert pause_s(finished(changed), workers=4) == pytest.approx(3.8 - 0.8 - 0.2)


def test_a_gap_long_before_or_after_the_change_is_no_pause(changed):
    late = [step for step in finished(changed) if step.number not in (14, 15, 16)]
    assert pause_s(late, workers=4) == pytest.approx(3.8 - 0.8 - 0.2)
    early = [step for step in late if not (step.generation == 1 and 2 < step.number < 6)]
    assert pause_s(early, workers=4) == pytest.approx(3.8 - 0.8 - 0.2)


def test_a_step_is_finished_when_its_first_worker_has_finished_it():
    slow, quick = Step(2.0, 1, 1, 2, 16, 0, 70), Step(1.0, 1, 1, 2, 16, 1, 71)
    assert finished([slow, quick]) == [quick]


def test_steps_done_again_are_counted(changed):
    assert redone(finished(changed)) == 4
    assert redone(finished(steps(start=0, every=1, numbers=range(5), generation=1, workers=2))) == 0


def test_samples_that_a_missing_worker_left_out_are_wrong():
    at_once = [Step(float(number), number, 1, 2, 16 * number, 0, 0) for number in range(1, 4)]
    alone = [Step(float(number), number, 2, 1, 48 + 8 * (number - 3), 0, 0) for number in (4, 5)]
    assert samples_wrong(at_once, a_step=16) == 0
    assert samples_wrong(at_once + alone, a_step=16) == 16


def test_half_a_line_is_read_when_it_is_whole(tmp_path: Path):
    reader = Reader(tmp_path)
    Journal(tmp_path).write(number=1, generation=2, workers=3, samples=24, rank=0)
    (path,) = tmp_path.glob("*.steps")
    with path.open("a") as file:
        file.write("12.5 2 2 3 ")
        file.flush()
        reader.read()
        assert [step.number for step in reader.lines] == [1]
        file.write("48 0 99\n")
        file.flush()
    reader.read()
    assert reader.lines[1:] == [Step(12.5, 2, 2, 3, 48, 0, 99)]


def runs_and_leaves_nothing(start: Start, *, count: int, agents: bool) -> None:
    """They train; then a member dies, an agent whose workers live on where there are agents, and that is said."""
    with start(64) as peer:
        peer.fixed(count)
        peer.until_settled(count, 5, since=0)
        workers = peer.workers()
        assert [step.rank for step in workers] == list(range(count))
        member = psutil.Process(workers[0].pid)
        (member.parent() if agents else member).kill()
        with pytest.raises(Stuck, match="five more: a member has ended"):
            peer.until(lambda: False, "five more")
    assert not any(psutil.pid_exists(step.pid) for step in workers)
    assert not peer.folder.exists()


def test_torchrun_starts_and_ends():
    runs_and_leaves_nothing(Torchrun, count=2, agents=True)


def test_torchft_starts_and_ends():
    if not (INSTALLED / "torchft").exists():
        pytest.skip("tools/setup.sh bench installs torchft")
    runs_and_leaves_nothing(partial(Torchft, timeout_s=5.0), count=1, agents=False)
