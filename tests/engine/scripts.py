"""User scripts that the engine tests run."""

SMALL = '''
"""A small net with all that makes exactness hard: batch-norm, dropout, augmentation, a last step that is not full."""
import argparse
import random
import torch
from torch import nn
from fabric_model import FabricModel

parser = argparse.ArgumentParser()
parser.add_argument("--optimizer", default="Adam")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--samples", type=int, default=331)
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--engines", type=int, default=4)
parser.add_argument("--checkpoint", type=int, default=1)
parser.add_argument("--sharded", choices=["off", "optimizer", "parameters"], default="off")
parser.add_argument("--dtype", default="float32")
args = parser.parse_args()
dtype = getattr(torch, args.dtype)

class Noisy(torch.utils.data.Dataset):
    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        self.x = torch.randn(count, 1, 8, 8, generator=g)
        self.y = (self.x.mean((1, 2, 3)) > 0).long()
    def __len__(self):
        return len(self.y)
    def __getitem__(self, i):
        x = self.x[i].roll(random.randrange(3), -1) + 0.1 * torch.randn(1, 8, 8)
        return x.to(dtype), self.y[i]

def data():
    return Noisy(args.samples, 1), Noisy(61, 2)

model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(288, 2)).to(dtype)
optimizer = {
    "Adam": lambda p: torch.optim.Adam(p, 1e-2),
    "SGD": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, weight_decay=1e-3),
    "Adadelta": lambda p: torch.optim.Adadelta(p),
    "Nesterov": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, nesterov=True, foreach=True),
    "Clipped": lambda p: torch.optim.AdamW(p, 1e-2),
}[args.optimizer](model.parameters())
if args.optimizer == "Clipped":
    def clip(*_):
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.register_step_pre_hook(clip)
FabricModel(model, data, nn.functional.cross_entropy, optimizer).train(
    args.epochs, args.batch, args.engines, checkpoint_freq=args.checkpoint,
    shard_optimizer=args.sharded == "optimizer", shard_parameters=args.sharded == "parameters",
)
'''

LONG = ("--epochs", "24", "--samples", "115")  # of SMALL: 8 steps an epoch

# SMALL, but an epoch lasts as long as there is a file `stay-EPOCH` in the results; who runs the script leaves a line in `ran`, and each
# worker that can be taken in one in `ready`.
_TRAIN = "FabricModel(model, data, nn.functional.cross_entropy, optimizer)"
HELD = """
import os, time
folder = os.environ["RESULT_DIR"]
open(folder + "/ran", "a").write(f"{os.getpid()}\\n")
class Stay:
    def on_epoch_begin(self, epoch):
        while os.path.exists(folder + f"/stay-{epoch}"):
            time.sleep(0.005)
from training_runtime.elastic.worker.lifecycle import Lifecycle as _Lifecycle
def _noted(begin):
    def noted(self):
        begin(self)
        open(folder + "/ready", "a").write(f"{os.getpid()}\\n")
    return noted
_Lifecycle._begin = _noted(_Lifecycle._begin)
""" + SMALL.replace(_TRAIN, _TRAIN[:-1] + ", user_callbacks=[Stay()])")

# In the shape of torchelastic's examples: it knows nothing of the studio, and loads what it saved. It goes as far as the test lets it.
TORCHELASTIC = """
import argparse, json, os, select
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torchelastic.utils.data import ElasticDistributedSampler
from emetrics import EMetrics


class Numbers(Dataset):
    def __len__(self):
        return 480

    def __getitem__(self, index):
        return torch.full((4,), index / 480.0), index


class State:
    def __init__(self, model):
        self.model, self.shown, self.steps = model, [], 0

    def load_checkpoint(self, path):
        if os.path.exists(path):
            kept = torch.load(path)
            self.shown, self.steps = kept["shown"], kept["steps"]
            self.model.load_state_dict(kept["model"])

    def save_checkpoint(self, path):
        torch.save({"shown": self.shown, "steps": self.steps, "model": self.model.state_dict()}, path + ".new")
        os.replace(path + ".new", path)
        with open(path + ".count", "w") as file:
            file.write(str(len(self.shown)))


def allowed(folder):
    try:
        with open(os.path.join(folder, "allowed")) as file:
            return int(file.read() or 0)
    except OSError:
        return 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=4)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    assert (rank, size) == (int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"]))
    folder = os.environ["RESULT_DIR"]
    path = os.path.join(folder, "checkpoint.pt")
    torch.manual_seed(0)
    state = State(DistributedDataParallel(nn.Linear(4, 1)))
    state.load_checkpoint(path)
    optimizer = torch.optim.SGD(state.model.parameters(), lr=0.01)
    data = Numbers()
    sampler = ElasticDistributedSampler(data, start_index=len(state.shown))
    metrics = EMetrics.open()
    for inputs, indices in DataLoader(data, batch_size=args.batch_size, sampler=sampler):
        while rank == 0 and len(state.shown) >= allowed(folder):
            select.select([], [], [], 0.01)
        optimizer.zero_grad()
        loss = state.model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        every = [None] * size
        dist.all_gather_object(every, indices.tolist())
        state.shown += sum(every, [])
        state.steps += 1
        metrics.record("train", state.steps, {"rank": rank, "loss": loss.item()})
        if rank == 0:
            state.save_checkpoint(path)
        dist.barrier()
    metrics.close()
    if rank == 0:
        torch.save(state.model.module.state_dict(), os.path.join(folder, "final.pt"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""

# A step of the script's own: two models and two optimizers, an average, a scheduler, a dict that the learning rate depends on, gradients
# that are clipped, several backward passes, noise. Its end writes what it has then.
LOOP = """
import argparse, hashlib, math, os, random
import torch
from torch import nn
import edt

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--samples", type=int, default=115)
parser.add_argument("--parts", type=int, default=4)
parser.add_argument("--checkpoint", type=int, default=1)
parser.add_argument("--dtype", default="float32")
args = parser.parse_args()
dtype = getattr(torch, args.dtype)

class Noisy(torch.utils.data.Dataset):
    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        self.x = torch.randn(count, 1, 8, 8, generator=g)
        self.y = (self.x.mean((1, 2, 3)) > 0).long()
    def __len__(self):
        return len(self.y)
    def __getitem__(self, i):
        return (self.x[i].roll(random.randrange(3), -1) + 0.1 * torch.randn(1, 8, 8)).to(dtype), self.y[i]

def accuracy(outputs, targets):
    return (outputs.argmax(1) == targets).double().mean()

def evaluate(batch):
    outputs = head(body(batch.x))
    return {"loss": nn.functional.cross_entropy(outputs, batch.y), "accuracy": accuracy(outputs, batch.y)}

def main():
    ema = torch.optim.swa_utils.AveragedModel(body, use_buffers=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(slow, 30)
    figures, worst = {"steps": 0, "losses": []}, torch.zeros(())
    data = Noisy(args.samples, 1)
    for step in edt.elastic([body, head], [slow, fast], data, batch_size=4 * args.parts, parts=args.parts, epochs=args.epochs,
                            state={"figures": figures, "worst": worst}, metrics=["accuracy"], test_set=Noisy(21, 2), evaluate=evaluate,
                            checkpoint_freq=args.checkpoint):
        fast.zero_grad()
        for x, y in step:
            outputs = head(body(x))
            step.backward(nn.functional.cross_entropy(outputs, y), retain_graph=True)
            head.zero_grad()  # it does not harm: the gradients are kept
            step.backward(0.01 * outputs.square().mean(), inputs=list(head.parameters()))
            step.measure(accuracy=accuracy(outputs, y))
        norm = nn.utils.clip_grad_norm_([*body.parameters(), *head.parameters()], 0.5)
        step.update(slow)
        step.update(*([fast] if step.number % 3 else []))
        scheduler.step()
        figures["steps"] += 1
        figures["losses"] = [*figures["losses"][-3:], step.mean_loss + step.evaluated.get("loss", 0.0)]
        torch.maximum(worst, norm, out=worst)
        fast.param_groups[0]["lr"] = 0.01 / (1 + sum(figures["losses"]) + 0.1 * float(worst))
        with torch.no_grad():
            body[0].bias.add_(torch.randn(8), alpha=1e-3 * random.random())
        if step.is_last_of_epoch:
            ema.update_parameters(body)
        edt.log(norm=float(norm), steps=figures["steps"])
    learnt = [*body.state_dict().values(), *ema.state_dict().values(), worst]
    digest = hashlib.sha256(b"".join(t.double().numpy().tobytes() for t in learnt)).hexdigest()
    with open(os.environ["RESULT_DIR"] + "/after", "a") as file:
        file.write(f"{digest} {figures} {scheduler.get_last_lr()}\\n")

torch.manual_seed(3)
body = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.2), nn.Flatten()).to(dtype)
head = nn.Linear(288, 2).to(dtype)
slow = torch.optim.SGD(body.parameters(), 0.05, momentum=0.9)
fast = torch.optim.Adam(head.parameters(), 1e-2)
main()
"""
