"""The script's loggers hold up nobody, miss nothing, and cannot fill the journal with their errors."""

from __future__ import annotations

import json
import os
import signal

from tests.engine.harness import until_gone
from tests.engine.scripts import SMALL
from tests.engine.test_emergency_checkpoint import fork_server_of
from training_runtime.elastic.complaints import Complaints

LONG = ("--epochs", "12", "--samples", "115")  # 8 steps an epoch, 96 in all

HELD_LOGGER = """
import json, os, time
from emetrics import EMetrics
from training_runtime.elastic.driver import driver_logger
driver_logger.PAUSE_S = driver_logger.LEFT_S = 0.3
results = os.environ["RESULT_DIR"]
class Driver:
    def __init__(self):
        self.steps, self.tests = [], []
        self.metrics = EMetrics.open()
    def on_train_begin(self):
        print("logger begins")
    def log_train_metrics(self, metrics, iteration, epoch, workers):
        while os.path.exists(results + "/hold"):
            time.sleep(0.01)
        self.steps.append(iteration)
        self.metrics.record(EMetrics.TRAIN_GROUP, iteration, metrics)
    def log_test_metrics(self, metrics, iteration, epoch):
        self.tests.append((epoch, metrics["loss"]))
    def on_train_end(self):
        with open(results + "/heard.json", "w") as file:
            json.dump({"steps": self.steps, "tests": self.tests}, file)
"""
SCRIPT = HELD_LOGGER + SMALL.replace("optimizer).train", "optimizer, driver_logger=Driver()).train")


def heard(run) -> dict:
    return json.loads((run.result_dir / "heard.json").read_text())


def complete(run) -> None:
    """The logger has heard of every step and validation, once and in order."""
    steps = [e.step for e in run.events("train")]
    assert steps == list(range(1, len(steps) + 1))
    assert len(heard(run)["steps"]) == len(steps)
    assert heard(run)["steps"] == sorted(heard(run)["steps"])
    assert heard(run)["tests"] == [[e.epoch, e.metrics["loss"]] for e in run.events("test")]


def hold(run):
    run.result_dir.mkdir(exist_ok=True)
    file = run.result_dir / "hold"
    file.touch()
    return file


def test_a_logger_that_waits_holds_up_neither_steps_nor_a_change_of_slots(start):
    run = start(SCRIPT, *LONG)
    waits = hold(run)
    run.members(0, 1)
    run.until_step(10)
    run.members(0)
    run.until(lambda: run.holding == (0,), what="the slot is free")
    run.members(0, 2)
    run.until(lambda: any(len(g.members) == 2 for g in run.events("generation")[-1:]), what="a newcomer")
    run.until_step(96)
    run.until(lambda: not run.holding, what="all slots are free")
    assert not (run.result_dir / "heard.json").exists()
    waits.unlink()
    assert run.wait() == 0, run.tail()
    complete(run)


def test_a_logger_that_waits_does_not_keep_a_stopped_run_from_ending(start):
    run = start(SCRIPT, "--epochs", "100000")
    hold(run)
    run.members(0)
    run.until_step(5)
    run.stop()
    assert run.wait() == 0, run.tail()
    assert any("was not waited for" in w.message for w in run.events("warning"))


def test_a_fork_server_that_dies_while_the_logger_waits_is_started_anew(start, fixed):
    run = start(SCRIPT, *LONG)
    waits = hold(run)
    run.members(0, 1)
    run.until_step(20)
    os.kill(fork_server_of(run), signal.SIGKILL)
    run.until(lambda: run.events("resumed"), what="a new fork server")
    waits.unlink()
    assert run.wait() == 0, run.tail()
    complete(run)
    assert run.weights() == fixed(*LONG).weights()


def test_a_logger_after_a_drivers_death_hears_all_from_the_start_and_files_get_no_line_twice(start):
    run = start(SCRIPT, *LONG)
    run.members(0, 1)
    run.until_step(43)
    metrics = run.folder / "evaluation-metrics.txt"
    run.until(lambda: len(metrics.read_text().splitlines()) >= 40, what="the logger's file")
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    until_gone(run.pid)
    run.again()
    run.members(0)
    assert run.wait() == 0, run.tail()
    assert len(heard(run)["steps"]) == 96
    complete(run)
    written = [int(json.loads(line)["etimes"]["iteration"]["value"]) for line in metrics.read_text().splitlines()]
    assert len(written) == len(set(written))


BROKEN = """
class Broken:
    def log_train_metrics(self, metrics, iteration, epoch, workers):
        raise KeyError("telemetry")
"""


def test_loggers_that_raise_at_every_step_get_a_few_lines_and_their_number(start):
    loggers = "optimizer, driver_logger=Broken(), worker_logger_callback=Broken()).train"
    run = start(BROKEN + SMALL.replace("optimizer).train", loggers), *LONG)
    run.members(0)
    assert run.wait() == 0, run.tail()
    told = [w.message for w in run.events("warning")]
    for who in ("the driver's logger callback", "the worker's logger callback"):
        line = f"{who} raised KeyError: 'telemetry'"
        of_it = [message for message in told if message.startswith(line)]
        assert of_it == [line] * 3 + [f"{line} (10 times by now)", f"{line} (96 times in all)"]


def test_complaints_are_said_ever_more_rarely():
    complaints = Complaints()
    said = [n for n in range(1, 100_001) if complaints.add("no")]
    assert said == [1, 2, 3, 10, 100, 1000, 10_000, 100_000]
    assert complaints.rest() == ""
    complaints.add("still no")
    assert complaints.rest() == "still no (100001 times in all)"
    assert complaints.rest() == ""
