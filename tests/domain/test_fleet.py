"""What machines say of themselves and what the studio wants of them; how the end of a run is understood."""

from __future__ import annotations

import datetime as dt
import errno
from dataclasses import replace
from pathlib import Path

import pytest

from experiments import services
from experiments.cluster import desired, endings, fleet, scheduling
from experiments.files import runfiles
from experiments.metrics import ingest
from experiments.models import JournalCursor, Metric, Node, Project, RunState, Slot, TrainingRun, User
from tests import cast
from tests.conftest import SentMessages
from training_runtime.journal import Failed
from training_runtime.protocol import Observation, RunObservation, decode, encode

pytestmark = pytest.mark.django_db
NOW = dt.datetime(2026, 11, 20, 12, 0, tzinfo=dt.UTC)
SECOND = dt.timedelta(seconds=1)


@pytest.fixture
def node(db: None) -> Node:
    return cast.node(now=NOW)


@pytest.fixture
def host(node: Node) -> cast.Host:
    return cast.Host(node)


@pytest.fixture
def run(project: Project, alice: User, node: Node) -> TrainingRun:
    made = cast.run(project, by=alice, now=NOW)
    scheduling.tick(NOW)
    return made


def fresh(run: TrainingRun) -> TrainingRun:
    run.refresh_from_db()
    return run


def places(node: Node, *, retired: bool = False) -> list[tuple[str, int]]:
    return list(Slot.objects.filter(node=node, retired=retired).order_by("device", "index").values_list("device", "index"))


def test_a_node_has_a_slot_per_gpu_else_four_cpu_shares_unless_told(db: None) -> None:
    assert places(fleet.register(cast.facts("a"), now=NOW)) == [("cpu", i) for i in range(4)]
    assert places(fleet.register(cast.facts("b", gpus=2), now=NOW)) == [("gpu", 0), ("gpu", 1)]
    assert places(fleet.register(cast.facts("c"), now=NOW, slots=3)) == [("cpu", i) for i in range(3)]


def test_more_slots_than_gpus_share_them(project: Project, alice: User) -> None:
    node = cast.node("a", slots=5, gpus=2, now=NOW)
    assert [slot.label() for slot in node.slots.all()] == ["GPU 0", "GPU 1", "GPU 0 share 2", "GPU 1 share 2", "GPU 0 share 3"]
    cast.run(project, by=alice, max_slots=3, now=NOW)
    scheduling.tick(NOW)
    (wanted,) = desired.desired_state(node, now=NOW).runs
    assert [(slot.device, slot.index) for slot in wanted.slots] == [("gpu", 0), ("gpu", 0), ("gpu", 1)], "each worker is told its GPU"


def test_slots_that_a_node_loses_are_retired_and_come_back(db: None) -> None:
    node = cast.node("a", slots=4, now=NOW)
    cast.node("a", slots=2, now=NOW)
    assert places(node) == [("cpu", 0), ("cpu", 1)]
    assert places(node, retired=True) == [("cpu", 2), ("cpu", 3)]
    cast.node("a", slots=3, now=NOW)
    assert len(places(node)) == 3
    assert Slot.objects.filter(node=node).count() == 4


def test_a_retired_slot_is_emptied(run: TrainingRun, host: cast.Host) -> None:
    host.slots = 3
    host.apply(NOW)
    scheduling.tick(NOW)
    host.apply(NOW)
    scheduling.tick(NOW)
    assert len(cast.slots_of(run)) == 3


def test_hearing_the_same_again_says_nothing_to_anybody(node: Node, said: SentMessages, django_capture_on_commit_callbacks: object) -> None:
    with django_capture_on_commit_callbacks(execute=True):  # type: ignore[operator]
        cast.node(now=NOW + SECOND)
    assert (said.messages, said.tasks) == ([], [])
    node.refresh_from_db()
    assert node.last_seen_at == NOW + SECOND


def test_the_snapshot_names_all_that_a_driver_needs(run: TrainingRun, node: Node, home: Path) -> None:
    apply = desired.desired_state(node, now=NOW)
    (wanted,) = apply.runs
    spec = wanted.spec
    assert (spec.run, spec.user, spec.argv, spec.max_slots, spec.attempt) == (run.pk, "alice", ("main.py", "--epochs", "2"), 4, 1)
    assert (Path(spec.code_dir) / "main.py").is_file()
    assert Path(spec.result_dir).is_dir()
    assert (spec.data_dir, spec.data_root, spec.elastic) == (str(home / "data"), str(home / "data"), True)
    assert (spec.network, spec.release_grace_s) == (False, 30)
    assert [slot.id for slot in wanted.slots] == cast.slot_ids(node)
    assert not wanted.stop
    assert wanted.reason
    assert decode(encode(apply)) == apply


def test_numbers_of_snapshots_only_grow(node: Node) -> None:
    first = desired.desired_state(node, now=NOW).revision
    assert first < desired.desired_state(node, now=NOW).revision < desired.desired_state(node, now=NOW - 100 * SECOND).revision


def test_a_run_that_is_promised_slots_gets_its_driver_before_they_are_free(
    run: TrainingRun, project: Project, bob: User, node: Node
) -> None:
    waiting = cast.run(project, by=bob, now=NOW)
    scheduling.tick(NOW + SECOND)
    slots = {wanted.spec.run: len(wanted.slots) for wanted in desired.desired_state(node, now=NOW).runs}
    assert slots == {run.pk: 2, waiting.pk: 0}


def test_a_run_without_a_promise_gets_no_driver(run: TrainingRun, project: Project, alice: User, bob: User, node: Node) -> None:
    others = [cast.run(project, by=bob, now=NOW + SECOND * i) for i in range(5)]
    scheduling.tick(NOW + 9 * SECOND)
    assert others[-1].pk not in {wanted.spec.run for wanted in desired.desired_state(node, now=NOW).runs}


@pytest.mark.parametrize(
    ("outcome", "exit_code", "state", "reason"),
    [
        ("completed", 0, RunState.COMPLETED, "It finished."),
        ("failed", 1, RunState.FAILED, "It failed."),
        ("stopped", 0, RunState.STOPPED, "It was stopped."),
        ("completed", -9, RunState.COMPLETED, "It finished."),
        (None, 0, RunState.COMPLETED, "The script ended."),
        (None, 3, RunState.FAILED, "The script ended with exit code 3."),
        (None, -9, RunState.FAILED, "Killed by signal 9 (SIGKILL)."),
        (None, -11, RunState.FAILED, "Killed by signal 11 (SIGSEGV)."),
    ],
)
def test_the_journal_says_how_a_run_ended_and_else_its_exit_code(
    run: TrainingRun, host: cast.Host, outcome: str | None, exit_code: int, state: RunState, reason: str
) -> None:
    host.apply(NOW)
    events = [cast.started(), cast.step(1)] + ([cast.finished(outcome)] if outcome else [])
    cast.write_journal(run, *events)
    host.apply(NOW + SECOND, exits={run.pk: exit_code})
    assert (fresh(run).state, run.state_reason) == (state, reason)
    assert (run.exit_code, run.ended_at) == (exit_code, NOW + SECOND)
    assert Metric.objects.count() == 1  # the journal was read to its end first
    assert cast.slots_of(run) == set()
    assert [wanted.spec.run for wanted in desired.desired_state(host.node, now=NOW).runs] == []


def test_the_time_of_a_script_that_trains_no_step_is_from_its_first_slots_to_its_end(run: TrainingRun, host: cast.Host) -> None:
    host.apply(NOW)
    host.apply(NOW + 90 * SECOND, exits={run.pk: 0})
    assert fresh(run).duration(NOW + 999 * SECOND) == 90 * SECOND
    assert run.state == RunState.COMPLETED


def test_a_script_that_raises_shows_its_error(run: TrainingRun, host: cast.Host) -> None:
    cast.write_journal(
        run, Failed("ValueError: bad learning rate", "Traceback ...\nValueError: bad learning rate", "driver"), cast.finished("failed")
    )
    host.apply(NOW, exits={run.pk: 1})
    assert (fresh(run).state, run.state_reason) == (RunState.FAILED, "ValueError: bad learning rate")
    assert run.error_traceback.startswith("Traceback")


def test_a_script_that_dies_before_its_journal_shows_the_end_of_its_log(run: TrainingRun, host: cast.Host) -> None:
    log = runfiles.make(run) / "log" / "driver"
    log.mkdir(parents=True)
    (log / "console.log").write_text("x" * 10_000 + "\nModuleNotFoundError: No module named 'torchvison'\n")
    host.apply(NOW, exits={run.pk: 1})
    assert fresh(run).state == RunState.FAILED
    assert "torchvison" in run.error_traceback
    assert len(run.error_message) < 5000


def test_a_log_that_is_a_link_is_not_read(run: TrainingRun, host: cast.Host) -> None:
    log = runfiles.make(run) / "log" / "driver"
    log.mkdir(parents=True)
    (log / "console.log").symlink_to("/etc/passwd")
    host.apply(NOW, exits={run.pk: 1})
    assert "root:" not in fresh(run).error_message


def test_an_asked_for_end_is_stopped_however_the_process_went(run: TrainingRun, host: cast.Host, alice: User) -> None:
    services.stop_run(run, by=alice, reason="enough")
    host.apply(NOW, exits={run.pk: -9})
    assert (fresh(run).state, run.state_reason) == (RunState.STOPPED, "Stopped by alice: enough")


def test_an_ending_that_is_told_twice_is_one(run: TrainingRun, host: cast.Host) -> None:
    observation = host.apply(NOW, exits={run.pk: 0})
    rows = run.transitions.count()
    fleet.record(observation, now=NOW + SECOND)
    assert run.transitions.count() == rows
    assert fresh(run).ended_at == NOW


def test_another_node_cannot_end_a_run(run: TrainingRun, node: Node) -> None:
    cast.node("second", now=NOW)
    ended = RunObservation(run=run.pk, attempt=1, state="exited", holding=(), exit_code=0)
    fleet.record(Observation(revision=1, node=cast.facts("second"), runs=(ended,)), now=NOW)
    assert fresh(run).is_live()
    assert len(cast.slots_of(run)) == 4


def test_a_new_attempt_is_noted(run: TrainingRun, host: cast.Host) -> None:
    observation = host.apply(NOW)
    again = replace(observation, runs=(replace(observation.runs[0], attempt=2),))
    fleet.record(again, now=NOW)
    assert fresh(run).attempt == 2
    assert desired.desired_state(host.node, now=NOW).runs[0].spec.attempt == 2


def test_a_run_whose_code_is_gone_fails_and_does_not_keep_others_from_running(
    run: TrainingRun, project: Project, bob: User, node: Node
) -> None:
    bundle = run.version.bundle
    bundle.scripts = ["other.py"]
    bundle.save()
    version = cast.definition(project, by=bob, files={"train.py": "x = 1\n"}, command="train.py")
    second = services.run_experiment(cast.experiment(project, by=bob, versions=[version]), by=bob)[0]
    scheduling.tick(NOW + SECOND)
    assert [wanted.spec.run for wanted in desired.desired_state(node, now=NOW).runs] == [second.pk]
    assert fresh(run).state == RunState.FAILED
    assert "main.py is not in the zip" in run.state_reason
    scheduling.tick(NOW + SECOND)
    cast.Host(node).apply(NOW + 2 * SECOND)
    assert cast.slots_of(run) == set()


FULL = "The disk of node alpha is full: less than 16 MiB free. Runs wait there and go on by themselves when 512 MiB are."


def test_runs_wait_for_a_full_disk_and_say_so(run: TrainingRun, host: cast.Host, project: Project, bob: User) -> None:
    host.apply(NOW)
    cast.write_journal(run, cast.started(), cast.step(1))
    queued = cast.run(project, by=bob, now=NOW)
    host.apply(NOW + SECOND, storage_problem=FULL)
    scheduling.tick(NOW + SECOND)
    host.apply(NOW + 2 * SECOND, storage_problem=FULL)
    scheduling.tick(NOW + 2 * SECOND)
    assert not cast.slots_of(run)
    assert (fresh(run).state, run.state_reason) == (RunState.SUSPENDED, f"waits: {FULL}")
    assert fresh(queued).state == RunState.QUEUED
    assert FULL in queued.plan_reason
    host.apply(NOW + 3 * SECOND)
    scheduling.tick(NOW + 3 * SECOND)
    assert fresh(run).state == RunState.STARTING
    assert len(cast.slots_of(run)) > 0
    assert FULL not in fresh(queued).plan_reason


CROWDING = "Of the 80.0 GiB of GPU 0's memory run 12 had 70.0 GiB when last looked at."


@pytest.mark.parametrize(
    ("message", "log", "reason"),
    [
        ("ran out of memory (CUDA out of memory.)", "", f"ran out of memory (CUDA out of memory.) {CROWDING}"),
        ("", "OutOfMemoryError: CUDA out of memory.", f"The script ended with exit code 1. {CROWDING}"),
        ("KeyError: 'x'", "", "KeyError: 'x'"),
    ],
    ids=["its engine says so", "only its log says so", "it failed of something else"],
)
def test_a_run_that_lacked_memory_of_a_gpu_says_who_else_had_some(
    run: TrainingRun, host: cast.Host, message: str, log: str, reason: str
) -> None:
    host.apply(NOW)
    cast.write_journal(run, cast.started(), *([Failed(message, "", "driver"), cast.finished("failed")] if message else []))
    console = runfiles.make(run) / runfiles.DRIVER_LOG
    console.parent.mkdir(parents=True)
    console.write_text(log)
    ended = RunObservation(run=run.pk, attempt=1, state="exited", holding=(), exit_code=1, crowding=CROWDING)
    fleet.record(replace(host.apply(NOW + SECOND), runs=(ended,)), now=NOW + SECOND)
    assert (fresh(run).state, run.state_reason, run.error_message) == (RunState.FAILED, reason, reason)


def test_the_end_of_an_earlier_attempt_is_not_that_of_the_run(run: TrainingRun, host: cast.Host) -> None:
    """It was on this machine, then on another, and is back: what the host still knew of the first attempt arrives late."""
    host.apply(NOW)
    TrainingRun.objects.filter(pk=run.pk).update(attempt=3)
    late = RunObservation(run=run.pk, attempt=1, state="exited", holding=(), exit_code=1)
    fleet.record(replace(host.apply(NOW + SECOND), runs=(late,)), now=NOW + SECOND)
    assert fresh(run).state == RunState.STARTING
    assert len(cast.slots_of(run)) == 4


def test_a_run_whose_folder_cannot_be_made_keeps_no_other_waiting(
    run: TrainingRun, host: cast.Host, project: Project, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = cast.run(project, by=alice, now=NOW)
    scheduling.tick(NOW)
    runfiles.make(other)
    make = Path.mkdir

    def refuses(self: Path, *arguments: object, **options: object) -> None:
        if self == runfiles.folder(run):
            raise OSError(errno.EROFS, "Read-only file system", str(self))
        make(self, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "mkdir", refuses)
    assert [seen.run for seen in host.apply(NOW).runs] == [other.pk]
    monkeypatch.undo()
    assert {seen.run for seen in host.apply(NOW).runs} == {run.pk, other.pk}


def test_a_journal_that_is_nested_as_deep_as_can_be_read_keeps_no_other_run_from_its_end(
    run: TrainingRun, host: cast.Host, project: Project, alice: User
) -> None:
    """How deep that is depends on who reads: one of the lines is."""
    other = cast.run(project, by=alice, now=NOW)
    scheduling.tick(NOW)
    host.apply(NOW)
    line = b'{"v":1,"run":1,"seq":1,"t":1,"kind":"train","metrics":{"loss":%s%s}}\n'
    (runfiles.make(run) / "journal.jsonl").write_bytes(b"".join(line % (b"[" * deep, b"]" * deep) for deep in range(400, 1000)))
    cast.write_journal(other, cast.started(), cast.step(1), cast.finished())
    host.apply(NOW + SECOND, exits={run.pk: 0, other.pk: 0})
    assert (fresh(run).state, fresh(other).state) == (RunState.COMPLETED, RunState.COMPLETED)


def test_a_flood_at_a_runs_end_is_read_in_turns_and_holds_neither_its_slots_nor_its_machine(
    run: TrainingRun, host: cast.Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "BATCH_BYTES", 4000)
    host.apply(NOW)
    cast.write_journal(run, cast.started(), *map(cast.step, range(1, 401)), cast.finished())
    host.apply(NOW + SECOND, exits={run.pk: 0})
    run.refresh_from_db()
    assert (run.state, run.state_reason) == (RunState.STOPPING, endings.STILL_READ)
    assert not cast.slots_of(run)
    seq = JournalCursor.objects.get(run=run).seq
    assert 0 < seq < 100, "one piece, and then the node's agent goes on"
    scheduling.tick(NOW + SECOND)
    assert not cast.slots_of(run), "it needs none any more"
    host.apply(NOW + 2 * SECOND, exits={run.pk: 0})
    assert seq < JournalCursor.objects.get(run=run).seq < 400
    ingest.catch_up(run.pk, now=NOW + 3 * SECOND)  # the control worker's turns
    host.apply(NOW + 4 * SECOND, exits={run.pk: 0})
    run.refresh_from_db()
    assert (run.state, run.state_reason) == (RunState.COMPLETED, "It finished.")
    assert Metric.objects.count() == 400
    assert run.started_at is not None
