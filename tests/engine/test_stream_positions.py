"""The position of a stream: who takes it up goes on with the same samples, and it is the same for all who have come so far."""

from __future__ import annotations

import pytest

from tests.engine.test_streams import MAKES, Plain, all_of, made, told
from training_runtime.elastic.data.streams import Stream


def marks(stream: Stream) -> tuple[int, int, int, int]:
    at = stream.position
    return at.number, at.turn, at.start, at.total


@pytest.mark.parametrize("kind", MAKES)
def test_who_takes_up_the_position_goes_on_with_the_same_samples(kind: str) -> None:
    make = MAKES[kind]
    whole = all_of(make(), 60)
    for at in (1, 13, 14, 20, 33, 40):
        first, other = make(), make()
        first.settle(at)
        other.position.load_state_dict(first.position.state_dict())
        assert told(other.__getitems__([at + 3])) == whole[at + 3 : at + 4]
        other.settle(at + 7)
        first.settle(at + 7)
        assert other.position.state_dict().keys() == first.position.state_dict().keys()
        assert marks(other) == marks(first)
        assert told(other.__getitems__(range(at + 7, at + 12))) == whole[at + 7 : at + 12]


@pytest.mark.parametrize("kind", MAKES)
def test_the_end_of_a_pass_is_one_position_however_it_was_come_to(kind: str) -> None:
    walked, late, new = (MAKES[kind]() for _ in range(3))
    whole = all_of(MAKES[kind](), 30)
    for number in (6, 12, 14, 18, 20):
        if number == 20:
            late.position.load_state_dict(walked.position.state_dict())
        walked.settle(number)
    late.settle(20)  # without having read anything of that step
    assert marks(late) == marks(walked)
    new.position.load_state_dict(walked.position.state_dict())
    assert told(new.__getitems__([20, 23])) == [whole[20], whole[23]]
    for each in (walked, late, new):
        each.settle(26)
    assert marks(late) == marks(walked) == marks(new)


def test_another_runs_position_is_not_taken() -> None:
    stream = made(Plain(), samples=14)
    stream.position.load_state_dict({"number": 50, "turn": 2, "start": 40, "total": 9, "own": None})
    whole = all_of(made(Plain(), samples=14), 60)
    assert told(stream.__getitems__([0, 1])) == whole[:2]
    stream.settle(55)
    assert told(stream.__getitems__([55])) == whole[55:56]
