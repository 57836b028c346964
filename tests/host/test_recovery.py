"""What a host finds when it is back or was cut off: another version, files that are gone, a machine that was declared lost."""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.host.conftest import HostUnderTest, until
from tests.host.test_runs import is_gone
from training_runtime.errors import ProtocolError
from training_runtime.host import client, processes
from training_runtime.host.node import Node
from training_runtime.host.runs import talk
from training_runtime.host.runs.live import LiveRun
from training_runtime.protocol import SPOKEN, VERSION, Holding, Subscribe, WantedRun, Worker, encode
from training_runtime.version_skew import ProtocolVersion


def test_a_machine_that_was_declared_lost_asks_nothing_of_its_runs_and_kills_them(own_host: HostUnderTest) -> None:
    """What they could write now would be written over what goes on elsewhere."""
    host = own_host
    host.want(host.spec(7, "obey"), 1)
    host.apply()
    host.until_holding(7, 1)
    driver = host.pid(7)
    host.wanted.clear()
    lost_at = host.revision + 1
    host.send(revision=lost_at + 1, fence=lost_at)
    until(lambda: is_gone(driver))
    assert "Terminate" not in host.log()
    assert "AskToStop" not in host.log()
    until(lambda: host.run(7) is None)
    host.want(host.spec(7, "obey", attempt=3), 1)
    host.send(revision=lost_at + 2, fence=lost_at)  # it is told again every time, and that was then
    host.until_holding(7, 1)
    host.send(revision=lost_at + 3, fence=lost_at)
    assert host.run(7).attempt == 3
    assert not is_gone(host.pid(7))


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """It leads a session of its own, as services do."""
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
        yield process
        process.kill()


def left_by_a_killed_host(host: HostUnderTest) -> dict:
    """Of a run that was training; its processes are gone too."""
    host.want(host.spec(7, "obey"), 1)
    host.apply()
    host.until_holding(7, 1)
    host.kill()
    until(host.all_killed)
    return host.saved()


def test_a_session_that_has_the_number_of_a_driver_by_now_is_left_alone(own_host: HostUnderTest, stranger: subprocess.Popen[bytes]) -> None:
    """Numbers are given again, and in a container that is started anew the same ones at once."""
    host = own_host
    saved = left_by_a_killed_host(host)
    saved["runs"][0]["pid"] = stranger.pid
    (host.folder / "state.json").write_text(json.dumps(saved))
    host.start()
    host.apply()
    assert host.until_holding(7, 1).attempt == 2
    assert stranger.poll() is None


def test_in_a_container_that_was_started_anew_no_number_of_before_is_taken_for_a_process(
    own_host: HostUnderTest, stranger: subprocess.Popen[bytes]
) -> None:
    """The machine's kernel is the same, and says so: the container's first process is another one."""
    host = own_host
    saved = left_by_a_killed_host(host) | {"first_ticks": host.saved()["first_ticks"] + 1}
    saved["runs"][0] |= {"pid": stranger.pid, "start_ticks": processes.look(stranger.pid).start_ticks}
    (host.folder / "state.json").write_text(json.dumps(saved))
    host.start()
    host.apply()
    assert host.until_holding(7, 1).attempt == 2
    assert host.saved()["runs"][0]["restarts"] == 0, "that was no crash"
    assert stranger.poll() is None


def test_an_older_attempt_of_a_lost_machine_ends_before_the_next_one_begins_there(own_host: HostUnderTest) -> None:
    host = own_host
    host.want(host.spec(7, "obey"), 1)
    host.apply()
    host.until_holding(7, 1)
    driver = host.pid(7)
    host.want(host.spec(7, "obey", attempt=2), 1)
    host.send(revision=host.revision + 2, fence=host.revision + 1)
    host.until_run(7, lambda run: run.attempt == 2 and run.holding == (1,) and run.state == "running")
    assert is_gone(driver)
    assert host.pid(7) != driver


def test_a_snapshot_for_another_host_of_that_name_is_not_carried_out(own_host: HostUnderTest) -> None:
    host = own_host
    mine = host.look().node.identity
    assert len(mine) == 32
    host.want(host.spec(7, "obey"), 1)
    seen = host.send(revision=5, identity="of another")
    assert (seen.runs, seen.revision) == ((), 0)
    host.send(revision=5, identity=mine)
    host.until_holding(7, 1)
    host.kill()
    host.start()
    assert host.look().node.identity == mine


def test_a_hosts_socket_that_was_removed_is_made_again(own_host: HostUnderTest) -> None:
    path = own_host.folder / "host.sock"
    path.unlink()
    until(path.exists, deadline_s=30.0)
    own_host.want(own_host.spec(7, "obey"), 1)
    own_host.apply()
    own_host.until_holding(7, 1)
    own_host.want(own_host.spec(7, "obey"), 1, stop=True)
    own_host.apply()


def test_a_driver_whose_socket_is_gone_goes_on_as_a_new_attempt(own_host: HostUnderTest) -> None:
    """The next host cannot tell it anything: not which slots it has, nor that it is to stop."""
    host = own_host
    host.want(host.spec(7, "obey"), 1)
    host.apply()
    host.until_holding(7, 1)
    driver = host.pid(7)
    (socket_file,) = host.folder.glob("run-7.*.sock")
    assert socket_file.name == "run-7.1.sock", "no secret in a name that others can see"
    socket_file.unlink()
    host.kill()
    host.start()
    host.want(host.spec(7, "obey"), 2)
    host.apply()
    host.until_run(7, lambda run: run.attempt == 2 and run.holding == (2,) and run.state == "running")
    assert is_gone(driver)


def test_a_snapshot_of_thousands_of_runs_is_taken_in(own_host: HostUnderTest) -> None:
    spec = dataclasses.replace(own_host.spec(1, "obey"), remote=True)
    for number in range(1, 3001):  # remote agents without slots: there is nothing to start
        own_host.wanted[number] = WantedRun(dataclasses.replace(spec, run=number), (), "r" * 400)
    assert own_host.apply().revision == own_host.revision
    own_host.wanted.clear()
    own_host.want(own_host.spec(7, "obey"), 1)
    own_host.apply()
    own_host.until_holding(7, 1)


@pytest.mark.parametrize("studio", [ProtocolVersion(VERSION + 1, VERSION), ProtocolVersion(VERSION, VERSION - 1)])
def test_a_studio_one_version_ahead_is_served_and_its_new_messages_are_left_out(own_host: HostUnderTest, studio: ProtocolVersion) -> None:
    own_host.want(own_host.spec(7, "obey"), 1)
    own_host.send(revision=own_host.revision + 1, version=studio.version, oldest=studio.oldest)
    own_host.until_holding(7, 1)
    with socket.socket(socket.AF_UNIX) as asking:
        folder = os.open(own_host.folder, os.O_PATH)
        asking.connect(f"/proc/self/fd/{folder}/host.sock")
        os.close(folder)
        asking.sendall(b'{"type":"in_the_next_version","x":1}\n' + encode(Subscribe(studio.version, studio.oldest)))
        asking.settimeout(10)
        assert b'"observation"' in asking.recv(1 << 16), "the connection goes on"
    assert "a message of the studio is left out" in own_host.log()


def test_a_studio_too_far_ahead_is_told_so_and_harms_nothing(own_host: HostUnderTest) -> None:
    own_host.want(own_host.spec(7, "obey"), 1)
    own_host.apply()
    own_host.until_holding(7, 1)
    own_host.wanted.clear()
    own_host.send(revision=own_host.revision + 1, version=VERSION + 2, oldest=VERSION + 1)
    assert f"the studio speaks version {VERSION + 2}" in own_host.log()
    assert own_host.run(7).holding == (1,)


def test_a_studio_says_of_a_host_too_far_apart_which_of_the_two_is_behind(own_host: HostUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    for studio, words in (((VERSION + 2, VERSION + 1), "stop --host-only"), ((VERSION - 1, VERSION - 2), "the studio is older")):
        monkeypatch.setattr(client, "SPOKEN", ProtocolVersion(*studio))
        with pytest.raises(client.OtherVersion, match=words) as caught:
            own_host.send(revision=own_host.revision + 1, version=studio[0], oldest=studio[1])
        assert caught.value.spoken == SPOKEN


def test_what_a_newer_host_wrote_down_is_found_again(own_host: HostUnderTest) -> None:
    own_host.want(own_host.spec(7, "obey"), 1)
    own_host.apply()
    own_host.until_holding(7, 1)
    driver = own_host.pid(7)
    own_host.kill()
    path = own_host.folder / "state.json"
    saved = json.loads(path.read_text())
    saved["later"], saved["runs"][0]["later"] = 1, {"x": [2]}
    path.write_text(json.dumps(saved))
    own_host.start()
    own_host.apply()
    own_host.until_holding(7, 1)
    assert own_host.pid(7) == driver


def test_a_host_without_a_free_descriptor_waits_and_concludes_nothing(own_host: HostUnderTest) -> None:
    host = own_host
    host.want(host.spec(7, "obey"), 1)
    host.apply()
    host.until_holding(7, 1)
    assert host.process is not None
    pid = host.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    assert before[0] == before[1], "it may open as many as the machine allows"
    taken = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (taken, before[1]))
    with socket.socket(socket.AF_UNIX) as client_socket:
        folder = os.open(host.folder, os.O_PATH)
        client_socket.connect(f"/proc/self/fd/{folder}/host.sock")
        os.close(folder)
        until(lambda: "there is no descriptor left" in host.log())
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        assert host.run(7).holding == (1,)
    assert host.process.poll() is None
    assert host.log().count("there is no descriptor left") == 1


def test_a_driver_cannot_name_processes_without_end(tmp_path: Path) -> None:
    run = LiveRun(7, 1, str(tmp_path))
    run.workers = {Worker(slot, slot, 1): -1 for slot in range(1024)}
    with pytest.raises(ProtocolError, match="more than 1024 workers"):
        talk._take_holding(Node(tmp_path), run, Holding((Worker(5000, os.getpid(), 1),)))


def test_runs_are_found_without_the_state_file_and_none_is_started_twice(own_host: HostUnderTest) -> None:
    host = own_host
    host.want(host.spec(7, "obey"), 1, 2)
    host.apply()
    host.until_holding(7, 1, 2)
    driver = host.pid(7)
    host.kill()
    (host.folder / "state.json").write_text('{"runs": 3')
    host.start()
    (seen,) = host.look().runs
    assert (seen.run, seen.attempt, seen.exit_code) == (7, 1, None)

    def taken_in() -> bool:
        """It is told again and again, as the agent's heartbeat does."""
        seen = host.apply()
        assert seen.revision in (0, host.revision), "what it says before proves no slot free"
        return seen.revision == host.revision

    until(taken_in)
    host.until_run(7, lambda run: run.attempt == 2 and run.holding == (1, 2) and run.state == "running")
    assert is_gone(driver)
    assert "attempt 1" in (host.result(7) / "journal.jsonl").read_text()
