"""Scripts with Transformers' and Lightning's trainers, for tests of how they go on."""

from __future__ import annotations

from tests.engine.harness import ROOT

PACKAGES = ROOT / ".cache" / "trainers"
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
LOGS = (
    LIGHTNING.replace("logger=False", "logger=getattr(loggers, os.environ['LOGGER'])(RESULTS), log_every_n_steps=1")
    .replace("import EarlyStopping", "import EarlyStopping, LearningRateMonitor, ModelCheckpoint\nfrom lightning.pytorch import loggers")
    .replace("enable_checkpointing=False,", "")
    .replace("trainer = lightning.Trainer(", "best = ModelCheckpoint(monitor='val_loss')\ntrainer = lightning.Trainer(")
    .replace("patience=9)]", "patience=9), best, LearningRateMonitor()]")
    .replace("        x, y = batch\n", "        x, y = batch\n        self.log('train_loss', float(self.trainer.global_step))\n", 1)
    .replace('self.log("val_loss", nn.functional.cross_entropy(self.net(x), y))', 'self.log("val_loss", float(self.trainer.global_step))')
    .replace("note(end=", "note(best=os.path.relpath(best.best_model_path, RESULTS), score=float(best.best_model_score), end=")
)
RESUMES = TRANSFORMERS.replace('"out"', 'str(RESULTS / "out")').replace(
    "trainer.train()\n",
    """last = RESULTS / "out" / "checkpoint-20"
if last.exists():
    trainer.train(resume_from_checkpoint=str(last))
else:
    trainer.train()
""",
)
# Three epochs of 20 batches, in a kind of data each; steps are batches here.
BATCHES = (
    BEGIN
    + """
import lightning
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

KIND, MORE = os.environ["KIND"], json.loads(os.environ.get("MORE", "{}"))

class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 2))
    def training_step(self, batch, index):
        x, y, ids = batch
        done = RESULTS / f"ids-{RANK}"
        wait_for(sum(1 for _ in done.open()) + 1 if done.exists() else 1)
        with done.open("a") as file:
            print(json.dumps(ids.tolist()), file=file)
        return nn.functional.cross_entropy(self.net(x), y)
    def validation_step(self, batch, index):
        while (RESULTS / "held").exists():
            (RESULTS / "validates").touch()
            time.sleep(0.005)
        note(validated=float(torch.rand(())))
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), 1e-2)

class Stream(IterableDataset):
    def __iter__(self):
        for each in torch.randperm(160).tolist():
            yield inputs[each], targets[each], each

lightning.seed_everything(7)
data = TensorDataset(inputs, targets, torch.arange(160))
loader = {
    "shuffled": lambda: DataLoader(data, 8, shuffle=True),
    "in order": lambda: DataLoader(data, 8),
    "in other processes": lambda: DataLoader(data, 8, shuffle=True, num_workers=2, persistent_workers=True),
    "by a generator": lambda: DataLoader(data, 8, shuffle=True, generator=torch.Generator().manual_seed(3)),
    "without length": lambda: DataLoader(Stream(), 8),
}[KIND]()
net = Net()
trainer = lightning.Trainer(max_epochs=3, logger=False, enable_progress_bar=False, accelerator="cpu", enable_checkpointing=False, **MORE)
trainer.fit(net, loader, DataLoader(TensorDataset(inputs), 80))
note(end=trainer.global_step, weights=[p.double().sum().item() for p in net.parameters()])
"""
)
