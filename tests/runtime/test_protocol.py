"""Records cross between processes unchanged, and nothing malformed gets through."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_runtime import protocol, records
from training_runtime.errors import ProtocolError

SPEC = protocol.RunSpec(1, "digits", "alice", ("main.py", "--epochs", "3"), "/code", "/result", "/data", 4, {"A": "b"})
SLOT = protocol.SlotRef(5, "local", 0, "cpu")
NODE = protocol.NodeFacts("local", 2, 1 << 30, ("NVIDIA H200",), "2.13.0", "user+landlock", ("note",))
MESSAGES = [
    protocol.Apply(3, (protocol.WantedRun(SPEC, (SLOT,), "fair share"),)),
    protocol.Apply(3, (protocol.WantedRun(dataclasses.replace(SPEC, remote=True), (SLOT,), "fair share"),)),
    protocol.Observation(3, dataclasses.replace(NODE, address="10.0.0.7"), (protocol.RunObservation(1, 1, "exited", (), remote=True),)),
    protocol.Subscribe(),
    protocol.Observation(3, NODE, (protocol.RunObservation(1, 1, "exited", (5,), 10, -9, "killed"),)),
    protocol.Members(4, (SLOT,), "bob's run started"),
    protocol.Stop("alice asked"),
    protocol.Authenticate("secret"),
    protocol.Holding((protocol.Worker(5, 4711, 99),)),
    protocol.Grown(1024),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_every_message_survives_the_journey(message: protocol.Message) -> None:
    line = protocol.encode(message)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert protocol.decode(line) == message


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"nope", "not JSON"),
        (b"[]", "unknown message"),
        (b"{}", "unknown message"),
        (b'{"type":"launch"}', "unknown message"),
        (b'{"type":"stop"}', "reason"),
        (b'{"type":"stop","reason":3}', "Stop.reason"),
        (b'{"type":"grown","journal_bytes":true}', "Grown.journal_bytes"),
        (b'{"type":"holding","workers":[{"slot":1,"pid":"2","start_ticks":3}]}', "workers[0].pid"),
        (b'{"type":"members","revision":1,"reason":"","slots":[{"id":1,"node":"n","index":0,"device":"tpu"}]}', "device"),
        (b'{"type":"stop","reason":"' + b"x" * protocol.MAX_LINE_BYTES + b'"}', "longer than"),
    ],
)
def test_a_malformed_message_is_refused_and_the_error_says_where(line: bytes, complaint: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        protocol.decode(line)
    assert complaint in str(caught.value)


def test_what_is_nested_as_deep_as_can_be_read_is_refused_like_anything_else() -> None:
    """Reading it and writing it down in an error each go down as deep as it is, from wherever they begin."""
    for depth in range(300, 1100):
        with pytest.raises(ProtocolError):
            protocol.decode(b'{"type":"holding","workers":[{"slot":' + b"[" * depth + b"]" * depth + b',"pid":1,"start_ticks":2}]}')


def test_fields_of_a_newer_version_are_left_out_wherever_they_are() -> None:
    line = b'{"type":"members","revision":1,"reason":"r","later":[1],"slots":[{"id":1,"node":"n","index":0,"device":"cpu","rack":"b2"}]}'
    assert protocol.decode(line) == protocol.Members(1, (protocol.SlotRef(1, "n", 0, "cpu"),), "r")
    with pytest.raises(ProtocolError, match="unknown field"):
        records.build(protocol.SlotRef, {"id": 1, "node": "n", "index": 0, "device": "cpu", "rack": "b2"})


def test_agent_and_host_say_their_version_and_one_that_does_not_is_from_before() -> None:
    assert b'"version":%d' % protocol.VERSION in protocol.encode(protocol.Subscribe())
    assert protocol.decode(b'{"type":"subscribe"}') == protocol.Subscribe(version=0, oldest=0)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "reason", "slots", "revision", "workers"]), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(JSON)
def test_whatever_arrives_is_a_record_or_a_protocol_error(raw: object) -> None:
    import json

    try:
        message = protocol.decode(json.dumps(raw).encode())
    except ProtocolError:
        return
    assert protocol.decode(protocol.encode(message)) == message
