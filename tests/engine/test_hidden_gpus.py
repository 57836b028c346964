"""A script that says `device = "cuda" if torch.cuda.is_available() else "cpu"`, on a machine that has GPUs by what its kernel says.

There is none here, so the workers of whole runs are on slots of a processor, and what goes to a GPU goes to torch's device "meta".
"""

from __future__ import annotations

import copy
import io

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.engine.test_user_code import finish
from training_runtime.elastic.driver import advice
from training_runtime.elastic.processes import hidden_gpus

PRETENDED = """
import torch
from training_runtime.elastic.processes import hidden_gpus
hidden_gpus.processor.gpus = lambda: ("NVIDIA H200",)
torch.backends.cuda.is_built = lambda: True
hidden_gpus.begin()
"""
SETTING = """
import os
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

torch.manual_seed(1)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
print("chose", device, flush=True)

class Noisy(Dataset):
    def __init__(self, x, y):
        self.x, self.y = x.to(device), y.to(device)
    def __len__(self):
        return len(self.x)
    def __getitem__(self, at):
        return self.x[at] + 0.1 * torch.randn(4, device=device), self.y[at]

x = torch.randn(96, 4)
y = (x[:, 0] > 0).long()
train = Noisy(x[:64], y[:64])
weights = torch.tensor([0.4, 0.6]).to(device)
model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2, device=device)).to(device)
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
"""
AFTER = """
model.eval()
with torch.no_grad():
    for a, _ in DataLoader(train, batch_size=8, pin_memory=device.type == "cuda"):
        assert model(a.to(device)).isfinite().all()
torch.save(model.state_dict(), os.environ["RESULT_DIR"] + "/own.pt")
model.load_state_dict(torch.load(os.environ["RESULT_DIR"] + "/own.pt", map_location=device))
"""
FABRIC = """
from callbacks import Callback
from fabric_model import FabricModel

class Watch(Callback):
    def on_epoch_end(self, epoch, save_model):
        with torch.no_grad():
            self.model(torch.ones(4, 4).to(device))

def data():
    return train, TensorDataset(x[64:].to(device), y[64:].to(device))

def loss(outputs, targets):
    return F.cross_entropy(outputs, targets.to(device), weight=weights)

FabricModel(model, data, loss, optimizer, user_callback=[Watch()]).train(3, 8, 2)
"""
LOOP = """
import edt
fixed = torch.randn(4, 4, device=device)

def main():
    scale = torch.ones(2, device=device)
    for step in edt.elastic(model, optimizer, train, batch_size=16, parts=2, epochs=3):
        for batch in step:
            a, b = batch.x.to(device), batch.y.to(device)
            step.backward(F.cross_entropy(model(a) * scale + fixed.mean() * 0, b, weight=weights))
        step.update()

main()
"""


@pytest.mark.parametrize("training", [FABRIC, LOOP], ids=["FabricModel", "a loop"])
def test_a_script_that_is_written_for_both_trains_the_same_where_gpus_are_hidden(start, training):
    one = finish(start, SETTING + training + AFTER)
    other = finish(start, PRETENDED + SETTING + training + AFTER)
    assert "chose cpu\n" in one.log.read_text()
    assert "chose cuda\n" in other.log.read_text()
    assert not [each.message for each in other.events("warned")], "and its workers are forked"
    assert other.weights() == one.weights()
    assert other.train_lines() == one.train_lines()


@pytest.fixture
def hidden(monkeypatch):
    """The tensors that the script believes on a GPU."""
    monkeypatch.setattr(hidden_gpus.processor, "gpus", lambda: ("NVIDIA H200",))
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    hidden_gpus.begin()
    mode = hidden_gpus._mode
    yield mode.placed
    hidden_gpus._take_out(mode)
    hidden_gpus.reveal(torch.device("meta"))
    hidden_gpus._mode = None
    assert not hidden_gpus.are_hidden()
    assert not torch.cuda.is_available()


def is_placed(*tensors: torch.Tensor) -> bool:
    (answer,) = {id(t) in hidden_gpus._mode.placed for t in tensors}
    return answer


def test_where_there_is_none_nothing_is_hidden(monkeypatch):
    monkeypatch.setattr(hidden_gpus.processor, "gpus", lambda: ())
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    hidden_gpus.begin()
    assert not hidden_gpus.are_hidden()
    assert not torch.cuda.is_available()


@pytest.mark.usefixtures("hidden")
def test_what_scripts_ask_of_gpus_is_answered_without_touching_cuda():
    assert torch.cuda.is_available()
    assert torch.cuda.device_count() == 1
    assert torch.cuda.current_device() == torch.accelerator.current_device_index() == 0
    assert torch.cuda.get_device_name() == "NVIDIA H200"
    assert torch.amp.GradScaler("cuda").is_enabled(), "or it would be off for good, in the workers too"
    torch.cuda.set_device(0)
    torch.cuda.manual_seed_all(3)
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.memory_allocated() == 0
    with torch.random.fork_rng(), torch.autocast("cuda", dtype=torch.float16):
        torch.randn(2)
    assert not torch.cuda.is_initialized()


@pytest.mark.usefixtures("hidden")
def test_what_cannot_be_answered_says_where_to_ask():
    with pytest.raises(RuntimeError, match="cannot tell this of the one that its workers see"):
        torch.cuda.get_device_capability()
    with pytest.raises((RuntimeError, AssertionError)) as caught:
        torch.cuda.mem_get_info()
    assert "in a callback or in the loop" in advice.after(caught.value)


WAYS = {
    "to": lambda t: t.to("cuda"),
    "to a torch.device": lambda t: t.to(torch.device("cuda", 0), non_blocking=True),
    "to by name": lambda t: t.to(device="cuda:0", dtype=torch.float64),
    "to a number": lambda t: t.to(0),
    "cuda": lambda t: t.cuda(),
    "as another": lambda t: t.to(torch.zeros(1, device="cuda")),
    "made there": lambda t: torch.zeros(4, device="cuda"),
    "made of it": lambda t: torch.tensor([1.0, 2.0], device=torch.device("cuda")),
    "made like it": lambda t: torch.ones_like(t, device="cuda"),
    "computed": lambda t: torch.cat([t.cuda(), t.cuda()]).sum(0, keepdim=True),
    "a part": lambda t: t.cuda()[1:],
    "as a double": lambda t: t.cuda().double(),
    "in two": lambda t: torch.split(t.cuda(), 2)[1],
    "copied": lambda t: copy.deepcopy(t.cuda()),
}


@pytest.mark.usefixtures("hidden")
@pytest.mark.parametrize("way", WAYS)
def test_what_is_put_on_a_gpu_is_known_as_that_and_nothing_else_is(way):
    here = torch.randn(4)
    there = WAYS[way](here)
    assert is_placed(there)
    assert there.device.type == "cpu"
    assert not is_placed(here, there.cpu(), there.to("cpu"), here.to(torch.float64), here.copy_(there.mean()))
    assert there.to("cuda") is there
    back = there.to(device="cpu")
    back.zero_()
    assert back is not there, "on a GPU it would be a copy"


@pytest.mark.usefixtures("hidden")
def test_modules_go_there_and_defaults_mean_it():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    model.to(torch.device("cuda"))
    assert is_placed(*model.parameters(), *model.buffers())
    model.cpu()
    assert not is_placed(*model.parameters(), *model.buffers())
    with torch.device("cuda"):
        assert is_placed(torch.ones(2))
    torch.set_default_device("cuda")
    try:
        assert is_placed(torch.arange(3))
        assert not is_placed(torch.arange(3, device="cpu"))
    finally:
        torch.set_default_device(None)
    assert not is_placed(torch.ones(2))


@pytest.mark.usefixtures("hidden")
def test_what_was_saved_on_a_gpu_is_loaded():
    file = io.BytesIO()
    torch.save({"w": torch.arange(3.0)}, file)
    for where in ("cuda", torch.device("cuda:0")):
        assert torch.load(io.BytesIO(file.getvalue()), map_location=where)["w"].tolist() == [0, 1, 2]


@pytest.mark.usefixtures("hidden")
@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_that_pins_memory_gives_batches(monkeypatch, workers):
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda *_, **__: torch.device("cuda"))  # as a build with CUDA says
    loader = DataLoader(TensorDataset(torch.arange(4.0)), batch_size=2, num_workers=workers, pin_memory=True)
    assert iter(loader)._pin_memory
    assert [batch.cuda().tolist() for (batch,) in loader] == [[0, 1], [2, 3]]


@pytest.mark.usefixtures("hidden")
@pytest.mark.parametrize(
    "way",
    [lambda m, x: torch.jit.trace(m, x)(x), lambda m, x: torch.compile(m, backend="aot_eager")(x), lambda m, x: torch.func.vmap(m)(x)],
    ids=["traced", "compiled", "mapped"],
)
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_what_else_torch_does_with_a_model_it_does_as_before(way):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x):
            return self.layer(x.to("cuda")) + torch.zeros(3, device="cuda")

    model, x = Net().cuda().eval(), torch.randn(2, 3)
    assert torch.allclose(way(model, x), model(x))


@pytest.mark.usefixtures("hidden")
def test_what_goes_to_a_workers_gpu_is_what_was_put_there_and_samples_are_not_made_of():
    there, here, sample, picked = torch.ones(4, device="cuda"), torch.ones(4), torch.ones(8, 2).cuda(), torch.ones(3).cuda()
    part, model = there[2:], nn.Linear(2, 2).cuda()
    data = torch.utils.data.Subset(TensorDataset(sample), [0, 1])
    hidden_gpus.keep_here((data, None, None, lambda samples, at=picked: samples))
    assert is_placed(there, part, *model.parameters())
    assert not is_placed(here, sample, picked)


def test_views_of_one_memory_are_that_on_a_gpu_too():
    whole, storages = torch.arange(12.0), {}
    views = whole, whole[2:8].view(2, 3), whole.view(3, 4).T
    gone = [hidden_gpus.moved(t, torch.device("meta"), storages) for t in views]
    assert {t.device.type for t in gone} == {"meta"}
    assert len({t.untyped_storage()._cdata for t in gone}) == 1
    for before, after in zip(views, gone, strict=True):
        assert (before.shape, before.stride(), before.storage_offset()) == (after.shape, after.stride(), after.storage_offset())


@pytest.mark.usefixtures("hidden")
def test_in_a_worker_torch_answers_for_itself():
    hidden_gpus.reveal(torch.device("meta"))
    assert not torch.cuda.is_available()
    assert torch.cuda.device_count() == 0


@pytest.mark.usefixtures("hidden")
def test_samples_are_made_on_the_processor_in_a_worker_too():
    hidden_gpus.reveal(torch.device("meta"))
    with hidden_gpus.on_processor():
        assert torch.ones(3, device="cuda").to("cuda").device.type == "cpu"


@pytest.mark.usefixtures("hidden")
def test_what_the_engine_makes_is_not_the_scripts():
    there = torch.ones(2, device="cuda")
    with hidden_gpus.aside():
        assert not is_placed(there * 2)
    assert is_placed(there * 2)
