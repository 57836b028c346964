"""What the random programs are put together from: pieces of scripts, each a thing that users' scripts do.

A piece may use what stands above it: `model`, `optimizer`, `callbacks` (a list), `more` (arguments of FabricModel), SAMPLES, EPOCHS, STEPS
(of an epoch). `only`: the kinds of model that it fits; `bars`: pieces that it does not go with.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Piece:
    name: str
    text: str = ""
    only: tuple[str, ...] = ()
    bars: tuple[str, ...] = ()


MODELS = (
    Piece(
        "images",
        """
def build():
    return nn.Sequential(
        nn.Conv2d(2, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Dropout2d(0.2), nn.Conv2d(6, 6, 3), nn.GroupNorm(2, 6),
        nn.RReLU(), nn.Dropout(0.1), nn.Flatten(), nn.Linear(24, 3))
""",
    ),
    Piece(
        "vectors",
        """
def build():
    return nn.Sequential(
        nn.Linear(8, 12), nn.BatchNorm1d(12, momentum=None), nn.GELU(), nn.Dropout(0.2), nn.Linear(12, 12), nn.LayerNorm(12),
        nn.Tanh(), nn.AlphaDropout(0.1), nn.Identity(), nn.Linear(12, 3))
""",
    ),
    Piece(
        "tokens",
        """
class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 8, padding_idx=0)
        self.rnn = nn.GRU(8, 8, batch_first=True)
        self.attention = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embedding.weight
    def forward(self, x):
        h = self.rnn(self.embedding(x))[0]
        h = h + self.attention(h, h, h, need_weights=False)[0]
        return self.head(self.drop(h)).transpose(1, 2)
def build():
    return Tied()
""",
    ),
    Piece(
        "odd parts",
        """
class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.wide = nn.Linear(8, 12), nn.Linear(12, 12).double()
        self.frozen, self.sometimes, self.never = nn.Linear(12, 12), nn.Linear(12, 12), nn.Linear(12, 12)
        self.norm = nn.utils.parametrizations.spectral_norm(nn.Linear(12, 12))
        self.head, self.drop = nn.Linear(12, 3), nn.Dropout(0.2)
        self.register_buffer("seen", torch.zeros(()), persistent=False)
        self.scale = nn.Parameter(torch.ones(()))
        self.frozen.requires_grad_(False)
    def forward(self, x):
        h = torch.relu(self.body(x))
        h = self.norm(self.frozen(self.wide(h.double()).float()))
        if float(x[0, 0]) > 0:
            h = self.sometimes(h)
        if self.training:
            self.seen = self.seen + h.detach().mean()
            if random.random() < 0.5:
                h = h * 0.5 + np.random.rand() * 0.1
        return self.head(self.drop(h)) * self.scale + 0.01 * self.seen
def build():
    return Odd()
""",
    ),
)

CASTS = (
    Piece("channels last", "model = model.to(memory_format=torch.channels_last)", only=("images",)),
    Piece("float64", "model = model.double()\nDTYPE = torch.float64", only=("images", "vectors")),
    Piece("all bfloat16", "model = model.bfloat16()\nDTYPE = torch.bfloat16", only=("vectors",)),
    Piece(
        "autocast",
        """
def _cast(inner):
    def forward(*args):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return inner(*args)
    return forward
model.forward = _cast(model.forward)
""",
        only=("images", "vectors", "odd parts"),
    ),
)

GROUPS = (
    Piece("all parameters", "groups = list(model.parameters())"),
    Piece(
        "two groups",
        """
_all = list(model.parameters())
groups = [{"params": _all[::2], "weight_decay": 0.01}, {"params": _all[1::2], "lr": 0.003}]
""",
    ),
    Piece("not all of them", "groups = [p for p in model.parameters() if p.requires_grad][1:]"),
    Piece("named parameters", "groups = list(model.named_parameters())", bars=("own optimizer", "lookahead")),
)


def _optimizer(name: str, call: str) -> Piece:
    return Piece(name, f"optimizer = torch.optim.{call}")


OPTIMIZERS = (
    _optimizer("SGD", "SGD(groups, 0.05, momentum=0.9, weight_decay=1e-3)"),
    _optimizer("Nesterov", "SGD(groups, 0.05, momentum=0.9, nesterov=True, foreach=True)"),
    _optimizer("Adam", "Adam(groups, 1e-2)"),
    _optimizer("Adam fused", "Adam(groups, 1e-2, fused=True)"),
    _optimizer("AdamW amsgrad", "AdamW(groups, 1e-2, amsgrad=True)"),
    _optimizer("Adamax", "Adamax(groups, 1e-2)"),
    _optimizer("RMSprop", "RMSprop(groups, 1e-2, momentum=0.5, centered=True)"),
    _optimizer("Adagrad", "Adagrad(groups, 1e-2, lr_decay=0.01, initial_accumulator_value=0.1)"),
    _optimizer("Adadelta", "Adadelta(groups)"),
    _optimizer("NAdam", "NAdam(groups, 1e-2, decoupled_weight_decay=True)"),
    _optimizer("RAdam", "RAdam(groups, 1e-2)"),
    _optimizer("ASGD", "ASGD(groups, 1e-2, t0=5)"),
    _optimizer("Rprop", "Rprop(groups, 1e-2)"),
    _optimizer("Adafactor", "Adafactor(groups, 1e-2)"),
    Piece(
        "own optimizer",
        """
class Noisy(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr, "count": 0})
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            group["count"] += 1
            for p in group["params"]:
                if p.grad is not None:
                    state = self.state[p]
                    state["mean"] = state.get("mean", torch.zeros_like(p)).lerp(p.grad, 0.2)
                    state["norms"] = [*state.get("norms", [])[-2:], float(p.grad.norm())]
                    p.add_(state["mean"].sign() + 0.1 * torch.randn_like(p), alpha=-0.1 * group["lr"] / (1 + sum(state["norms"])))
optimizer = Noisy(groups, 1e-2)
""",
    ),
    Piece(
        "lookahead",
        """
class Lookahead(torch.optim.Optimizer):
    def __init__(self, inner):
        self.inner, self.calls = inner, 0
        self.slow = [p.detach().clone() for group in inner.param_groups for p in group["params"]]
        super().__init__(inner.param_groups, {})
        self.param_groups, self.state = inner.param_groups, inner.state
    @torch.no_grad()
    def step(self):
        self.inner.step()
        self.calls += 1
        if self.calls % 3 == 0:
            for slow, p in zip(self.slow, (p for group in self.param_groups for p in group["params"])):
                slow.lerp_(p, 0.5)
                p.copy_(slow)
optimizer = Lookahead(torch.optim.SGD(groups, 0.05, momentum=0.9))
""",
    ),
)

_SCHEDULERS = {
    "StepLR": "StepLR(optimizer, 2, 0.5)",
    "MultiStepLR": "MultiStepLR(optimizer, [1, 3], 0.3)",
    "ConstantLR": "ConstantLR(optimizer, 0.3, 2)",
    "ExponentialLR": "ExponentialLR(optimizer, 0.9)",
    "PolynomialLR": "PolynomialLR(optimizer, 20, 2.0)",
    "CosineAnnealingLR": "CosineAnnealingLR(optimizer, 4)",
    "CosineAnnealingWarmRestarts": "CosineAnnealingWarmRestarts(optimizer, 2, 2)",
    "OneCycleLR": "OneCycleLR(optimizer, 0.05, total_steps=200, cycle_momentum=False)",
    "CyclicLR": "CyclicLR(optimizer, 0.001, 0.05, step_size_up=3, mode='exp_range', gamma=0.9, cycle_momentum=False)",
    "LambdaLR": "LambdaLR(optimizer, lambda e: 0.5 * (1 + np.cos(np.pi * e / 20)))",
    "MultiplicativeLR": "MultiplicativeLR(optimizer, lambda e: 0.9 if e % 2 else np.float32(0.95))",
    "ReduceLROnPlateau": "ReduceLROnPlateau(optimizer, patience=1, factor=0.5)",
    "SequentialLR": "SequentialLR(optimizer, [LS.LinearLR(optimizer, 0.1, 1.0, 3), LS.CosineAnnealingLR(optimizer, 9)], milestones=[3])",
    "ChainedScheduler": "ChainedScheduler([LS.LinearLR(optimizer, 0.5, 1.0, 3), LS.ExponentialLR(optimizer, 0.95)])",
    "SWALR": "SWALR(optimizer, 0.02, anneal_epochs=3)",
}
_LR = "import torch.optim.lr_scheduler as LS\n"
SCHEDULERS = tuple(
    Piece(name, _LR + f"make_scheduler = lambda: {'torch.optim.swa_utils' if name == 'SWALR' else 'LS'}.{call}")
    for name, call in _SCHEDULERS.items()
)
SCHEDULED = (
    Piece(
        "stepped by a callback that holds it",
        """
class Scheduled(Callback):
    def __init__(self):
        self.scheduler = make_scheduler()
    def on_epoch_end(self, epoch):
        worst = (max(float(p.detach().abs().max()) for p in model.parameters()),)
        self.scheduler.step(*worst) if isinstance(self.scheduler, LS.ReduceLROnPlateau) else self.scheduler.step()
callbacks.append(Scheduled())
""",
    ),
    Piece(
        "stepped by a callback, global",
        """
scheduler = make_scheduler()
class Scheduled(Callback):
    def on_epoch_begin(self, epoch):
        if epoch:
            scheduler.step(*([float(epoch % 2)] if isinstance(scheduler, LS.ReduceLROnPlateau) else []))
callbacks.append(Scheduled())
""",
    ),
    Piece(
        "stepped each step, in a closure",
        """
def _scheduled(scheduler):
    plateau = isinstance(scheduler, LS.ReduceLROnPlateau)
    optimizer.register_step_post_hook(lambda *_: scheduler.step(1.0) if plateau else scheduler.step())
_scheduled(make_scheduler())
""",
    ),
)

LOSSES = (
    Piece("function", "loss = nn.functional.cross_entropy"),
    Piece("module", "loss = nn.CrossEntropyLoss(label_smoothing=0.1)"),
    Piece(
        "loss with a buffer and a counter",
        """
class Running(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.ones(()))
        self.calls = 0
    def forward(self, outputs, targets):
        each = nn.functional.cross_entropy(outputs, targets)
        if self.training and torch.is_grad_enabled():
            self.calls += 1
            self.mean = self.mean.lerp(each.detach().float(), 0.2)
        return each / (0.5 + self.mean) + 0.001 * self.calls * each
loss = Running()
""",
    ),
    Piece(
        "loss that learns",
        """
class Learning(nn.Module):
    def __init__(self):
        super().__init__()
        self.sigma = nn.Parameter(torch.zeros(()))
    def forward(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets) * torch.exp(-self.sigma) + self.sigma
loss = Learning()
groups = [*groups, {"params": [loss.sigma]}] if isinstance(groups[0], dict) else [{"params": groups}, {"params": [loss.sigma]}]
""",
        bars=("named parameters",),
    ),
    Piece(
        "own class of a loss",
        """
class Temperature:
    def __init__(self):
        self.tau = 1.0
    def __call__(self, outputs, targets):
        return nn.functional.cross_entropy(outputs / self.tau, targets)
loss = Temperature()
class Hotter(Callback):
    def on_epoch_begin(self, epoch):
        loss.tau = 1.0 + 0.3 * epoch
callbacks.append(Hotter())
""",
    ),
)
