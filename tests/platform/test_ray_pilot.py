"""The script of a pilot in a job of Ray, with a shell in the place of `edt-node`: what reaches that, and how all of it ends."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from experiments.cluster import ray
from experiments.cluster.providers import Order
from tests.e2e.slurm import kill_all_of
from tests.e2e.studio import wait_until

NODE = """#!/bin/sh
home=$5
mkdir -p "$home"
read -r token
printf '%s\\n' "$token" > {seen}/token
tr '\\0' ' ' < /proc/$$/cmdline > {seen}/cmdline
env > {seen}/env
setsid sh -c "trap 'echo run >> {seen}/signals' TERM; : > {seen}/begun; while :; do sleep 0.1; done" "$home/run" &
trap 'echo node >> {seen}/signals; {then}' TERM
while :; do sleep 0.1; done
"""
Begins = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def seen(tmp_path: Path) -> Path:
    (tmp_path / "seen").mkdir()
    (tmp_path / "pilots").mkdir()
    return tmp_path / "seen"


@pytest.fixture
def begins(tmp_path: Path, seen: Path, settings: Any) -> Iterator[Begins]:
    """`begins(...)`: the job as Ray starts it. `then`: what its node does when it is told to end."""
    jobs: list[subprocess.Popen[bytes]] = []

    def begin(*, then: str = "exit 0", notice_s: int = 30, lasts_s: int = 600) -> subprocess.Popen[bytes]:
        node = tmp_path / "node"
        node.write_text(NODE.format(seen=seen, then=then))
        node.chmod(0o755)
        settings.EDT_PILOT_FOLDER, settings.EDT_PILOT_COMMAND = str(tmp_path / "pilots"), f"umask 022; {node}"
        order = Order("edt-1-a-1", "a-1", "https://studio.example.org", "edtn_s3cret", lasts_s // 60, notice_s, 2, [])
        with zipfile.ZipFile(io.BytesIO(ray.packed(order))) as package:
            package.extractall(tmp_path / "job")
        with open(tmp_path / "job" / "order", "a") as told:
            told.write(f"lasts_s={lasts_s}\n")
        rays = {"RAY_AUTH_TOKEN": "r4y", "PYTHONPATH": "/ray", "OMP_NUM_THREADS": "7", "CUDA_VISIBLE_DEVICES": ""}
        with open(tmp_path / "log", "wb") as log:
            jobs.append(
                subprocess.Popen(
                    ray.ENTRYPOINT,
                    shell=True,
                    cwd=tmp_path / "job",
                    env={**os.environ, **rays},
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )
        wait_until((seen / "begun").exists, lambda: f"the pilot begins\n{(tmp_path / 'log').read_text()}", deadline_s=30)
        return jobs[-1]

    yield begin
    kill_all_of(tmp_path)
    for job in jobs:
        job.wait(10)


def is_all_gone(tmp_path: Path) -> bool:
    commands = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    return not list((tmp_path / "pilots").iterdir()) and not any(str(tmp_path) in word for words in commands for word in words)


def stop(job: subprocess.Popen[bytes]) -> None:
    """As `ray job stop` does: SIGTERM to the job and to all of its descendants."""
    process = psutil.Process(job.pid)
    for each in [process, *process.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.send_signal(signal.SIGTERM)


def test_the_token_reaches_the_node_by_standard_input_and_nothing_of_rays_environment_does(
    begins: Begins, seen: Path, tmp_path: Path
) -> None:
    job = begins()
    assert (seen / "token").read_text() == "edtn_s3cret\n"
    assert "s3cret" not in (seen / "cmdline").read_text() + (seen / "env").read_text()
    assert "https://studio.example.org --token - --home " in (seen / "cmdline").read_text()
    names = {line.partition("=")[0] for line in (seen / "env").read_text().splitlines()}
    assert not names & {"RAY_AUTH_TOKEN", "PYTHONPATH", "OMP_NUM_THREADS"}
    assert "CUDA_VISIBLE_DEVICES" in names, "without a GPU it is empty, and that says so"
    assert not (tmp_path / "job" / "token").exists()
    assert b"s3cret" not in b"".join(path.read_bytes() for path in (tmp_path / "job").iterdir())
    stop(job)


def test_a_stop_is_notice_to_the_node_and_reaches_no_run(begins: Begins, seen: Path, tmp_path: Path) -> None:
    job = begins(then="exit 0")
    stop(job)
    assert job.wait(30) == 0
    assert (seen / "signals").read_text() == "node\n"
    assert is_all_gone(tmp_path), "also runs that it has left"


def test_the_job_ends_as_its_node_does(begins: Begins) -> None:
    job = begins(then="exit 3")
    stop(job)
    assert job.wait(30) == 3


def test_a_job_that_is_killed_is_notice_too(begins: Begins, seen: Path, tmp_path: Path) -> None:
    job = begins()
    os.killpg(job.pid, signal.SIGKILL)
    wait_until(lambda: is_all_gone(tmp_path), "its machine ends", deadline_s=30)
    assert (seen / "signals").read_text() == "node\n"


def test_what_does_not_end_in_time_is_ended(begins: Begins, seen: Path, tmp_path: Path) -> None:
    job = begins(then=":", notice_s=1)
    stop(job)
    assert job.wait(30) == 128 + signal.SIGKILL
    assert (seen / "signals").read_text() == "node\n"
    assert is_all_gone(tmp_path)


def test_its_time_is_over_although_nobody_stops_it(begins: Begins, seen: Path, tmp_path: Path) -> None:
    job = begins(notice_s=2, lasts_s=4)
    assert job.wait(30) == 0
    assert (seen / "signals").read_text() == "node\n"
    assert is_all_gone(tmp_path)


def test_a_guard_that_is_killed_leaves_nothing(begins: Begins, tmp_path: Path) -> None:
    job = begins()
    os.kill(int((tmp_path / "job" / "guard").read_text()), signal.SIGKILL)
    assert job.wait(30) == 1
    assert is_all_gone(tmp_path)
    assert "guard was killed" in (tmp_path / "log").read_text()


def test_the_end_of_what_the_job_waits_with_ends_nothing(begins: Begins, seen: Path) -> None:
    job = begins()
    ended = 0
    while ended < 50:  # whatever the job's shell has begun at such a moment
        for child in psutil.Process(job.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # it has ended by itself
                child.send_signal(signal.SIGTERM)
                ended += 1
    assert job.poll() is None
    assert not (seen / "signals").exists()
    stop(job)
    assert job.wait(30) == 0


def test_without_a_token_it_does_not_begin(begins: Begins, tmp_path: Path, seen: Path) -> None:
    stop(begins())
    (seen / "begun").unlink()
    again = subprocess.run(ray.ENTRYPOINT, shell=True, cwd=tmp_path / "job", capture_output=True, timeout=30)
    assert again.returncode == 1
    assert not (seen / "begun").exists()
