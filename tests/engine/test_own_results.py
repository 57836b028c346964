"""A script that is started again finds what its first start has written where its library wants nothing to be: that is the run's own."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.engine.gates import allow, noted
from tests.engine.harness import Run
from tests.engine.trainer_scripts import LIGHTNING, PACKAGES, TRANSFORMERS
from training_runtime.elastic.trainers import own_results
from training_runtime.protocol import UNCHANGED_CODE_NS

with_trainers = pytest.mark.skipif(not (PACKAGES / "jsonargparse").is_dir(), reason="trainers are not installed: make setup-test")
# LightningCLI with the model and the data of the other scripts.
COMMAND = (
    LIGHTNING.partition("lightning.seed_everything(7)")[0]
    + """
from lightning.pytorch.cli import LightningCLI

class Data(lightning.LightningDataModule):
    def train_dataloader(self):
        return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, targets), 8, shuffle=True)
    def val_dataloader(self):
        return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, targets), 80)

(RESULTS / "work").mkdir(exist_ok=True)
os.chdir(RESULTS / "work")  # as a host has it, whose working folders lie there
logger = {"loggers": True, "none": False}[os.environ["LOGGER"]]
defaults = {"max_epochs": 3, "logger": logger, "enable_progress_bar": False, "accelerator": "cpu", "enable_checkpointing": False}
cli = LightningCLI(Net, Data, seed_everything_default=7, trainer_defaults=defaults)
note(end=cli.trainer.global_step, weights=[p.double().sum().item() for p in cli.model.parameters()])
"""
)
# As the examples of Transformers' fourth release look for it.
ASKS = (
    TRANSFORMERS.replace(
        "arguments = TrainingArguments(",
        """
from dataclasses import dataclass

@dataclass
class OfTheFourth(TrainingArguments):
    overwrite_output_dir: bool = False

arguments = OfTheFourth(""",
    )
    .replace('"out"', "os.environ['OUT']")
    .replace(
        "trainer = Trainer(",
        """
if os.path.isdir(arguments.output_dir) and not arguments.overwrite_output_dir and os.listdir(arguments.output_dir):
    raise ValueError(f"Output directory ({arguments.output_dir}) already exists and is not empty. Use --overwrite_output_dir to overcome.")
os.makedirs(arguments.output_dir, exist_ok=True)
Path(arguments.output_dir, "started.json").write_text("{}")
trainer = Trainer(""",
    )
)


def displaced(run: Run, allowed: int) -> None:
    run.until(lambda: any(run.result_dir.glob(f"waits-{allowed + 1}-*")), what=f"step {allowed + 1}\n{run.tail()}")
    os.kill(run.pid, signal.SIGTERM)
    run.until((run.result_dir / f"told-{run.pid}").exists, what=f"it is told to end\n{run.tail()}")
    allow(run, 60)
    run.wait()
    run.again()
    run.members(0)


@with_trainers
@pytest.mark.timeout(300)
@pytest.mark.parametrize("logger", ["loggers", "none"])
def test_a_training_by_lightnings_command_goes_on_where_its_config_was_saved(start, logger) -> None:
    straight, run = (start(COMMAND, "fit", elastic=False, max_slots=1, env={"LOGGER": logger}) for _ in range(2))
    for each, steps in ((straight, 60), (run, 9)):
        allow(each, steps)
        each.members(0)
    displaced(run, 9)
    assert run.wait() == 0, run.tail()
    assert straight.wait() == 0, straight.tail()
    assert "This training goes on from" in run.log.read_text()
    assert noted(run, "end") == noted(straight, "end") == [60]
    assert noted(run, "weights") == noted(straight, "weights")


@with_trainers
@pytest.mark.timeout(300)
@pytest.mark.parametrize("logger", ["loggers", "none"])
def test_workers_of_lightnings_command_come_and_go(start, logger) -> None:
    """All of them ask whether the config may be saved, or none."""
    env = {"LOGGER": logger, "EDT_GROW_AFTER_S": "0", "EDT_WORKER_GRACE_S": "60"}
    run = start(COMMAND, "fit", torchrun="elastic", max_slots=2, env=env)
    allow(run, 9)
    run.members(0, 1)
    run.until(lambda: len(list(run.result_dir.glob("waits-10-*"))) == 2, what=f"both are in step 10\n{run.tail()}")
    run.members(0, reason="bob needs one")
    run.until(lambda: len(list(run.result_dir.glob("told-*"))) == 2, what=f"both are told\n{run.tail()}")
    allow(run, 60)
    assert run.wait() == 0, run.tail()
    assert len(run.events("generation")) == 2
    assert noted(run, "step") == [*range(1, 11), *range(11, 51)], "10 of 30 steps by two, then 40 of 60"


@with_trainers
@pytest.mark.timeout(300)
def test_lightnings_command_leaves_an_uploaded_config_alone(start) -> None:
    run = start(COMMAND, "fit", elastic=False, max_slots=1, env={"LOGGER": "none"})
    config = run.result_dir / "work" / "config.yaml"
    config.parent.mkdir()
    config.write_text("seed_everything: 7\n")
    os.utime(config, ns=(UNCHANGED_CODE_NS, UNCHANGED_CODE_NS))
    run.members(0)
    assert run.wait() == 1
    assert "SaveConfigCallback expected" in run.log.read_text()


@with_trainers
@pytest.mark.timeout(300)
def test_a_script_that_wants_an_empty_folder_for_its_output_goes_on_too(start, tmp_path) -> None:
    run = start(ASKS, elastic=False, max_slots=1, env={"OUT": "../result/out"})
    allow(run, 9)
    run.members(0)
    displaced(run, 9)
    assert run.wait() == 0, run.tail()
    assert noted(run, "end") == [60]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "of somebody").touch()
    other = start(ASKS, elastic=False, max_slots=1, env={"OUT": str(elsewhere)})
    other.members(0)
    assert other.wait() == 1
    assert "already exists and is not empty" in other.log.read_text()


def test_what_a_run_has_written_is_its_own_and_no_code_nor_anything_else(tmp_path: Path) -> None:
    environment = {"RESULT_DIR": str(tmp_path / "results")}
    out = tmp_path / "results" / "out"
    out.mkdir(parents=True)
    assert not own_results.are_own(out, environment), "an empty folder stops nobody"
    (out / "written").touch()
    assert own_results.are_own(out, environment)
    assert own_results.are_own(out / "written", environment)
    (out / "uploaded").touch()
    os.utime(out / "uploaded", ns=(UNCHANGED_CODE_NS, UNCHANGED_CODE_NS))
    assert not own_results.are_own(out, environment)
    assert not own_results.are_own(out / "uploaded", environment)
    assert not own_results.are_own(out / "nothing", environment)
    (tmp_path / "other").touch()
    assert not own_results.are_own(tmp_path / "other", environment)
    assert not own_results.are_own(out / "written", {})
