"""What a driver is told by its fork servers, workers and other machines: read back as it was written, refused where it is no report."""

from __future__ import annotations

import json
import os
import socket
import typing
from pathlib import Path

import pytest

from training_runtime.elastic.job import TrainConfig
from training_runtime.elastic.multinode import admission, connection
from training_runtime.elastic.multinode.admission import Admission
from training_runtime.elastic.processes import commands, report_socket, reports
from training_runtime.elastic.processes.report_socket import MAX_BYTES, Inbox, Outbox
from training_runtime.elastic.processes.reports import LoggedLine, Report
from training_runtime.errors import ProtocolError
from training_runtime.protocol import SlotRef

SLOTS = (SlotRef(7, "GPU-1", 0, "gpu"), SlotRef(8, "", 1, "cpu"))
EVERY: tuple[Report, ...] = (
    reports.Sized(100, 20),
    reports.Unforkable("a thread runs", 100, 20),
    reports.ForkServerFailed("datasets function", "Traceback", ": do this"),
    reports.Forked(3, 4711),
    reports.Exited(3, -9),
    reports.Ready(3),
    reports.PullLimit(3),
    reports.Dying(3, "Traceback", "ValueError: no", final=False, no_room=True),
    reports.Begun(2, 40, redone=1, stood_s=0.25),
    reports.Suspended(40, ("checkpoint/engine.ckpt",), 512),
    reports.Diverged(12, ("parameters",), ((0, 1), (2,))),
    reports.Retired(3, 40),
    reports.Done(40),
    reports.Exactness(("a generator of its own",), checked=True),
    reports.Tested(10, 1, (20.0, 0.5), machine=2),
    reports.Checkpoint(10, 1, "model", ("model/train/model_epoch_1.pth",), 1024),
    reports.Digest(10, 1, "00ff00ff00ff00ff"),
    reports.Warned("the disk is full"),
    reports.Logged(10, (LoggedLine("train", 10, {"loss": 0.5}), LoggedLine("test", 9, {}))),
    reports.StartAsked(),
    reports.Joined(SLOTS, "another machine joins", machine=2),
    reports.Offered((), "asked back"),
    reports.MachineLost(2),
)


@pytest.fixture
def ends():
    driver = os.pidfd_open(os.getpid())
    inbox, outbox = report_socket.pair(driver)
    yield inbox, outbox
    inbox.close()
    outbox.close()
    os.close(driver)


def test_there_is_an_example_of_each_kind():
    assert {type(report) for report in EVERY} == set(typing.get_args(Report))


@pytest.mark.parametrize("report", EVERY, ids=lambda report: report.kind)
def test_a_report_is_read_as_it_was_written_from_bytes_from_a_file_and_by_a_bridge(report: Report) -> None:
    assert reports.decode(reports.encode(report)) == report
    assert reports.read(json.loads(json.dumps(reports.plain(report)))) == report
    assert connection.decode(connection.encode(report)) == report


def test_a_bridge_tells_commands_from_reports() -> None:
    assert connection.decode(connection.encode(commands.Kill(3))) == commands.Kill(3)


def test_fields_that_an_earlier_version_wrote_are_left_out() -> None:
    assert reports.read({"kind": "warning", "worker_id": 2, "message": "hot"}) == reports.Warned("hot")


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"kind": "gossip"},
        {"kind": ["ready"]},
        {"kind": "ready"},
        {"kind": "ready", "worker_id": "3"},
        {"kind": "exited", "worker_id": 3, "code": True},
        {"kind": "checkpoint", "step": 1, "epoch": 1, "role": "spare", "paths": [], "size_bytes": 1},
        {"kind": "logged", "at": 1, "lines": [{"group": "train", "step": 1, "values": {"loss": "low"}}]},
        {"kind": "joined", "slots": [{"id": 1}], "reason": ""},
    ],
)
def test_what_is_no_report_is_refused(said: dict[str, object]) -> None:
    with pytest.raises(ProtocolError):
        reports.decode(json.dumps(said).encode())


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"7", b"\xff", b"[" * 100_000])
def test_what_is_no_object_is_refused(raw: bytes) -> None:
    for decode in (reports.decode, admission.decode, connection.decode):
        with pytest.raises(ProtocolError):
            decode(raw)


def test_an_admission_is_read_as_it_was_written() -> None:
    given = Admission(4, 1, 8, 2, (100, 20), "torch 2", "Layout()").answer(0, "no more machines")
    assert admission.decode(admission.encode(given)) == given


def test_a_driver_that_does_not_say_how_it_adds_half_precision_is_followed_as_the_releases_that_did_not() -> None:
    raw = json.loads(admission.encode(Admission(4, 1, 8, 2, (100, 20), "torch 2", "Layout()", wide_sums=True)))
    own = TrainConfig(engines=4, seed=1, result_dir=Path(), max_workers=8, in_studio=True)
    assert admission.decode(json.dumps(raw).encode()).configure(own).wide_sums
    del raw["wide_sums"]
    assert not admission.decode(json.dumps(raw).encode()).configure(own).wide_sums


def test_a_report_stays_in_the_socket_until_the_next_one_is_asked_for(ends: tuple[Inbox, Outbox]) -> None:
    inbox, outbox = ends
    for worker_id in (1, 2):
        outbox.send(reports.Ready(worker_id))
    first = inbox.handled()
    assert next(first) == reports.Ready(1)
    first.close()
    assert inbox.receive() == [reports.Ready(1), reports.Ready(2)]
    assert inbox.receive() == []


def test_nonsense_in_the_socket_is_an_error_once_and_what_follows_can_be_read(ends: tuple[Inbox, Outbox]) -> None:
    inbox, outbox = ends
    rogue = socket.socket(fileno=os.dup(outbox.fileno()))
    with rogue:
        rogue.send(b'{"kind": "gossip"}')
    outbox.send(reports.Ready(2))
    with pytest.raises(ProtocolError, match="gossip"):
        inbox.receive()
    assert inbox.receive() == [reports.Ready(2)]


def test_of_a_long_traceback_both_ends_arrive(ends: tuple[Inbox, Outbox]) -> None:
    inbox, outbox = ends
    outbox.send(reports.Dying(3, "first" + 3 * MAX_BYTES * "-" + "last", "ValueError", final=False, no_room=False))
    (report,) = inbox.receive()
    assert isinstance(report, reports.Dying)
    assert report.traceback.startswith("first-") and "\n[...]\n" in report.traceback and report.traceback.endswith("-last")
    assert len(report.traceback) < MAX_BYTES
