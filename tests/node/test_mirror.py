"""What of a run's folder is sent next, what the studio is told meanwhile, and names of folders on two machines: all pure."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_runtime.errors import ProtocolError
from training_runtime.meeting import Meeting
from training_runtime.news import news
from training_runtime.node import places
from training_runtime.node.mirror import Append, File, Remove, Replace, decide, is_guests
from training_runtime.node.reporting import COPIED_BACK, Copy, reported
from training_runtime.protocol import EnvironmentSeen, NodeFacts, Observation, RunObservation, RunSpec, SlotSeen

FACTS = NodeFacts("beta", 4, 1 << 30, (), "2.13", "user")


def file(path: str, size: int = 10, at: int = 1) -> File:
    return File(path, size, at)


def by_path(*files: File) -> dict[str, File]:
    return {each.path: each for each in files}


def test_the_journal_goes_first_then_logs_then_files_that_nobody_is_writing():
    found = [file("checkpoint/engine.pt"), file("log/driver/console.log", 5), file("journal.jsonl", 7), file("model/model.pt", 3)]
    before = by_path(*found[:3], file("model/model.pt", 2))
    actions = decide(found, {}, before=before, ended=False)
    assert actions == [Append("journal.jsonl", 0, 7), Append("log/driver/console.log", 0, 5), Replace(found[0])]


def test_a_file_that_is_being_written_is_sent_when_the_run_has_ended():
    found = [file("model/model.pt", 3, at=2)]
    assert decide(found, {}, before=by_path(file("model/model.pt", 3, at=1)), ended=False) == []
    assert decide(found, {}, before={}, ended=True) == [Replace(found[0])]


def test_a_log_goes_on_from_where_it_stopped_and_one_that_was_cut_begins_anew():
    arrived = by_path(file("journal.jsonl", 10, at=0))
    assert decide([file("journal.jsonl", 25)], arrived, before={}, ended=False) == [Append("journal.jsonl", 10, 25)]
    assert decide([file("journal.jsonl", 10)], arrived, before={}, ended=False) == []
    assert decide([file("journal.jsonl", 4)], arrived, before={}, ended=False) == [Append("journal.jsonl", 0, 4)]


def test_what_the_run_has_deleted_is_removed_from_the_copy_and_nothing_else():
    kept, gone = file("a.txt"), file("b.txt")
    assert decide([kept], by_path(kept, gone), before=by_path(kept), ended=False) == [Remove("b.txt")]


files = st.builds(File, st.sampled_from(["journal.jsonl", "log/driver/console.log", "a", "b/c", "d"]), st.integers(0, 9), st.integers(0, 3))
folders = st.lists(files, unique_by=lambda each: each.path, max_size=5)


@given(folders, folders)
def test_of_an_ended_run_one_round_makes_the_copy_the_same(found: list[File], arrived: list[File]):
    copy = by_path(*arrived)
    for action in decide(found, copy, before={}, ended=True):
        if isinstance(action, Append):
            copy[action.path] = file(action.path, action.end, at=0)
        elif isinstance(action, Replace):
            copy[action.file.path] = action.file
        else:
            del copy[action.path]
    assert {path: each.size for path, each in copy.items()} == {each.path: each.size for each in found}
    assert decide(found, copy, before={}, ended=True) == []


def seen(*runs: RunObservation) -> Observation:
    return Observation(7, FACTS, runs)


def test_a_run_has_ended_for_the_studio_when_its_last_file_is_there():
    ended = RunObservation(3, 1, "exited", (), journal_bytes=90, exit_code=0)
    (late,) = reported(seen(ended), copies=[Copy(3, 1, 50, complete=False)], coming={}).runs
    assert (late.exit_code, late.state, late.journal_bytes, late.detail) == (None, "stopping", 50, COPIED_BACK)
    assert reported(seen(ended), copies=[Copy(3, 1, 90, complete=True)], coming={}).runs == (ended,)


def test_a_run_that_dies_of_the_end_of_its_machine_has_not_ended_and_one_that_completes_then_has():
    killed, done = RunObservation(3, 1, "exited", (), exit_code=-15), RunObservation(4, 1, "exited", (), exit_code=0)
    copies = [Copy(3, 1, 0, complete=True), Copy(4, 1, 0, complete=True)]
    first, second = reported(seen(killed, done), copies=copies, coming={}, leaving=True).runs
    assert (first.exit_code, first.state, first.detail) == (None, "stopping", "the machine is being ended")
    assert second == done
    assert reported(seen(killed, done), copies=copies, coming={}).runs == (killed, done)


def test_one_that_the_host_has_forgotten_is_here_until_its_files_are_there_and_its_slots_are_free_at_once():
    (held,) = reported(seen(), copies=[Copy(3, 2, 50, complete=False)], coming={}).runs
    assert (held.run, held.attempt, held.holding, held.exit_code) == (3, 2, (), None)
    assert reported(seen(), copies=[Copy(3, 2, 50, complete=True)], coming={}).runs == ()


def test_a_run_whose_files_are_on_their_way_here_is_starting():
    (run,) = reported(seen(), copies=[], coming={5: (1, ", 3 of 40 MiB")}).runs
    assert (run.state, run.detail) == ("starting", "its files are being copied to this machine, 3 of 40 MiB")


def test_environments_are_told_as_far_as_they_fit_into_a_message_and_the_next_when_those_are_known():
    built = [EnvironmentSeen(key, 1, "ready", folder=key, lock="x" * 600_000, log="built") for key in "abc"]
    for known in range(3):
        left = [replace(each, lock="", log="") if number < known else each for number, each in enumerate(built)]
        told = reported(replace(seen(), environments=tuple(left)), copies=[], coming={}).environments or ()
        assert [each.state for each in told] == ["ready"] * (known + 1) + ["building"] * (2 - known)
        assert told[known].lock
    assert reported(seen(), copies=[], coming={}).environments is None


def test_paths_are_the_same_places_on_two_machines():
    there = {"home": "/var/edt", "data": "/mnt/data"}
    here = {"home": "/root/.edt-node", "data": "/data"}
    for path, other in {
        "/var/edt/code/ab12/src": "/root/.edt-node/code/ab12/src",
        "/var/edt/runs/0f-9": "/root/.edt-node/runs/0f-9",
        "/mnt/data/mnist": "/data/mnist",
        "/mnt/data": "/data",
        "": "",
    }.items():
        assert places.path_of(places.place_of(path, **there), **here) == other


@pytest.mark.parametrize("path", ["/var/edt/secrets/secret_key", "/etc/passwd", "/var/edt", "/var/edt/db.sqlite3"])
def test_what_is_no_place_is_not_said(path: str):
    with pytest.raises(ProtocolError):
        places.place_of(path, home="/var/edt", data="/mnt/data")


@pytest.mark.parametrize("place", ["runs", "runs/../../etc", "secrets/key", "code//x", "/etc/passwd", "runs/a\0b", "data/.."])
def test_what_is_no_place_leads_nowhere(place: str):
    with pytest.raises(ProtocolError):
        places.path_of(place, home="/home", data="/data")


def test_a_run_needs_its_code_its_data_and_whom_it_continues():
    spec = RunSpec(
        1, "x", "alice", ("main.py",), "code/ab/src", "runs/r1", "assets/k1/train", 2, data_root="assets/k1", continue_from="runs/r0"
    )
    assert places.trees(spec) == (("code", "ab"), ("assets", "k1"), ("runs", "r0"))


def test_growth_of_journals_and_figures_of_slots_are_no_news_and_anything_else_is():
    run = RunObservation(5, 1, "running", (1,), journal_bytes=10, busy_s=1.0, counted_s=2.0)
    before = Observation(7, FACTS, (run,))
    grown = replace(before, runs=(replace(run, journal_bytes=99, busy_s=3.0, counted_s=4.0, slots=(SlotSeen(1, 0.0),)),))
    assert news(grown) == news(before)
    others = [replace(before, revision=8), replace(before, storage_problem="full"), replace(before, runs=())]
    others += [
        replace(before, runs=(replace(run, **change),))
        for change in ({"holding": ()}, {"exit_code": 0}, {"detail": "x"}, {"attempt": 2}, {"meeting": Meeting("10.0.0.1", 4000, "x")})
    ]
    assert all(news(other) != news(before) for other in others)


@pytest.mark.parametrize(
    "path", ["log/agent-beta/console.log", "log/worker-7/console.log", "notes.txt", "model/best.pt", "model/train/mine.pth"]
)
def test_of_a_run_whose_driver_is_elsewhere_logs_and_what_its_code_writes_are_sent(path: str):
    assert is_guests(path)


@pytest.mark.parametrize(
    "path", ["journal.jsonl", "checkpoint/engine.pt", "model/train/model_epoch_final.pth", "model/train/model_epoch_3.h5"]
)
def test_what_the_engine_writes_there_goes_to_the_drivers_machine(path: str):
    assert not is_guests(path)


def test_the_studio_hears_the_address_from_the_link():
    seen = Observation(1, FACTS, ())
    assert reported(seen, copies=[], coming={}, address="10.0.0.7").node.address == "10.0.0.7"
