"""What a script finds behind train(): all that has learnt, and not the model alone."""

from __future__ import annotations

import json

import pytest

SCRIPT = """
import json, os, sys
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from fabric_model import FabricModel

def data():
    x = torch.randn(96, 4, generator=torch.Generator().manual_seed(3))
    shown = torch.utils.data.TensorDataset(x, (x[:, 0] > 0).long())
    if HOLDS:
        keeps.shown = shown
    return shown, None

HOLDS = "--holds" in sys.argv

def sums(module):
    return sum(p.double().sum().item() for p in module.parameters())

model = nn.Linear(4, 2)
optimizer = torch.optim.Adam(model.parameters(), 0.01)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
optimizer.register_step_post_hook(lambda *_: average.update_parameters(model))
seen = []

class Keeps:
    best = None
    def on_epoch_end(self, epoch):
        schedule.step()
        seen.append(epoch)
        self.best = sums(model)

def found():
    count = sum(int(state["step"]) for state in optimizer.state_dict()["state"].values())
    return {"average": sums(average), "count": int(average.n_averaged), "rate": optimizer.param_groups[0]["lr"],
            "last": schedule.last_epoch, "seen": seen, "best": keeps.best, "steps": count}

class Tells(Keeps):
    def on_train_end(self):
        with open(os.environ["RESULT_DIR"] + "/worker.json", "w") as file:
            json.dump(found(), file)

keeps = Tells()
FabricModel(model, data, nn.functional.cross_entropy, optimizer, user_callback=[keeps]).train(3, 8, 4, **json.loads(sys.argv[1]))
assert keeps.best == sums(model)
with open(os.environ["RESULT_DIR"] + "/script.json", "w") as file:
    json.dump(found(), file)
"""


@pytest.mark.parametrize("slots", [(0,), (0, 1, 2)], ids=["one", "three"])
@pytest.mark.parametrize("said", [("{}",), ('{"checkpoint_freq": 0}',), ("{}", "--holds")], ids=["checkpoints", "none", "a held data set"])
def test_averages_optimizer_schedulers_and_callbacks_are_what_the_training_has_made_of_them(start, slots, said) -> None:
    run = start(SCRIPT, *said)
    run.members(*slots)
    assert run.wait() == 0, run.tail()
    assert not run.events("warning")
    worker, script = (json.loads((run.result_dir / f"{name}.json").read_text()) for name in ("worker", "script"))
    assert script == worker
    assert (script["count"], script["steps"], script["last"], script["seen"]) == (9, 18, 3, [0, 1, 2])


def test_who_cannot_be_put_back_costs_a_warning(start) -> None:
    own = "class Own(torch.optim.lr_scheduler.StepLR):\n    def load_state_dict(self, state):\n        raise LookupError('not mine')\n"
    run = start(SCRIPT.replace("schedule = torch.optim.lr_scheduler.StepLR(", f"{own}schedule = Own(").replace("assert ", "# "), "{}")
    run.members(0)
    assert run.wait() == 0, run.tail()
    (warning,) = run.events("warning")
    assert "beside the model" in warning.message and "not mine" in warning.message
