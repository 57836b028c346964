"""Hyperparameters of event files, as TensorBoard's plugin of that name is told them (tensorboard/plugins/hparams/*.proto). Pure."""

from __future__ import annotations

import struct

from training_runtime.elastic.script_logs.summaries import wire

TAG = "_hparams_/session_start_info"
MOST = 1000
LONGEST_NAME, LONGEST_VALUE = 250, 6000  # as of MLflow's parameters
_STARTED, _HPARAMS = 3, 1


def read(content: bytes) -> dict[str, str]:
    """The values by name that a session began with."""
    found: dict[str, str] = {}
    for session in _messages(content, _STARTED):
        for entry in _messages(session, _HPARAMS):
            name, value = "", None
            for each in wire.fields(entry):
                if (each.number, each.kind) == (1, wire.BYTES):
                    name = wire.text(each.data)
                elif (each.number, each.kind) == (2, wire.BYTES):
                    value = _value(each.data)
            if name and value is not None and len(found) < MOST:
                found[name[:LONGEST_NAME]] = value[:LONGEST_VALUE]
    return found


def _messages(message: bytes, number: int) -> list[bytes]:
    return [each.data for each in wire.fields(message) if (each.number, each.kind) == (number, wire.BYTES)]


def _value(message: bytes) -> str | None:
    """Of google.protobuf.Value: a number, a text or a truth, as Python writes it; whole numbers travel as floats."""
    for each in wire.fields(message):
        if (each.number, each.kind) == (2, wire.FIXED64):
            (number,) = struct.unpack("<d", each.data)
            return str(int(number)) if number.is_integer() and abs(number) < 2**53 else repr(number)
        if (each.number, each.kind) == (3, wire.BYTES):
            return wire.text(each.data)
        if (each.number, each.kind) == (4, wire.VARINT):
            return str(bool(each.whole))
    return None
