"""Frozen records out of JSON that nobody is believed about: each field is checked against its type. Standard library only."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import types
import typing
from typing import Any, Literal, TypeVar

from training_runtime.errors import ProtocolError, UnknownMessage

T = TypeVar("T")


def build(cls: type[T], raw: object, *, lenient: bool = False) -> T:
    """A dataclass from parsed JSON, every field checked against its annotation. Raises ProtocolError naming the field. `lenient`: fields
    that are not known, which a newer version may have written, are left out."""
    return typing.cast(T, _value(cls, _known(cls, raw) if lenient else raw, cls.__name__))


def _known(kind: Any, raw: Any) -> Any:
    """The same without the fields that no record of that kind has, also in the records inside it."""
    if isinstance(kind, type) and dataclasses.is_dataclass(kind) and isinstance(raw, dict):
        hints = _hints(kind)
        return {name: _known(hints[name], value) for name, value in raw.items() if name in hints}
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) is tuple and isinstance(raw, list):
        may_hold_records = dataclasses.is_dataclass(arguments[0]) or typing.get_origin(arguments[0]) is not None
        return [_known(arguments[0], item) for item in raw] if may_hold_records else raw
    if typing.get_origin(kind) in (types.UnionType, typing.Union) and raw is not None:
        return _known(next(a for a in arguments if a is not type(None)), raw)
    return raw


def _value(kind: Any, raw: Any, where: str) -> Any:
    if type(raw) is kind and kind in (int, str, float, bool):  # by far the most values of a journal
        return raw
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _record(kind, raw, where)
    if origin is Literal:
        if raw in arguments:
            return raw
    elif origin is tuple and isinstance(raw, list):
        return tuple(_value(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(raw))
    elif origin is dict and isinstance(raw, dict):
        return {k: _value(arguments[1], v, f"{where}.{k}") for k, v in raw.items()}
    elif origin in (types.UnionType, typing.Union):
        return None if raw is None else _value(next(a for a in arguments if a is not type(None)), raw, where)
    elif kind is float and isinstance(raw, int) and not isinstance(raw, bool):
        with contextlib.suppress(OverflowError):
            return float(raw)
    elif isinstance(kind, type) and isinstance(raw, kind) and (kind is bool or not isinstance(raw, bool)):
        return raw
    raise ProtocolError(f"{where}: {words(raw)!r} is not {getattr(kind, '__name__', kind)}")


def words(raw: object) -> str:
    """The beginning of it, for an error. What is nested just as deep as could be read may be too deep to be written."""
    try:
        return str(raw)[:60]
    except RecursionError:
        return f"a {type(raw).__name__}"


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    """Looking a record's types up anew for each would cost more than all the rest."""
    return typing.get_type_hints(kind)


def _record(kind: Any, raw: Any, where: str) -> Any:
    if not isinstance(raw, dict):
        raise ProtocolError(f"{where}: not an object")
    hints = _hints(kind)
    if unknown := set(raw) - hints.keys():
        raise ProtocolError(f"{where}: unknown field {sorted(unknown)[0]!r}")
    try:
        return kind(**{name: _value(hints[name], value, f"{where}.{name}") for name, value in raw.items()})
    except TypeError as error:
        raise ProtocolError(f"{where}: {error}") from None


def parse_message(line: str | bytes, kinds: dict[str, type[Any]], *, limit_bytes: int) -> tuple[dict[str, Any], type[Any]]:
    """The JSON object that a message is, and the record that its `type` names of these. Raises UnknownMessage where it names none of them,
    ProtocolError for what is no message."""
    if len(line) > limit_bytes:
        raise ProtocolError(f"a message of {len(line)} bytes is longer than {limit_bytes}")
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not JSON: {error}") from None
    if not isinstance(raw, dict) or not isinstance(raw.get("type"), str):
        raise ProtocolError(f"unknown message {words(raw)!r}")
    if raw["type"] not in kinds:
        raise UnknownMessage(f"unknown message {words(raw)!r}", kind=raw["type"][:80])
    return raw, kinds[raw["type"]]
