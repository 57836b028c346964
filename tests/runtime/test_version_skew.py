"""Sides of different versions understand each other: what is new is left out, what is missing has its default, and what cannot be is
refused with a sentence."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runtime import recorded
from tests.runtime.recorded import HOST, JOURNAL, STREAM, Conversation
from training_runtime import journal, protocol
from training_runtime.errors import ProtocolError, UnknownMessage
from training_runtime.host.state import Saved
from training_runtime.node import messages
from training_runtime.records import build
from training_runtime.version_skew import ProtocolVersion, too_far_behind

SAYS = "Conversation {}: {}. Raise VERSION by one, set OLDEST to the version before, and run `python -m tests.runtime.recorded`."


def decode(conversation: Conversation, record: str, sent: Any) -> Any:
    if conversation is JOURNAL:
        return journal.parse(json.dumps({"v": journal.VERSION, "run": 7, "seq": 1, "t": 1.0, **sent}).encode()).event
    if record == Saved.__name__:
        return build(Saved, sent, lenient=True)
    return protocol.decode(json.dumps(sent).encode()) if conversation is HOST else messages.decode(json.dumps(sent))


def missing(sent: Any, read: Any, where: str = "") -> Iterator[str]:
    """What was sent and is not in what was read."""
    if isinstance(sent, dict) and isinstance(read, dict):
        for name, value in sent.items():
            yield from missing(value, read[name], f"{where}.{name}") if name in read else iter([f"{where}.{name}"])
    elif isinstance(sent, list) and isinstance(read, tuple | list) and len(sent) == len(read):
        for number, (one, other) in enumerate(zip(sent, read, strict=True)):
            yield from missing(one, other, f"{where}[{number}]")
    elif sent != read:
        yield f"{where}: {sent!r} is read as {read!r}"


RECORDED = [(each, version) for each in recorded.RECORDED for version in recorded.versions(each)]


@pytest.mark.parametrize(("conversation", "version"), RECORDED, ids=lambda each: getattr(each, "name", each))
def test_what_a_version_has_sent_is_read_with_all_that_it_said(conversation: Conversation, version: int) -> None:
    found = json.loads(recorded.path(conversation, version).read_text())
    assert {each["record"] for each in found["messages"]}, "something was recorded"
    for each in found["messages"]:
        read = decode(conversation, each["record"], each["sent"])
        assert not list(missing(each["sent"], dataclasses.asdict(read))), each["record"]


@pytest.mark.parametrize("conversation", recorded.CONVERSATIONS, ids=lambda each: each.name)
def test_a_message_changes_with_its_version_and_the_new_one_is_recorded(conversation: Conversation) -> None:
    spoken = conversation.spoken
    path = recorded.path(conversation, spoken.version)
    assert path.exists(), SAYS.format(conversation.name, f"version {spoken.version} is not recorded")
    found = json.loads(path.read_text())
    assert found["fields"] == recorded.fields(conversation.records), SAYS.format(conversation.name, "messages have changed")
    assert recorded.versions(conversation)[-1] == spoken.version, "none is newer than what is spoken"


@pytest.mark.parametrize("conversation", recorded.CONVERSATIONS, ids=lambda each: each.name)
def test_each_version_with_which_this_one_works_can_read_it_too(conversation: Conversation) -> None:
    now = recorded.fields(conversation.records)
    for version in recorded.versions(conversation):
        if version >= conversation.spoken.oldest:
            before = json.loads(recorded.path(conversation, version).read_text())["fields"]
            assert not recorded.changes(before, now), SAYS.format(conversation.name, "and OLDEST to it, if it cannot be otherwise")


def test_a_change_that_one_side_could_not_read_is_found() -> None:
    before = {"Stop": {"reason": "str, required", "grace_s": "float"}}
    assert not recorded.changes(before, {"Stop": before["Stop"] | {"later": "int"}, "New": {"x": "int, required"}})
    assert recorded.changes(before, {"Stop": {"why": "str", "grace_s": "float"}}) == [
        "Stop.reason is gone, and who expects it cannot do without"
    ]
    assert recorded.changes(before, {"Stop": {"reason": "str, required", "grace_s": "int"}}) == ["Stop.grace_s is 'int' and was 'float'"]
    assert recorded.changes(before, {"Stop": before["Stop"] | {"x": "int, required"}}) == ["Stop.x is new and has no default"]


def test_versions_one_apart_work_together_in_both_directions_and_others_say_who_is_behind() -> None:
    third, fourth, fifth = (ProtocolVersion(number, number - 1) for number in (3, 4, 5))
    assert too_far_behind(third, fourth) == too_far_behind(fourth, third) == too_far_behind(third, third) == ""
    assert too_far_behind(third, fifth) == "ours"
    assert too_far_behind(fifth, third) == "theirs"
    assert str(third) == "version 3, and understands 2 and newer"
    assert str(ProtocolVersion(2, 2)) == "version 2, and understands no older one"


@pytest.mark.parametrize("spoken", [protocol.SPOKEN, messages.SPOKEN])
def test_a_version_that_says_nothing_of_the_oldest_works_with_no_other(spoken: ProtocolVersion) -> None:
    assert protocol.decode(b'{"type":"subscribe","version":9}') == protocol.Subscribe(9, 9)
    said = messages.decode('{"type":"hello","identity":"x","version":9}')
    assert isinstance(said, messages.Hello)
    assert too_far_behind(spoken, ProtocolVersion(said.version, said.oldest)) == "ours"


def test_a_kind_that_is_not_known_is_told_from_nonsense() -> None:
    with pytest.raises(UnknownMessage, match="unknown message"):
        protocol.decode(b'{"type":"later","x":1}')
    with pytest.raises(UnknownMessage, match="unknown message"):
        messages.decode('{"type":"later","x":1}')
    for nonsense in ("nope", "[]", "{}", '{"type":3}'):
        with pytest.raises(ProtocolError) as caught:
            messages.decode(nonsense)
        assert not isinstance(caught.value, UnknownMessage)


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type, as they are sent."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return st.fixed_dictionaries({name: values(hint) for name, hint in hints.items()})
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        return st.lists(values(arguments[0]), max_size=2)
    if origin is dict:
        return st.dictionaries(st.text(max_size=3), values(arguments[1]), max_size=2)
    if origin in (types.UnionType, typing.Union):
        return st.none() | values(next(each for each in arguments if each is not type(None)))
    return {str: st.text(max_size=5), int: st.integers(0, 99), float: st.floats(0, 9), bool: st.booleans()}[kind]


def places(kind: Any, sent: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Every record in what is sent, with its type."""
    if dataclasses.is_dataclass(kind) and isinstance(sent, dict):
        yield kind, sent
        for name, hint in typing.get_type_hints(kind).items():
            yield from places(hint, sent[name])
    elif isinstance(sent, list):
        for item in sent:
            yield from places(typing.get_args(kind)[0], item)
    elif sent is not None:
        for argument in typing.get_args(kind):
            if dataclasses.is_dataclass(argument):
                yield from places(argument, sent)


@pytest.mark.parametrize("kind", JOURNAL.records, ids=lambda each: each.__name__)
def test_a_line_of_a_journal_with_more_than_is_known_is_read_without_it(kind: Any) -> None:
    sent = recorded.example(kind, all_fields=True)
    before = decode(JOURNAL, kind.__name__, sent)
    for _, place in list(places(kind, sent)):
        place["in_the_next_version"] = [1]
    assert decode(JOURNAL, kind.__name__, sent) == before
    assert not recorded.changes(json.loads(recorded.path(JOURNAL, journal.VERSION).read_text())["fields"], recorded.fields(JOURNAL.records))


KINDS = [(each, kind) for each in (HOST, STREAM) for kind in each.records]
WITH_FIELDS = [(each, kind) for each, kind in KINDS if [field.name for field in dataclasses.fields(kind)] != ["type"]]


@pytest.mark.parametrize(("conversation", "kind"), KINDS, ids=lambda each: getattr(each, "name", getattr(each, "__name__", "")))
@given(st.data())
@settings(max_examples=25, deadline=None)
def test_a_field_more_is_left_out_wherever_it_is(conversation: Conversation, kind: Any, data: st.DataObject) -> None:
    sent = data.draw(values(kind))
    before = decode(conversation, kind.__name__, sent)
    _, place = data.draw(st.sampled_from(list(places(kind, sent))))
    place["in_the_next_version"] = data.draw(st.none() | st.integers() | st.lists(st.text(max_size=2), max_size=2))
    assert decode(conversation, kind.__name__, sent) == before


@pytest.mark.parametrize(("conversation", "kind"), WITH_FIELDS, ids=lambda each: getattr(each, "name", getattr(each, "__name__", "")))
@given(st.data())
@settings(max_examples=40, deadline=None)
def test_a_field_less_has_its_default_or_is_asked_for_by_name(conversation: Conversation, kind: Any, data: st.DataObject) -> None:
    sent = data.draw(values(kind))
    owner, place = data.draw(st.sampled_from(list(places(kind, sent))))
    field = data.draw(st.sampled_from([each for each in dataclasses.fields(owner) if each.name != "type"]))
    gone = place.pop(field.name)
    if not recorded.has_default(field):
        with pytest.raises(ProtocolError, match=field.name):
            decode(conversation, kind.__name__, sent)
        return
    read = decode(conversation, kind.__name__, sent)
    default = field.default if field.default is not dataclasses.MISSING else field.default_factory()  # type: ignore[misc]
    if place is sent and field.name in ("version", "oldest"):  # who does not say it is from before
        default = 0 if field.name == "version" else sent["version"]
    place[field.name] = json.loads(json.dumps(default))
    assert read == decode(conversation, kind.__name__, sent), f"{field.name} was {gone!r}"
