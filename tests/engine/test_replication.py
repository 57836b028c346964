"""What one machine of a run shows another of its workers: looks at shared memory, however late they come."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from training_runtime.elastic.comm.segment import PHASE, WORKER_WORDS, GenerationRecord, Layout, Segment
from training_runtime.elastic.multinode.replication import HEAD_NODE, Replication

LAYOUT = Layout(max_workers=4, engines=2, columns=1, parameters=0, test_batches=0, buffer_bytes=0, flat_buffers=(), machines=2)
AT_HEAD_NODE, BEYOND = 0, 2  # a worker id of each machine


@pytest.fixture
def home() -> Iterator[Segment]:
    """The memory of the driver's machine; both machines have a worker in the first generation, which has begun."""
    fd = os.memfd_create("segment")
    segment = Segment(fd, LAYOUT, create=True)
    segment.publish(GenerationRecord(1, (AT_HEAD_NODE, BEYOND), ()), abort=False)
    yield segment
    os.close(fd)


def arrives(segment: Segment, generation: int, barrier: int) -> None:
    segment.set(AT_HEAD_NODE, PHASE, generation << 32 | barrier)


def told(replication: Replication) -> tuple[int, int] | None:
    """Where the other machine is told that the worker at home has arrived, if it is told anything at this look."""
    for piece in replication.outgoing(replication.look())[1]:
        if piece.what == "words":
            values = memoryview(piece.data).cast("q")
            words = dict(zip(values[::2], values[1::2], strict=True))
            phase = words.get(LAYOUT.offsets["workers"] // 8 + AT_HEAD_NODE * WORKER_WORDS + PHASE)
            if phase is not None:
                return phase >> 32, phase & 0xFFFFFFFF
    return None


def test_who_waits_beyond_hears_that_those_at_the_head_node_went_on_without_it_however_late_the_look(home):
    replication = Replication(home, here=HEAD_NODE, there=1, state_fd=-1, wake_fd=-1)
    arrives(home, 1, 3)
    assert told(replication) == (1, 3)
    arrives(home, 1, 4)  # not looked at; the other machine waits for it
    home.publish(GenerationRecord(2, (AT_HEAD_NODE,), ()), abort=False)
    arrives(home, 2, 1)
    assert told(replication) == (2, 1)
    arrives(home, 2, 2)
    assert told(replication) is None, "what follows is no concern of the other machine"


def test_a_machine_without_members_hears_nothing_of_the_others(home):
    home.publish(GenerationRecord(2, (AT_HEAD_NODE,), ()), abort=False)
    arrives(home, 2, 1)
    assert told(Replication(home, here=HEAD_NODE, there=1, state_fd=-1, wake_fd=-1)) is None
