"""The models that the engine's benchmarks train, as text: the same lines run in a user script, in a DDP process and in a plain loop.

Each defines `model`, `x`, `y` (the whole data set), `loss_function` and `optimizer`; `batch` samples a worker.
"""

from __future__ import annotations

COMMON = """
import torch
from torch import nn
torch.manual_seed(0)
"""

CONV = (
    COMMON
    + """
batch = 32
x, y = torch.randn(4096, 1, 28, 28), torch.randint(0, 10, (4096,))
model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(32 * 49, 128), nn.ReLU(), nn.Linear(128, 10),
)
loss_function = nn.functional.cross_entropy
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
"""
)

MLP = (
    COMMON
    + """
batch = 64
x, y = torch.randn(4096, 784), torch.randint(0, 10, (4096,))
model = nn.Sequential(
    nn.Linear(784, 2500), nn.ReLU(), nn.Linear(2500, 2500), nn.ReLU(), nn.Linear(2500, 700), nn.ReLU(), nn.Linear(700, 10)
)
loss_function = nn.functional.cross_entropy
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
"""
)

TRANSFORMER = (
    COMMON
    + """
batch = 8
x = torch.randint(0, 500, (2048, 64))
y = torch.randint(0, 500, (2048, 64))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(500, 128)
        self.place = nn.Parameter(torch.zeros(64, 128))
        layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.1, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(128, 500)
    def forward(self, tokens):
        return self.head(self.body(self.embed(tokens) + self.place)).transpose(1, 2)
model = Net()
loss_function = nn.functional.cross_entropy
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
"""
)

# Its width, and with it the size of its state (parameters and momentum), is the script's first argument.
WIDE = (
    COMMON
    + """
import sys
batch = 8
width = int(sys.argv[1])
x, y = torch.randn(4096, 64), torch.randint(0, 10, (4096,))
model = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
loss_function = nn.functional.cross_entropy
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
"""
)

MODELS = {"conv": CONV, "mlp-10m": MLP, "transformer": TRANSFORMER}
ADAM = "optimizer = torch.optim.Adam(model.parameters(), 1e-3)\n"
LARGER = {"mlp-10m, Adam": MLP + ADAM, "mlp-40m, Adam": MLP.replace("2500", "5800") + ADAM}  # where the state is what counts
FABRIC = """
from fabric_model import FabricModel
import sys
epochs, engines = int(sys.argv[1]), int(sys.argv[2])
def data():
    return torch.utils.data.TensorDataset(x, y), None
FabricModel(model, data, loss_function, optimizer).train(
    epochs, batch, engines, checkpoint_freq=0, **{argument: True for argument in sys.argv[3:]}
)
"""


def fabric_script(name: str) -> str:
    return (MODELS | LARGER)[name] + FABRIC
