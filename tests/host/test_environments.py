"""Environments of runs, built by the real host with the real uv from an index of the test's own."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import socket
from unittest.mock import Mock

import pytest

from tests.groups import group_of, used
from tests.host.box import needs_box, needs_groups
from tests.host.building import SHOW, builders, built, built_from, host, index, left_over, one_host, served, tell, told_of, until_seen, wish
from tests.host.conftest import until
from tests.host.outside import another_machine, greeting, needs_a_way_out
from tests.index import serving
from training_runtime.environments import base
from training_runtime.host import processes
from training_runtime.host.environments import builds
from training_runtime.protocol import WantedEnvironment

__all__ = ["host", "index", "one_host", "served"]  # fixtures


def test_a_run_finds_its_packages_before_those_of_the_base_and_torch_is_not_fetched(host, index):
    seen = built(host, "tiny\ntorch>=2\n")
    assert "tiny==1.2" in seen.lock
    assert "--hash=sha256:" in seen.lock
    assert "torch" not in seen.lock
    assert not any("torch" in path for path in index.asked if "/files/" in path)
    host.want(dataclasses.replace(host.spec(1, "script", "show.py", code={"show.py": SHOW}), environment=seen.folder))
    tell(host, wish("tiny\ntorch>=2\n"))
    host.until_run(1, lambda run: run.exit_code is not None)
    said = json.loads(host.console(1).strip().splitlines()[-1])
    assert (said["tiny"], said["version"], said["command"]) == ("1.2", "1.2", "tiny 1.2"), said
    assert said["inner"][:2] == ["1.2", said["torch"]], said["problem"]
    assert said["prefix"] == said["inner"][2] == str(host.folder / "environments" / seen.folder)
    assert not said["mine"], "a run must not change what other runs import"
    assert not [name for name in said["env"] if name.startswith("UV_")], "how the machine reaches its index is the builder's business"


def test_the_same_lock_is_built_once_and_found_again_by_the_next_host(host, index):
    seen = built(host, "tiny==1.0\n")
    index.asked.clear()
    asked = wish("tiny ==1.0 # the same\n", lock=seen.lock)
    tell(host, asked)
    assert until_seen(host, asked.key, "ready").folder == seen.folder
    assert host.terminate() == 0
    host.start(environment=told_of(index))
    tell(host, asked)
    assert until_seen(host, asked.key, "ready", "failed").folder == seen.folder
    assert not index.asked


def test_a_lock_brings_the_same_versions_although_there_are_newer_ones(host, index):
    seen = built(host, "tiny\n")
    index.add("tiny", "2.0")
    tell(host, drop=(seen.folder,))
    until(lambda: not host.look().folders, what="nothing wants it, so it is dropped")
    asked = wish("tiny\n", lock=seen.lock)
    tell(host, asked)
    again = until_seen(host, asked.key, "ready", "failed")
    assert (again.state, again.folder) == ("ready", seen.folder), again.problem


def test_two_wishes_wait_for_one_download_each_and_nothing_that_is_half_built_counts(host, index):
    index.add("slow", "1.0")
    index.gate.clear()
    asked = wish("slow\n")
    tell(host, asked)
    tell(host, asked)
    until(lambda: any("/files/" in path for path in index.asked), what="it is being downloaded")
    assert len(builders(host)) == 1
    assert host.look().folders == ()
    os.kill(builders(host)[0], signal.SIGKILL)
    failed = until_seen(host, asked.key, "failed")
    assert "was killed" in failed.problem
    assert host.look().folders == ()
    until(lambda: not left_over(host), what="nothing is left of it")
    index.gate.set()
    tell(host, dataclasses.replace(asked, attempt=2))
    assert until_seen(host, asked.key, "ready").attempt == 2


@needs_groups
def test_a_build_and_all_that_it_starts_are_in_a_control_group_that_goes_with_it(host, index):
    index.add("grouped", "1.0")
    index.gate.clear()
    asked = wish("grouped\n")
    tell(host, asked)
    until(lambda: any("/files/" in path for path in index.asked), what="it is being downloaded")
    (builder,) = builders(host)
    started = processes.descendants({builder}, processes.table())
    assert started
    for pid in (builder, *started):
        assert all(group_of(pid, controller).name == f"build-{asked.key[:16]}" for controller in used())
    index.gate.set()
    assert until_seen(host, asked.key, "ready", "failed").state == "ready"
    until(lambda: not [group for base in host.groups() for group in base.glob("build-*")])


@needs_groups
def test_code_of_packages_cannot_take_more_memory_than_a_run(idle_host, index):
    index.add_source("greedy", "1.0", "found = len([b'x' * (8 << 20) for _ in range(100)])")
    idle_host.start(environment={"UV_INDEX_URL": index.url, "EDT_RUN_MEMORY": str(400 << 20)})
    asked = wish("greedy\n")
    tell(idle_host, asked)
    assert until_seen(idle_host, asked.key, "ready", "failed").state == "failed"
    assert idle_host.process.poll() is None


def test_the_end_of_a_run_ends_nobody_elses_build(host, index):
    index.add("waiting", "1.0")
    index.gate.clear()
    asked = wish("waiting\n")
    host.want(host.spec(1, "script", "quick.py", code={"quick.py": "print('done')\n"}))
    tell(host, asked)
    host.until_run(1, lambda run: run.exit_code is not None)
    host.wanted.clear()
    tell(host, asked)
    until(lambda: host.run(1) is None, what="nothing is left of the run")
    assert len(builders(host)) == 1
    index.gate.set()
    seen = until_seen(host, asked.key, "ready", "failed")
    assert seen.state == "ready", seen.problem


def test_a_build_that_nobody_wants_any_more_ends(host, index):
    index.add("unwanted", "1.0")
    index.gate.clear()
    asked = wish("unwanted\n")
    tell(host, asked)
    until(lambda: any("/files/" in path for path in index.asked), what="it is being downloaded")
    tell(host)
    until(lambda: not builders(host), what="its builder ends")
    until(lambda: not left_over(host), what="nothing is left of it")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("other\nno-such-thing\n", "requirements.txt line 2: no-such-thing is not in the package index"),
        ("tiny==9\n", "requirements.txt line 1: tiny==9 cannot be had in that version"),
        ("other\ntorch==1.13\n", "requirements.txt line 2 asks for torch==1.13, and scripts here run on torch"),
        ("wants-old\n", "requirements.txt line 1 (wants-old) does not fit the rest"),
    ],
)
def test_what_cannot_be_had_is_named_with_its_line(host, index, text, says):
    index.add("wants_old", "1.0", requires=("torch<2",))
    asked = wish(text)
    tell(host, asked)
    seen = until_seen(host, asked.key, "ready", "failed")
    assert seen.state == "failed"
    assert seen.problem.startswith(says), seen.problem


def test_an_environment_that_a_run_uses_is_not_deleted_and_others_stay_too(host, index):
    used, other, unused = built(host, "tiny\n"), built(host, "other\n"), built(host, "tiny==1.0\n")
    host.want(dataclasses.replace(host.spec(1, "obey"), environment=used.folder), 1)
    tell(host)
    host.until_holding(1, 1)
    tell(host, drop=(used.folder, unused.folder, "../../runs", "."))
    until(lambda: host.look().folders == tuple(sorted((used.folder, other.folder))), what="the one that is unused goes")
    assert host.run(1).holding == (1,)
    host.wanted.clear()
    tell(host)
    until(lambda: host.run(1) is None, what="the run has ended")
    tell(host, drop=(used.folder,))
    until(lambda: host.look().folders == (other.folder,), what="now it goes")


def test_code_of_packages_is_built_in_a_box_of_its_own(host, index):
    secret = host.home / "secret"
    secret.write_text("not for strangers")
    secret.chmod(0o600)
    store = str(host.folder / "environments")
    code = f"""found = [os.geteuid()]
    for path in ({str(secret)!r}, {store!r} + "/.building/uv/cache/poison", {store!r} + "/poison"):
        try:
            open(path, "r" if "secret" in path else "w").close()
            found.append(path)
        except OSError:
            pass"""
    index.add_source("homemade", "1.0", code)
    built(host, "tiny==1.0\n")
    seen = built(host, "homemade\n")
    (made,) = (host.folder / "environments" / seen.folder).glob("lib/python*/site-packages/homemade.py")
    uid, *reached = json.loads(made.read_text().split("=", 1)[1].replace("'", '"'))
    assert reached == []
    if os.geteuid() == 0:
        assert uid != 0
        assert made.stat().st_uid == 0
    assert not made.stat().st_mode & 0o022
    until(lambda: not left_over(host), what="nothing is left of the box")


@needs_box
@needs_a_way_out
def test_code_of_packages_reaches_its_index_and_nothing_private(idle_host):
    with another_machine() as outside, serving(outside["here"]) as index, greeting(socket.create_server(("0.0.0.0", 0))) as server:
        port = server.getsockname()[1]
        asked = [(outside["there"], 80), (outside["private"], 80), ("169.254.169.254", 80), ("127.0.0.1", port)]
        code = f"""import socket
    found = []
    for address in {asked!r}:
        try:
            socket.create_connection(address, timeout=10).close()
            found.append(address[0])
        except OSError:
            pass"""
        index.add("tiny", "1.0")
        index.add_source("curious", "1.0", code)
        idle_host.start(environment={**told_of(index), "EDT_RUN_NETWORK": "required"})
        seen = built(idle_host, "tiny\ncurious\n")
    (made,) = (idle_host.folder / "environments" / seen.folder).glob("lib/python*/site-packages/curious.py")
    assert made.read_text() == f"VALUE = [{outside['there']!r}]\n"


@needs_a_way_out
def test_an_index_on_the_loopback_is_reached_by_the_machines_network_unless_that_is_forbidden(idle_host, index):
    index.add_source("homemade", "1.0", "found = 1")
    idle_host.start(environment=told_of(index))
    built(idle_host, "homemade\n")
    idle_host.terminate()
    idle_host.start(environment={**told_of(index), "EDT_RUN_NETWORK": "required"})
    built(idle_host, "tiny==1.0\n")
    index.add_source("handmade", "1.0", "found = 1")
    seen = built_from(idle_host, "handmade\n")
    assert "not built from source here" in seen.problem
    assert "this machine's loopback" in seen.problem


def test_building_from_source_can_be_forbidden(idle_host, index):
    index.add_source("homemade", "1.0", "found = 1")
    idle_host.start(environment={"UV_INDEX_URL": index.url, "EDT_ENVIRONMENT_SOURCES": "false"})
    asked = wish("homemade\n")
    tell(idle_host, asked)
    seen = until_seen(idle_host, asked.key, "failed", "ready")
    assert "line 1" in seen.problem
    assert "not built from source here" in seen.problem


def test_what_needs_a_package_without_a_wheel_is_not_taken_in_an_older_version_for_that(host, index):
    index.add("wide", "1.0")
    index.add("wide", "2.0", requires=("homemade",))
    index.add_source("homemade", "1.0", "found = 1")
    seen = built(host, "wide\ntiny<1.2\n")
    assert "wide==2.0" in seen.lock and "homemade==1.0" in seen.lock
    index.add("deep", "1.0")
    index.add("deep", "2.0", requires=("broken",))
    index.add_source("broken", "1.0", "raise SystemExit('no compiler')")
    assert "deep==1.0" in built(host, "deep\n").lock, "what cannot be built is no reason to have nothing"


def test_what_cannot_be_newer_is_not_built_in_the_box_of_strangers_code(host, index):
    index.add("calm", "1.0")
    index.add("calm", "2.0", requires=("tiny>9",))
    seen = built(host, "calm\n")
    assert "calm==1.0" in seen.lock
    assert "the older version is taken" in seen.log


def test_a_build_has_a_limit_of_time_and_of_size(idle_host, index):
    index.add("large", "1.0", {"large.py": f"TEXT = {'x' * 3_000_000!r}\n"})
    idle_host.start(environment={"UV_INDEX_URL": index.url, "EDT_ENVIRONMENT_BUILD_S": "4", "EDT_ENVIRONMENT_BUILD_BYTES": "1000000"})
    index.gate.clear()
    asked = wish("tiny==1.0\n")
    tell(idle_host, asked)
    assert "was not built within 4 s" in until_seen(idle_host, asked.key, "failed", "ready").problem
    index.gate.set()
    asked = wish("large\n")
    tell(idle_host, asked)
    assert "larger than 1 MB" in until_seen(idle_host, asked.key, "failed", "ready").problem


def test_a_builder_that_ends_before_it_is_told_what_to_build_is_none_of_those_at_work(tmp_path, monkeypatch):
    def ended(_command, **given):
        process = popen(["/bin/true"], stdin=given["stdin"], stdout=given["stdout"])
        process.wait()
        return process

    popen = builds.subprocess.Popen
    monkeypatch.setattr(builds.subprocess, "Popen", ended)
    monkeypatch.setattr(builds.Environments, "_spec_of", lambda _self, wished: wished)
    environments = builds.Environments(Mock(folder=tmp_path), node=Mock(), abilities=Mock(), own={}, base="")
    wanted = [WantedEnvironment(str(number) * 40, "tiny\n") for number in range(builds.AT_ONCE + 1)]
    environments.apply(wanted, ())
    environments.go_on()
    assert [each.state for each in environments.seen()] == ["failed"] * len(wanted), "the last one has its turn, too"
    assert environments.groups() == {}


def test_what_the_machine_says_it_stands_on_is_what_is_built_on(host):
    facts = host.look().node
    assert facts.base == base.of_this_machine().key
    assert "torch" in facts.base_words
