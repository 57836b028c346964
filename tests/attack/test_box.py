"""What a stranger's script reaches of the studio and of another person's job, tried at once by user code of a real run next to a real one,
at the strongest level. What it would do to the machine itself (fork bombs, memory, the disk): tests/host/test_box_groups.py,
test_box_disk.py."""

from __future__ import annotations

import contextlib
import uuid
from pathlib import Path

import psutil
import pytest

from tests.attack.conftest import Attack, vital
from tests.attack.scene import HOSTILE, Scene
from tests.e2e.studio import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def test_the_attacker_could_do_what_every_script_may(attacked: Attack) -> None:
    """Else all that is refused below would prove nothing."""
    assert [each.outcome for each in attacked.findings["own"]] == ["open"] * 3
    assert len(attacked.findings["read"]) > 30
    there = {each.what.rsplit("/", 1)[-1] for each in attacked.findings["read"]}
    assert {"db.sqlite3", "secret_key", "broker_password", "journal.jsonl", "hers.txt", "shadow"} <= there


def test_no_file_of_the_studio_or_of_another_run_is_read_changed_or_linked(attacked: Attack) -> None:
    assert attacked.opened("read", "write", "cut", "link", "mode", "times") == []


def test_no_folder_of_them_is_listed_or_written_to(attacked: Attack) -> None:
    assert attacked.opened("list", "make") == []


def test_no_name_in_them_can_be_asked_for(attacked: Attack) -> None:
    """But of the folders on the way to what it may use: they are there in its own root, with nothing else in them."""
    home = attacked.scene.studio.home
    on_the_way = {str(home / name) for name in ("", "runs", "code", "data", "host", "host/local", "environments")}
    assert {each.what for each in attacked.opened("stat")} <= on_the_way


def test_no_process_of_others_is_seen_signalled_traced_read_or_slowed(attacked: Attack) -> None:
    proc = [f"proc {name}" for name in ("environ", "mem", "maps", "auxv", "fd", "cwd", "root")]
    assert (
        attacked.opened("see", "signal", "trace", "memory", "descriptor", "computed", "owner", *proc, "priority", "processors", "limits")
        == []
    )


def test_no_socket_of_the_studio_of_another_run_or_of_the_machine_answers(attacked: Attack) -> None:
    assert attacked.opened("broker socket", "host socket", "driver socket") == []
    assert {each.outcome for each in attacked.findings["broker socket"]} <= {"EACCES", "ENOENT"}, "it is not even connected to"


def test_no_port_of_the_machine_and_no_address_beyond_it_is_reached(attacked: Attack) -> None:
    assert attacked.opened("port", "raw socket") == []
    assert f"127.0.0.1:{attacked.scene.studio.port}" in {each.what for each in attacked.findings["port"]}


def test_no_right_namespace_device_or_knob_of_the_kernel_is_got(attacked: Attack) -> None:
    assert attacked.opened("rights", "namespace", "call", "device", "knob", "control group", "shared memory") == []


def test_nothing_of_alices_is_in_anything_that_charlie_has(attacked: Attack) -> None:
    scene, charlie, mark = attacked.scene, attacked.scene.charlie.browser, attacked.scene.mark.encode()
    folder = scene.studio.folder(attacked.run)
    plain = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink() and path.stat().st_size < 1 << 30]
    told = {"targets.json", "findings.jsonl"}  # what the test has told it itself: names, not contents
    assert not [path for path in plain if path.name not in told and mark in path.read_bytes()]
    alices = [f"/runs/{scene.hers}/", f"/runs/{scene.hers}/files/hers.txt", f"/projects/{scene.alice.project}/"]
    assert [charlie.get(path).status for path in alices] == [404] * 3
    for path in (
        "/projects/",
        "/cluster/",
        "/search/?q=alice",
        "/notifications/",
        "/cluster/lanes",
        "/cluster/nodes/local/",
        "/cluster/usage/",
    ):
        assert mark not in charlie.get(path).body, path


def test_alices_job_and_the_studio_are_as_before_and_go_on(attacked: Attack) -> None:
    scene, before = attacked.scene, scene_step(attacked.scene)
    assert vital(scene) == attacked.before
    wait_until(lambda: scene_step(scene) > before, lambda: f"Alice's job trains on\n{scene.studio.tail()}")
    assert scene.studio.rows("SELECT level FROM (SELECT sandbox_level AS level FROM experiments_node)") == [("user+landlock",)]


def scene_step(scene: Scene) -> int:
    return scene.step(scene.hers)


def test_nothing_that_it_left_behind_lives(attacked: Attack) -> None:
    scene = attacked.scene
    assert scene.state(attacked.run) in ("completed", "failed")
    assert marked(attacked.mark) == []
    assert scene.processes_of(attacked.run) == []


def marked(mark: str) -> list[int]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if mark in process.cmdline():
                found.append(process.pid)
    return found


def test_the_host_does_not_believe_it_about_processes_of_others(attacked: Attack) -> None:
    scene = attacked.scene
    log = (scene.studio.home / "log" / "host.log").read_text()
    assert f"a driver names a process that is not of its run run={attacked.run} " in log
    overlapping = """SELECT a.run_id, b.run_id FROM experiments_grant a JOIN experiments_grant b ON a.slot_id = b.slot_id AND a.id < b.id
        WHERE b.granted_at < COALESCE(a.released_at, '9999')"""
    assert scene.studio.rows(overlapping) == []
    assert attacked.run not in scene.studio.held(), "its slots are free"


def test_what_it_wrote_in_its_journal_is_about_itself_alone(attacked: Attack) -> None:
    """Lines of another run, of steps far beyond, of files that are none of its own."""
    scene = attacked.scene
    points = "experiments_metric m JOIN experiments_metricseries s ON s.id = m.series_id"
    forged = f"SELECT COUNT(*) FROM {points} WHERE s.run_id = ? AND m.value = 666"
    assert scene.studio.rows(forged, scene.hers) == [(0,)]
    ((rejected,),) = scene.studio.rows("SELECT rejected FROM experiments_journalcursor WHERE run_id = ?", attacked.run)
    assert rejected >= 2
    assert scene.state(scene.hers) == "running"
    assert scene.step(scene.hers) < 1 << 30


def test_a_slot_and_a_run_are_given_back_by_a_script_that_hears_nothing(attacked: Attack) -> None:
    """Stopped as its owner would, while it and its helpers ignore every request and every signal."""
    scene, charlie, mark = attacked.scene, attacked.scene.charlie, f"deaf-{attacked.mark}"
    code: dict[str, str | Path] = {name: HOSTILE / name for name in ("deaf.py", "results.py")}
    run = scene.submit(charlie, code, f"deaf.py {mark}", name="deaf")
    wait_until(lambda: (scene.studio.folder(run) / "deaf").exists(), lambda: f"it has its slot: {scene.plan(run)}\n{scene.console(run)}")
    wait_until(lambda: len(marked(mark)) == 3, "its helpers are there")
    assert charlie.browser.post(f"/runs/{run}/stop/", {}).status == 302
    assert scene.until_ended(run) == "stopped"
    assert (marked(mark), scene.processes_of(run)) == ([], [])
    wait_until(lambda: run not in scene.studio.held(), "its slot is free")


def test_a_checkpoint_with_code_in_it_runs_nothing_for_who_continues_from_it(attacked: Attack) -> None:
    scene, alice = attacked.scene, attacked.scene.alice
    assert scene.until_ended(attacked.poisoned) == "completed"
    checkpoint = scene.studio.folder(attacked.poisoned) / "checkpoint" / "engine.pt"
    assert b"called-by-" in checkpoint.read_bytes(), "the code is in it"
    made = alice.browser.post(f"/runs/{attacked.poisoned}/continue/", {"idempotency_key": uuid.uuid4(), "command": "poisoned.py 2"})
    assert made.status == 302, made.text[:500]
    run = int(made.location.strip("/").split("/")[-1])
    assert scene.until_ended(run) == "failed"
    ((said,),) = scene.studio.rows("SELECT error_message FROM experiments_trainingrun WHERE id = ?", run)
    assert "which is not taken over from another run" in said
    called = [path.name for path in scene.studio.folder(run).rglob("called-by-*")]
    assert not [name for name in called if name.endswith(f"-from-{attacked.poisoned}")]
