"""Which spare processes a host keeps, and which run may have one: facts in, decision and reason out."""

from __future__ import annotations

import dataclasses

import pytest

from training_runtime.host.spares.spare_plan import MOST_BYTES, PREPARE_S, WAIT_S, Likeness, Memory, Plan, Seen, Wish, choose, plan

GIB = 1 << 30
ROOMY = Memory(total=16 * GIB, available=12 * GIB)
NOW = 1000.0


def like(environment: str, **changed: object) -> Likeness:
    base = Likeness(environment, "alice", "/code/1", "main.py", 0, (("LANG", "C"),), (), ("/runs",))
    return dataclasses.replace(base, **changed)  # type: ignore[arg-type]


def decided(
    wishes: dict[Likeness, Wish], *spares: Seen, now: float = NOW, most: int = 2, memory: Memory = ROOMY, built: str = "abc"
) -> Plan:
    return plan(wishes, spares, now=now, most=most, memory=memory, built=list(built))


def test_the_environment_that_was_used_last_gets_its_spare_first_and_one_is_prepared_at_a_time() -> None:
    wishes = {like("a"): Wish(NOW - 2), like("b"): Wish(NOW - 1), like("c"): Wish(NOW - 3)}
    assert decided(wishes).make == (like("b"),)
    preparing = Seen(1, like("b"), NOW, ready=False)
    assert decided(wishes, preparing).make == ()
    assert decided(wishes, dataclasses.replace(preparing, ready=True)).make == (like("a"),)


def test_the_least_recently_used_goes_when_there_are_more_than_may_be() -> None:
    wishes = {like("a"): Wish(NOW - 3), like("b"): Wish(NOW - 2), like("c"): Wish(NOW - 1)}
    found = decided(wishes, Seen(1, like("a"), 0, ready=True), Seen(2, like("b"), 0, ready=True))
    assert found.drop == ((1, "other environments were used since"),)
    assert found.make == (like("c"),)


def test_none_is_made_where_none_may_be() -> None:
    assert decided({like("a"): Wish(NOW)}, most=0) == Plan()


def test_one_that_waits_too_long_goes_and_is_not_made_again() -> None:
    wishes = {like("a"): Wish(NOW)}
    assert decided(wishes, Seen(1, like("a"), NOW, ready=True)).look_at == NOW + WAIT_S
    found = decided(wishes, Seen(1, like("a"), NOW, ready=True), now=NOW + WAIT_S)
    assert found == Plan(drop=((1, "no such run came for 15 minutes"),))


def test_one_that_does_not_finish_its_imports_goes() -> None:
    wishes = {like("a"): Wish(NOW)}
    found = decided(wishes, Seen(1, like("a"), NOW, ready=False))
    assert (found.drop, found.look_at) == ((), NOW + PREPARE_S)
    assert decided(wishes, Seen(1, like("a"), NOW, ready=False), now=NOW + PREPARE_S).drop == (
        (1, "its packages were not imported within 120 s"),
    )


def test_one_whose_environment_is_deleted_goes_and_none_is_made_for_it() -> None:
    found = decided({like("a"): Wish(NOW)}, Seen(1, like("a"), NOW, ready=True), built="b")
    assert found == Plan(drop=((1, "its environment is not there any more"),))


def test_where_memory_is_short_all_go_and_where_it_may_become_so_none_is_made() -> None:
    wishes = {like("a"): Wish(NOW), like("b"): Wish(NOW)}
    spare = Seen(1, like("a"), NOW, ready=True)
    short = dataclasses.replace(ROOMY, available=2 * GIB - 1)
    assert decided(wishes, spare, memory=short) == Plan(drop=((1, "the machine's memory is short"),), look_at=NOW + WAIT_S)
    nearly = dataclasses.replace(ROOMY, available=2 * GIB + MOST_BYTES - 1)
    assert decided(wishes, spare, memory=nearly) == Plan(look_at=NOW + WAIT_S)


def test_what_went_wrong_once_is_not_tried_again() -> None:
    spoiled = {like("a"): Wish(NOW, spoiled="its packages start processes when they are imported")}
    assert decided(spoiled) == Plan()
    assert decided(spoiled, Seen(1, like("a"), NOW, ready=True)).drop == ((1, "its packages start processes when they are imported"),)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"person": "bob"}, "is of a run of another person"),
        ({"code": "/code/2"}, "is of a run with other code"),
        ({"script": "other.py"}, "is of a run with other code"),
        ({"variables": (("HF_HOME", "/x"), ("LANG", "C"))}, "is of a run with other variables (HF_HOME)"),
        ({"slots": 2}, "is of a run with other slots or folders"),
        ({"environment": "b"}, "there is no spare process for its environment"),
    ],
)
def test_a_run_gets_that_of_a_run_like_it_and_of_no_other(changed: dict[str, object], why: str) -> None:
    spare = Seen(7, like("a"), NOW, ready=True)
    assert choose(like("a"), [spare]) == (7, "its packages are imported already")
    number, said = choose(dataclasses.replace(like("a"), **changed), [spare])  # type: ignore[arg-type]
    assert number is None
    assert said.endswith(why)


def test_one_that_still_imports_is_not_waited_for() -> None:
    number, said = choose(like("a"), [Seen(7, like("a"), NOW, ready=False)])
    assert (number, said) == (None, "the spare process of its environment is not ready yet")
