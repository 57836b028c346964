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
args = parser.parse_args()

class Noisy(torch.utils.data.Dataset):
    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        self.x = torch.randn(count, 1, 8, 8, generator=g)
        self.y = (self.x.mean((1, 2, 3)) > 0).long()
    def __len__(self):
        return len(self.y)
    def __getitem__(self, i):
        x = self.x[i].roll(random.randrange(3), -1) + 0.1 * torch.randn(1, 8, 8)
        return x, self.y[i]

def data():
    return Noisy(args.samples, 1), Noisy(61, 2)

model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(288, 2))
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
    args.epochs, args.batch, args.engines, checkpoint_freq=args.checkpoint
)
'''

# SMALL, but an epoch lasts as long as there is a file `stay-EPOCH` in the results; and who runs the script leaves a line in `ran`.
_TRAIN = "FabricModel(model, data, nn.functional.cross_entropy, optimizer)"
HELD = """
import os, time
folder = os.environ["RESULT_DIR"]
open(folder + "/ran", "a").write(f"{os.getpid()}\\n")
class Stay:
    def on_epoch_begin(self, epoch):
        while os.path.exists(folder + f"/stay-{epoch}"):
            time.sleep(0.005)
""" + SMALL.replace(_TRAIN, _TRAIN[:-1] + ", user_callbacks=[Stay()])")
