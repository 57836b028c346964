"""What a script keeps outside of parameters and optimizer is state as well: it goes to newcomers and into checkpoints, and what refers to
the model goes on to do so."""

from __future__ import annotations

import pytest

from training_runtime.elastic.state import checkpoint

LEARNING = """
import copy, os, torch, numpy as np
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from fabric_model import FabricModel
from callbacks import Callback
torch.manual_seed(5)
g = torch.Generator().manual_seed(1)
x = torch.randn(202, 8, generator=g)
def data():
    return torch.utils.data.TensorDataset(x, x[:, 0].gt(0).long() + x[:, 1].gt(0).long()), None
class Annealed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.calls, self.tau = nn.Linear(16, 16), 0, 2.0
    def forward(self, h):
        self.calls += 1
        self.tau = max(0.5, 0.999 * self.tau)
        return self.layer(h) / self.tau
    def get_extra_state(self):
        return {"seen": self.seen} if hasattr(self, "seen") else {}
    def set_extra_state(self, state):
        self.__dict__.update(state)
class Centred(nn.Module):  # a loss that learns
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))
        self.scale = 1.0
    def forward(self, outputs, targets):
        loss = nn.functional.cross_entropy(outputs, targets)
        self.mean.mul_(0.9).add_(0.1 * loss.detach())
        return self.scale * (loss - self.mean) ** 2 + loss
class Shadow:  # as many scripts write it
    def __init__(self, module, decay):
        self.module, self.decay, self.updates = module, decay, 0
        self.shadow = {name: p.detach().clone() for name, p in module.named_parameters()}
    def update(self):
        self.updates += 1
        for name, p in self.module.named_parameters():
            self.shadow[name].lerp_(p.detach(), 1 - self.decay)
model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.1), Annealed(), nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda e: 0.5 * (1 + np.cos(np.pi * e / 40)))
ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))  # a global name, which a hook updates
optimizer.register_step_post_hook(lambda *_: ema.update_parameters(model))
def hooked():
    inner = Shadow(model, 0.99)  # in a closure alone
    optimizer.register_step_post_hook(lambda *_: inner.update())
    return lambda: inner.shadow
closed = hooked()
loss = Centred()
class Schedule(Callback):
    def __init__(self):
        self.groups, self.layers, self.weights = optimizer.param_groups, [model[0], model[3]], list(model.parameters())
        self.shadow = Shadow(model, 0.95)
        self.file, self.decay = open(os.devnull), lambda epoch: 0.9
    def on_train_begin(self):
        self.average = AveragedModel(self.model)
    def on_epoch_begin(self, epoch):
        scheduler.step()
        self.groups[0]["momentum"] *= self.decay(epoch)
        self.layers[0].bias.requires_grad_(epoch % 2 == 0)
        model[1].p = 0.02 * epoch
        model[2].seen = epoch
        loss.scale = 1.0 + epoch
        with torch.no_grad():
            self.weights[-1].mul_(0.99)
        if epoch == 2:
            self.best = copy.deepcopy(model)
    def on_epoch_end(self, epoch):
        self.average.update_parameters(self.model)
        self.shadow.update()
    def on_train_end(self):
        from training_runtime.elastic.state import digest
        state = {"average": self.average.state_dict(), "shadow": self.shadow.shadow, "best": self.best.state_dict(),
                 "global": ema.state_dict(), "closure": closed(), "mean": loss.mean}
        plain = [model[2].calls, model[2].tau, model[2].seen, self.shadow.updates, loss.scale, self.groups[0]["lr"], model[1].p]
        with open(os.environ["RESULT_DIR"] + f"/learnt-{os.getpid()}", "w") as file:
            file.write(str([{name: digest.of(value) for name, value in state.items()}, *plain]))
FabricModel(model, data, loss, optimizer, user_callback=[Schedule()]).train(8, 4, 5)
"""


def learnt(run) -> set[str]:
    return {path.read_text() for path in run.result_dir.glob("learnt-*")}


@pytest.fixture
def one(start):
    run = start(LEARNING, max_slots=5)
    run.members(0)
    assert run.wait() == 0, run.tail()
    assert len(learnt(run)) == 1
    return run


def test_what_callbacks_modules_loss_and_hooks_have_learnt_goes_to_newcomers_and_into_checkpoints(start, one):
    run = start(LEARNING, max_slots=5)
    run.members(0)
    for at, slots in ((12, (0, 1, 2)), (30, (1,)), (45, ()), (45, (3, 4))):
        run.until_step(at)
        run.members(*slots)
        if slots:
            run.until_workers(len(slots))
        else:
            run.until(lambda: run.events("suspended") and run.holding == (), what="suspended")
    assert run.wait() == 0, run.tail()
    assert [w.message for w in run.events("warning")] == []
    assert run.train_lines() == one.train_lines()
    assert run.weights() == one.weights()
    assert learnt(run) == learnt(one)
    assert run.events("digest") == one.events("digest")


# -- states on the disk

SMALL_RUN = ("--epochs", "18", "--samples", "115", "--checkpoint", "1")  # 8 steps an epoch


def change_a_byte(path, at: float) -> None:
    with open(path, "r+b") as file:
        place = int(path.stat().st_size * at)
        file.seek(place)
        old = file.read(1)
        file.seek(place)
        file.write(bytes([old[0] ^ 0xFF]))


def suspended(start, *args: str):
    from tests.engine.scripts import SMALL

    run = start(SMALL, *SMALL_RUN, *args)
    run.members(0)
    run.until_step(28)
    run.members()
    run.until(lambda: run.events("suspended") and run.holding == (), what="suspended")
    return run


@pytest.mark.parametrize(("at", "found"), [(0.2, "it is engine.damaged.pt now"), (0.999, "goes on from engine.previous.pt, the state")])
def test_a_damaged_state_is_not_used_but_the_one_before_it(start, fixed, at, found):
    run = suspended(start)
    change_a_byte(checkpoint.engine_path(run.result_dir), at)
    run.members(1, 2)
    assert run.wait() == 0, run.tail()
    one = fixed(*SMALL_RUN)
    assert (run.weights(), run.train_lines(), run.test_lines()) == (one.weights(), one.train_lines(), one.test_lines())
    assert "weights_only" not in run.tail()
    assert 0 < run.events("resumed")[-1].step <= run.events("suspended")[0].step  # the same where it was suspended at the end of an epoch
    told = "".join(w.message for w in run.events("warning"))
    assert told.startswith("checkpoint/engine.pt ")
    assert found in told


def test_where_no_state_is_whole_the_run_begins_anew_and_says_so(start, fixed):
    run = suspended(start)
    for path in (checkpoint.engine_path(run.result_dir), checkpoint.previous_path(run.result_dir)):
        path.write_bytes(path.read_bytes()[:-200])
    run.members(1)
    assert run.wait() == 0, run.tail()
    assert run.weights() == fixed(*SMALL_RUN).weights()
    assert run.events("resumed")[-1].step == 0
    told = "".join(w.message for w in run.events("warning"))
    assert "engine.pt ends too early, or is no checkpoint of this version; the run goes on from the start" in told
