"""Pieces of programs: callbacks."""

from __future__ import annotations

from benchmarks._programs.pieces import Piece


def _callback(name: str, body: str, only: tuple[str, ...] = (), bars: tuple[str, ...] = ()) -> Piece:
    """`body`: that of a class; NAME stands for a name of its own."""
    lines = "\n".join(f"    {line}" for line in body.strip("\n").split("\n"))
    made = "C_" + "".join(c if c.isalnum() else "_" for c in name)
    return Piece(name, f"class {made}(Callback):\n{lines}\ncallbacks.append({made}())", only, bars)


_SEQUENTIAL = ("images", "vectors")
CALLBACKS = (
    _callback(
        "holds the groups",
        """
def __init__(self):
    self.groups = optimizer.param_groups
def on_epoch_begin(self, epoch):
    for group in self.groups:
        group["lr"] *= 0.8
""",
    ),
    _callback(
        "holds one group",
        """
def __init__(self):
    self.first, self.history = optimizer.param_groups[0], []
def on_epoch_end(self, epoch):
    self.history.append(self.first["lr"])
    self.first["lr"] = 0.9 * self.history[0] / (1 + len(self.history))
""",
    ),
    _callback(
        "holds layers and drops more of them",
        """
def __init__(self):
    self.dropped = [m for m in model.modules() if isinstance(m, (nn.Dropout, nn.Dropout2d, nn.AlphaDropout))]
def on_epoch_begin(self, epoch):
    for module in self.dropped:
        module.p = min(0.5, 0.1 * (epoch + 1))
""",
    ),
    _callback(
        "holds parameters and shrinks them",
        """
def __init__(self):
    self.held = {name: p for name, p in model.named_parameters()}
def on_epoch_end(self, epoch):
    with torch.no_grad():
        for p in self.held.values():
            p.mul_(0.95)
""",
    ),
    _callback(
        "freezes and unfreezes",
        """
def __init__(self):
    self.one = list(model.children())[0]
def on_epoch_begin(self, epoch):
    self.one.requires_grad_(epoch != 1)
""",
    ),
    _callback(
        "average of the model",
        """
def __init__(self):
    self.ema = torch.optim.swa_utils.AveragedModel(model, use_buffers=True)
def on_epoch_end(self, epoch):
    self.ema.update_parameters(model)
    if epoch >= 2:
        with torch.no_grad():
            for p, e in zip(model.parameters(), self.ema.module.parameters()):
                p.lerp_(e.to(p.dtype), 0.5)
""",
    ),
    _callback(
        "teacher by copy",
        """
def on_train_begin(self):
    self.teacher = copy.deepcopy(self.model).requires_grad_(False)
def on_epoch_end(self, epoch):
    with torch.no_grad():
        for p, e in zip(self.model.parameters(), self.teacher.parameters()):
            e.lerp_(p, 0.3)
            p.lerp_(e, 0.2)
""",
    ),
    _callback(
        "numbers of numpy",
        """
def on_epoch_begin(self, epoch):
    for group in optimizer.param_groups:
        group["lr"] = np.interp(epoch, [0, 2, 5], [0.01, 0.02, 0.001])
""",
    ),
    _callback(
        "a generator of its own",
        """
def __init__(self):
    self.rng, self.torch_rng = np.random.default_rng(5), torch.Generator().manual_seed(3)
    self.plain = random.Random(4)
def on_epoch_end(self, epoch):
    drawn = self.rng.random() + float(torch.rand((), generator=self.torch_rng)) + self.plain.random()
    for group in optimizer.param_groups:
        group["lr"] *= 0.5 + 0.3 * drawn
""",
    ),
    _callback(
        "containers",
        """
def __init__(self):
    self.best, self.last = collections.defaultdict(float), collections.deque(maxlen=2)
    self.arrays = {"norms": np.zeros(3), "tensor": torch.zeros(3)}
def on_epoch_end(self, epoch):
    norm = float(sum(p.detach().double().norm() for p in model.parameters()))
    self.best["norm"] = max(self.best["norm"], norm)
    self.last.append(norm)
    self.arrays["norms"] += norm
    self.arrays["tensor"] += norm
    if len(self.last) == 2 and self.last[1] >= self.last[0]:
        for group in optimizer.param_groups:
            group["lr"] *= 0.9 + 1e-3 * float(self.arrays["tensor"][0]) / float(1 + self.arrays["norms"].sum())
""",
    ),
    _callback(
        "begins anew with the last layer",
        """
def on_epoch_begin(self, epoch):
    if epoch == 2:
        with torch.no_grad():
            nn.init.normal_(list(model.parameters())[-1])
    if epoch == 3 and not isinstance(optimizer, torch.optim.Adagrad):
        optimizer.state.clear()
""",
    ),
    _callback(
        "changes batch norm",
        """
def on_epoch_begin(self, epoch):
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.momentum = 0.1 + 0.05 * epoch
            if epoch == 2:
                module.reset_running_stats()
            if epoch == 3:
                module.eval()
""",
        only=_SEQUENTIAL,
    ),
    _callback(
        "adds a group",
        """
def on_epoch_begin(self, epoch):
    if epoch == 2:
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        late = [p for p in model.parameters() if id(p) not in held]
        if late:
            optimizer.add_param_group({"params": late, "lr": 0.001})
""",
    ),
    _callback(
        "swaps an activation",
        """
def on_epoch_begin(self, epoch):
    if epoch == 2:
        model[2] = nn.SiLU()
""",
        only=_SEQUENTIAL,
    ),
    _callback(
        "prunes",
        """
def on_epoch_end(self, epoch):
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.mul_(torch.rand_like(p) > 0.05)
""",
    ),
    Piece(
        "global counters",
        """
STATE = {"epochs": 0, "lr": [g["lr"] for g in optimizer.param_groups]}
class Counting(Callback):
    def on_epoch_begin(self, epoch):
        for group, lr in zip(optimizer.param_groups, STATE["lr"]):
            group["lr"] = lr / (1 + epoch)
callbacks.append(Counting())
""",
    ),
)
