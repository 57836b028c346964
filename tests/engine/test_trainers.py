"""Scripts with Transformers' and Lightning's trainers, which say nothing of checkpoints: started again they go on where they were."""

from __future__ import annotations

import json
import os
import signal

import pytest

from tests.engine.gates import allow, noted
from tests.engine.harness import ROOT, Run

PACKAGES = ROOT / ".cache" / "trainers"
pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(not (PACKAGES / "transformers").is_dir(), reason="trainers are not installed: make setup-test"),
]
# Each step waits until it is allowed, and is written down by the first worker; a training of 60 steps of one worker.
BEGIN = f"""
import json, os, signal, sys, time
sys.path.append({str(PACKAGES)!r})
import torch
from pathlib import Path
RESULTS, RANK = Path(os.environ["RESULT_DIR"]), os.environ.get("RANK", "0")

def wait_for(step):
    while int((RESULTS / "allowed").read_text()) < step:
        (RESULTS / f"waits-{{step}}-{{os.getpid()}}").touch()
        time.sleep(0.005)
        if getattr(getattr(signal.getsignal(signal.SIGTERM), "__self__", None), "is_told", False):
            (RESULTS / f"told-{{os.getpid()}}").touch()

def note(**said):
    if RANK == "0":
        with open(RESULTS / "noted", "a") as file:
            print(json.dumps(said), file=file)

torch.manual_seed(7)
inputs = torch.randn(160, 8, generator=torch.Generator().manual_seed(1))
targets = (inputs.sum(1) > 0).long()
"""
TRANSFORMERS = (
    BEGIN
    + """
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments, set_seed

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return len(inputs)
    def __getitem__(self, index):
        return {"input_ids": (inputs[index] > 0).long(), "labels": targets[index]}

class Gate(TrainerCallback):
    def on_step_begin(self, args, state, control, **_):
        wait_for(state.global_step + 1)
    def on_step_end(self, args, state, control, **_):
        note(step=state.global_step, epoch=state.epoch, workers=args.world_size)
    def on_prediction_step(self, *_, **__):
        while (RESULTS / "held").exists():
            time.sleep(0.005)
    def on_evaluate(self, args, state, control, metrics, **_):
        note(evaluated=state.global_step)

MORE = json.loads(os.environ.get("MORE", "{}"))
set_seed(7)
sizes = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, max_position_embeddings=8, vocab_size=2)
model = BertForSequenceClassification(BertConfig(**sizes))
arguments = TrainingArguments("out", num_train_epochs=3, per_device_train_batch_size=8, learning_rate=1e-2, report_to=[], disable_tqdm=True,
                              **{"save_strategy": "no", "eval_strategy": "epoch", **MORE})
trainer = Trainer(model, arguments, train_dataset=Rows(), eval_dataset=Rows(), callbacks=[Gate()])
trainer.train()
note(end=trainer.state.global_step, weights=[p.double().sum().item() for p in trainer.model.parameters()])
"""
)
LIGHTNING = (
    BEGIN
    + """
import lightning
from torch import nn

class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 2))
    def training_step(self, batch, index):
        wait_for(self.trainer.global_step + 1)
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)
    def on_train_batch_end(self, *_):
        note(step=self.trainer.global_step, epoch=self.trainer.current_epoch, workers=self.trainer.world_size)
    def validation_step(self, batch, index):
        x, y = batch
        while (RESULTS / "held").exists() and index == HOLDS:
            time.sleep(0.005)
        self.log("val_loss", nn.functional.cross_entropy(self.net(x), y))
    def on_validation_epoch_end(self):
        if not self.trainer.sanity_checking:
            note(evaluated=self.trainer.global_step)
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), 1e-2)

from lightning.pytorch.callbacks import EarlyStopping
HOLDS = int(os.environ.get("HOLDS", -1))
lightning.seed_everything(7)
data = torch.utils.data.TensorDataset(inputs, targets)
loader = torch.utils.data.DataLoader(data, 8, shuffle=True)
trainer = lightning.Trainer(max_epochs=3, logger=False, enable_progress_bar=False, accelerator="cpu", enable_checkpointing=False,
                            num_sanity_val_steps=0, callbacks=[EarlyStopping("val_loss", patience=9)])
net = Net()
trainer.fit(net, loader, torch.utils.data.DataLoader(data, 80))
note(end=trainer.global_step, weights=[p.double().sum().item() for p in net.parameters()])
"""
)
SCRIPTS = {"transformers": TRANSFORMERS, "lightning": LIGHTNING}


def until_step(run: Run, step: int) -> None:
    run.until(lambda: noted(run, "step")[-1:] == [step], what=f"step {step}\n{run.tail()}")


def until_in_step(run: Run, step: int, workers: int = 1) -> None:
    """Not before it: who is told between two steps ends with the one that is done."""
    run.until(lambda: len(list(run.result_dir.glob(f"waits-{step}-*"))) == workers, what=f"{workers} are in step {step}\n{run.tail()}")


def until_told(run: Run, workers: int) -> None:
    run.until(lambda: len(list(run.result_dir.glob("told-*"))) == workers, what=f"{workers} are told to end\n{run.tail()}")


@pytest.fixture
def begin(start):
    def begin(script: str, steps: int, **options) -> Run:
        run = start(SCRIPTS.get(script, script), **options)
        allow(run, steps)
        return run

    return begin


def ended_by_sigterm(run: Run, allowed: int) -> int:
    until_in_step(run, allowed)
    os.kill(run.pid, signal.SIGTERM)
    until_told(run, 1)
    allow(run, allowed)
    return run.wait()


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_training_that_is_told_in_its_last_step_is_not_done_again(begin, name):
    script = (
        SCRIPTS[name].replace('"eval_strategy": "epoch"', '"eval_strategy": "no"').replace(", torch.utils.data.DataLoader(data, 80))", ")")
    )
    run = begin(script.replace('[EarlyStopping("val_loss", patience=9)]', "[]"), 59, elastic=False, max_slots=1)
    run.members(0)
    assert ended_by_sigterm(run, 60) == -signal.SIGTERM, run.tail()
    run.again()
    run.members(0)
    assert run.wait() == 0, run.tail()
    assert noted(run, "step") == list(range(1, 61))
    assert noted(run, "end") == [60]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_single_process_that_is_displaced_goes_on_to_the_same_weights(begin, name):
    straight = begin(name, 60, elastic=False, max_slots=1)
    straight.members(0)
    run = begin(name, 25, elastic=False, max_slots=1)
    run.members(0)
    assert ended_by_sigterm(run, 26) == -signal.SIGTERM, run.tail()
    assert noted(run, "step") == list(range(1, 27)), "it ends with the step that it was in"
    allow(run, 60)
    run.again()
    run.members(0)
    assert run.wait() == 0, run.tail()
    assert noted(run, "step") == list(range(1, 61)), "each step once"
    assert straight.wait() == 0, straight.tail()
    assert noted(run, "evaluated") == noted(straight, "evaluated")
    assert noted(run, "end") == [60]
    if name == "transformers":  # whose checkpoints have the generators and the place in the data
        assert noted(run, "weights") == noted(straight, "weights")


@pytest.mark.parametrize(
    ("name", "batch", "evaluated"),
    [("transformers", "", [21, 40, 60]), ("lightning", "0", [20, 40, 60]), ("lightning", "1", [20, 40, 60])],
    ids=["of Transformers, after the next step", "of Lightning in its first batch", "of Lightning in its last"],
)
def test_an_evaluation_that_is_interrupted_is_begun_again_and_what_is_best_by_it_is_kept(begin, name, batch, evaluated):
    best = {"save_strategy": "epoch", "load_best_model_at_end": True}
    run = begin(name, 60, elastic=False, max_slots=1, env={"MORE": json.dumps(best), "HOLDS": batch or "0"})
    (run.result_dir / "held").touch()
    run.members(0)
    until_step(run, 20)
    os.kill(run.pid, signal.SIGTERM)
    (run.result_dir / "held").unlink()
    assert run.wait() == -signal.SIGTERM, run.tail()
    assert not noted(run, "evaluated")
    run.again()
    run.members(0)
    assert run.wait() == 0, run.tail()
    assert noted(run, "step") == list(range(1, 61))
    assert noted(run, "evaluated") == evaluated
    if name == "transformers":
        assert {path.name for path in (run.code_dir / "out").iterdir()} == {f"checkpoint-{step}" for step in evaluated}


def test_a_process_that_is_killed_goes_on_from_what_the_script_saves(begin):
    run = begin("transformers", 31, elastic=False, max_slots=1, env={"MORE": json.dumps({"save_strategy": "steps", "save_steps": 7})})
    run.members(0)
    until_step(run, 31)
    run.kill(0)
    run.wait()
    (run.code_dir / "out" / "checkpoint-28" / "trainer_state.json").write_text("{}")
    allow(run, 60)
    run.again()
    run.members(0)
    assert run.wait() == 0, run.tail()
    assert noted(run, "step") == [*range(1, 32), *range(22, 61)], "from the last one that is as it was written"


def until_starts(run: Run, number: int) -> None:
    run.until(lambda: len(run.events("generation")) == number, what=f"{number} starts\n{run.tail()}")


def interrupted(run: Run, *slots: int, at: int, reason: str) -> None:
    """With other slots after the step `at`, which its workers were in when they were told to end, or the next, as several need."""
    until_step(run, at - 1)
    until_in_step(run, at, len(run.holding))
    starts = len(run.events("generation"))
    for path in run.result_dir.glob("told-*"):
        path.unlink()
    run.members(*slots, reason=reason)
    until_told(run, len(run.holding))
    allow(run, at + 1)
    until_starts(run, starts + 1)


def by_workers(run: Run) -> list[tuple[int, int, int]]:
    """(workers, the first step that they did, the last) of each start."""
    path, found = run.result_dir / "noted", list[tuple[int, int, int]]()
    for line in filter(lambda line: "step" in line, map(json.loads, path.read_text().splitlines())):
        workers, first, _ = found.pop() if found and found[-1][0] == line["workers"] else (line["workers"], line["step"], 0)
        found.append((workers, first, line["step"]))
    return found


@pytest.mark.parametrize(
    ("name", "at", "starts", "evaluated"),
    [
        ("transformers", (26, 24), [(1, 1, 26), (2, 14, 25), (1, 51, 60)], [20, 20, 60]),  # 26 steps of one worker are 13 of two
        (
            "lightning",
            (26, 35),
            [(1, 1, 26), (2, 27, 36), (1, 37, 50)],
            [20, 33, 50],
        ),  # 6 of 20 batches are 3 of 10, and 3 of 10 are 6 of 20
    ],
)
def test_workers_that_come_and_go_cost_no_step(begin, name, at, starts, evaluated):
    run = begin(name, at[0] - 1, torchrun="elastic", env={"EDT_GROW_AFTER_S": "0", "EDT_WORKER_GRACE_S": "60"})
    run.members(0)
    interrupted(run, 0, 1, at=at[0], reason="another is free")
    allow(run, at[1] - 1)
    interrupted(run, 1, at=at[1], reason="bob needs one")
    allow(run, 60)
    assert run.wait() == 0, run.tail()
    assert by_workers(run) == starts
    assert noted(run, "evaluated") == evaluated
    assert noted(run, "end") == [starts[-1][-1]]


def test_a_run_that_is_stopped_saves_what_it_has_and_says_that_it_was_stopped(begin):
    run = begin("transformers", 12, elastic=False, max_slots=1)
    run.members(0)
    until_in_step(run, 13)
    run.stop()
    until_told(run, 1)
    allow(run, 13)
    assert run.wait() == 0, run.tail()
    assert [event.outcome for event in run.events("finished")] == ["stopped"]
    assert not run.events("error")
    assert (run.result_dir / "checkpoint" / "transformers-1" / "checkpoint-13" / "trainer_state.json").is_file()


TWO = (
    TRANSFORMERS.partition("trainer = Trainer(")[0]
    + """
for fold in range(2):
    set_seed(fold)
    note(fold=fold)
    model = BertForSequenceClassification(BertConfig(**sizes))
    trainer = Trainer(model, arguments, train_dataset=Rows(), callbacks=[Gate()])
    trainer.train()
    note(end=trainer.state.global_step, weights=[p.double().sum().item() for p in trainer.model.parameters()])
"""
)


def test_trainings_of_one_script_that_save_under_the_same_names_are_told_apart(begin):
    env = {"MORE": json.dumps({"save_strategy": "epoch", "eval_strategy": "no"})}
    straight = begin(TWO, 60, elastic=False, max_slots=1, env=env)
    straight.members(0)
    assert straight.wait() == 0, straight.tail()
    run = begin(TWO, 60, elastic=False, max_slots=1, env=env)
    (run.result_dir / "allowed").unlink()
    allow(run, 60)
    run.members(0)
    run.until(lambda: len(noted(run, "step")) >= 70, what="the second is at work")
    run.kill(0)
    run.wait()
    run.again()
    run.members(0)
    assert run.wait() == 0, run.tail()
    assert noted(run, "weights")[-2:] == noted(straight, "weights")


FOLDS = (
    TRANSFORMERS.replace("num_train_epochs=3", "num_train_epochs=1").partition("trainer = Trainer(")[0]
    + """
for fold in range(3):
    if (RESULTS / f"fold-{fold}").exists():
        continue
    set_seed(fold)
    model = BertForSequenceClassification(BertConfig(**sizes))
    trainer = Trainer(model, arguments, train_dataset=Rows(), callbacks=[Gate()])
    trainer.train()
    note(fold=fold, weights=[p.double().sum().item() for p in trainer.model.parameters()])
    (RESULTS / f"fold-{fold}").touch()
"""
)


def test_a_script_that_leaves_out_the_folds_that_are_done_gets_the_rest(begin):
    env = {"MORE": json.dumps({"save_strategy": "epoch", "eval_strategy": "no"})}
    straight = begin(FOLDS, 60, elastic=False, max_slots=1, env=env)
    straight.members(0)
    assert straight.wait() == 0, straight.tail()
    run = begin(FOLDS, 60, elastic=False, max_slots=1, env=env)
    run.members(0)
    run.until(lambda: len(noted(run, "step")) >= 30, what="the second is at work")
    run.kill(0)
    run.wait()
    run.again()
    run.members(0)
    assert run.wait() == 0, run.tail()
    assert noted(run, "fold") == noted(straight, "fold") == [0, 1, 2]
    assert noted(run, "weights") == noted(straight, "weights")
