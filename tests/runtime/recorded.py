"""Messages as each version of the runtime has sent them, kept in `previous/`: what a later version has to be able to read.

`python -m tests.runtime.recorded` writes those of the present version. A version that was released is never written again: raise VERSION by
one, set OLDEST to the one before, and record that.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from training_runtime import journal, protocol
from training_runtime.host.state import Saved
from training_runtime.node import messages
from training_runtime.version_skew import ProtocolVersion

FOLDER = Path(__file__).parent / "previous"
Fields = dict[str, dict[str, str]]


class Conversation(NamedTuple):
    """`name`: of its files. `records`: all that is sent in it."""

    name: str
    spoken: ProtocolVersion
    records: tuple[type[Any], ...]


HOST = Conversation("host", protocol.SPOKEN, (*typing.get_args(protocol.Message), Saved))  # and what a host leaves to the next
STREAM = Conversation("stream", messages.SPOKEN, typing.get_args(messages.Message))
JOURNAL = Conversation("journal", ProtocolVersion(journal.VERSION, journal.VERSION), tuple(journal.KINDS.values()))
CONVERSATIONS = (HOST, STREAM)  # in which both sides say their version; a journal's is that of its form
RECORDED = (*CONVERSATIONS, JOURNAL)


def inner(kind: Any) -> Iterator[type[Any]]:
    """The records that a type holds, itself included."""
    if dataclasses.is_dataclass(kind):
        yield typing.cast(type[Any], kind)
        for hint in typing.get_type_hints(kind).values():
            yield from inner(hint)
    for argument in typing.get_args(kind) if typing.get_origin(kind) is not Literal else ():
        yield from inner(argument)


def fields(records: tuple[type[Any], ...]) -> Fields:
    """Of each record its fields: their types, and whether one must be there."""
    found: Fields = {}
    for kind in {each.__name__: each for record in records for each in inner(record)}.values():
        hints = typing.get_type_hints(kind)
        found[kind.__name__] = {
            each.name: f"{_words(hints[each.name])}{'' if has_default(each) else ', required'}" for each in dataclasses.fields(kind)
        }
    return dict(sorted(found.items()))


def has_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


def _words(kind: Any) -> str:
    if isinstance(kind, type) and typing.get_origin(kind) is None:
        return kind.__name__
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return " or ".join(_words(argument) for argument in arguments)
    if typing.get_origin(kind) is Literal:
        return f"one of {', '.join(map(repr, arguments))}"
    return f"{typing.get_origin(kind).__name__} of {', '.join(_words(each) for each in arguments if each is not Ellipsis)}"


def example(kind: Any, *, all_fields: bool) -> Any:
    """A value of that type as it is sent. `all_fields`: those with defaults, too, and other values than these where there are any."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        sent = {
            each.name
            for each in dataclasses.fields(kind)
            if all_fields or not has_default(each) or each.name in ("type", "kind", "version")
        }
        return {name: example(hint, all_fields=all_fields) for name, hint in hints.items() if name in sent}
    if origin is Literal:
        return arguments[-1]
    if origin is tuple:
        return [example(arguments[0], all_fields=all_fields)] * (2 if all_fields else 0)
    if origin is dict:
        return {"a name": example(arguments[1], all_fields=all_fields)}
    if origin in (types.UnionType, typing.Union):
        return example(next(each for each in arguments if each is not type(None)), all_fields=all_fields)
    return {str: "a text", int: 7, float: 2.5, bool: True}[kind]


def record(conversation: Conversation) -> dict[str, Any]:
    spoken = dataclasses.asdict(conversation.spoken)
    found = [
        {"record": kind.__name__, "sent": example(kind, all_fields=all_fields)}
        for kind in conversation.records
        for all_fields in (False, True)
    ]
    return {**spoken, "fields": fields(conversation.records), "messages": found}


def path(conversation: Conversation, version: int) -> Path:
    return FOLDER / f"{conversation.name}-{version}.json"


def versions(conversation: Conversation) -> list[int]:
    return sorted(int(each.stem.rpartition("-")[2]) for each in FOLDER.glob(f"{conversation.name}-*.json"))


def changes(before: Fields, after: Fields) -> list[str]:
    """What of these changes keeps a side of the version before from understanding one of the version after, or the other way round."""
    problems = []
    for kind, known in before.items():
        now = after.get(kind, {})
        problems += [f"{kind}.{name} is {now[name]!r} and was {was!r}" for name, was in known.items() if name in now and now[name] != was]
        problems += [f"{kind}.{name} is gone, and who expects it cannot do without" for name in known if name not in now]
        problems += [
            f"{kind}.{name} is new and has no default" for name in now if known and name not in known and now[name].endswith(", required")
        ]
    return problems


if __name__ == "__main__":
    for each in RECORDED:
        path(each, each.spoken.version).write_text(json.dumps(record(each), indent=1) + "\n")
        sys.stdout.write(f"{path(each, each.spoken.version)}\n")
