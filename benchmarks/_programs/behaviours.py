"""Pieces of programs: hooks, ways of stepping, loading and testing."""

from __future__ import annotations

from benchmarks._programs.pieces import Piece

HOOKS = (
    Piece(
        "clipped by norm",
        "optimizer.register_step_pre_hook(lambda *_: nn.utils.clip_grad_norm_(model.parameters(), 0.1) and None)",
    ),
    Piece(
        "clipped by value",
        "optimizer.register_step_pre_hook(lambda *_: nn.utils.clip_grad_value_(model.parameters(), 0.01))",
    ),
    Piece(
        "noise on gradients",
        """
def _noise(*_):
    for p in model.parameters():
        if p.grad is not None:
            p.grad.add_(torch.randn_like(p.grad), alpha=1e-3 * random.random() * np.random.rand())
optimizer.register_step_pre_hook(_noise)
""",
    ),
    Piece(
        "centred gradients",
        """
def _centre(*_):
    for p in model.parameters():
        if p.grad is not None and p.dim() > 1:
            p.grad = p.grad - p.grad.mean(dim=tuple(range(1, p.dim())), keepdim=True)
optimizer.register_step_pre_hook(_centre)
""",
    ),
    Piece(
        "average in a closure",
        """
def _averaged():
    ema, count = copy.deepcopy(model).requires_grad_(False), [0]
    def after(*_):
        count[0] += 1
        with torch.no_grad():
            for e, p in zip(ema.parameters(), model.parameters()):
                e.lerp_(p, 0.2)
                if count[0] % 4 == 0:
                    p.lerp_(e, 0.5)
    optimizer.register_step_post_hook(after)
_averaged()
""",
    ),
    Piece(
        "hooks on tensors",
        "for _p in model.parameters():\n    _p.requires_grad and _p.register_hook(lambda g: g * 0.5 + 1e-4 * torch.randn_like(g))",
    ),
    Piece(
        "forward hooks",
        """
def _shake(module, args, output):
    return output + 0.01 * torch.randn_like(output) if module.training else output
[m for m in model.modules() if isinstance(m, (nn.Linear, nn.GRU))][-1].register_forward_hook(
    lambda m, a, o: _shake(m, a, o) if isinstance(o, torch.Tensor) else None)
""",
    ),
    Piece(
        "maximum norm of weights",
        """
def _limit(*_):
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.copy_(torch.renorm(p.float(), 2, 0, 2.0))
optimizer.register_step_post_hook(_limit)
""",
    ),
)

STEPS = (
    Piece(
        "own step",
        """
def step(model, data, eva, train_loader, fn_args):
    inputs, labels = data
    model.get_optimizer().zero_grad()
    outputs = model(inputs)
    found = model.get_loss_function()(outputs, labels)
    found.backward()
    return eva(outputs, labels), found
more["fn_step_train"] = step
""",
    ),
    Piece(
        "own step that clips",
        """
def step(model, data, eva, train_loader, fn_args):
    inputs, labels = data
    model.get_optimizer().zero_grad()
    outputs = model(inputs)
    found = model.get_loss_function()(outputs, labels)
    found.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.05)
    return eva(outputs, labels), found.detach() + norm
more["fn_step_train"] = step
""",
    ),
    Piece(
        "sharpness-aware step",
        """
def step(model, data, eva, train_loader, fn_args):
    inputs, labels = data
    model.get_optimizer().zero_grad()
    model.get_loss_function()(model(inputs), labels).backward()
    used = [p for p in model.parameters() if p.grad is not None]
    with torch.no_grad():
        norm = sum(p.grad.double().square().sum() for p in used).sqrt()
        before = [p.clone() for p in used]
        for p in used:
            p.add_(p.grad * (0.05 / (norm + 1e-6)))
    model.zero_grad(set_to_none=False)
    outputs = model(inputs)
    found = model.get_loss_function()(outputs, labels)
    found.backward()
    with torch.no_grad():
        for p, old in zip(used, before):
            p.copy_(old)
    return eva(outputs, labels), found
more["fn_step_train"] = step
""",
    ),
    Piece(
        "step in halves",
        """
def step(model, data, eva, train_loader, fn_args):
    inputs, labels = data
    whole, right = 0.0, 0.0
    parts = [(inputs, labels)] if len(labels) < 4 else list(zip(inputs.chunk(2), labels.chunk(2)))
    for x, y in parts:
        outputs = model(x)
        found = model.get_loss_function()(outputs, y) / len(parts)
        found.backward()
        whole, right = whole + float(found), right + eva(outputs, y) / len(parts)
    return right, whole
more["fn_step_train"] = step
""",
    ),
)

DATA = (
    Piece("tensors", "def wrap(x, y):\n    return torch.utils.data.TensorDataset(x, y)"),
    Piece(
        "augmented",
        """
class Augmented(torch.utils.data.Dataset):
    def __init__(self, x, y):
        self.x, self.y = x, y
    def __len__(self):
        return len(self.y)
    def __getitem__(self, i):
        x = self.x[i]
        if x.is_floating_point():
            x = x.roll(random.randrange(3), -1) * float(np.random.uniform(0.9, 1.1)) + 0.1 * torch.randn_like(x)
        return x, self.y[i]
wrap = Augmented
""",
    ),
    Piece(
        "part of a set",
        "def wrap(x, y):\n    return torch.utils.data.Subset(torch.utils.data.TensorDataset(x, y), range(len(y) - 1, -1, -1))",
    ),
    Piece(
        "many at once",
        """
class Batched(torch.utils.data.Dataset):
    def __init__(self, x, y):
        self.x, self.y = x, y
    def __len__(self):
        return len(self.y)
    def __getitem__(self, i):
        return self.x[i], self.y[i]
    def __getitems__(self, found):
        return [self[i] for i in found]
wrap = Batched
""",
    ),
)
COLLATES = (
    Piece(
        "own collate",
        """
def collate(samples):
    x, y = torch.stack([x for x, _ in samples]), torch.stack([y for _, y in samples])
    if x.is_floating_point():
        x = x * (1 + 0.1 * torch.rand(len(x), *[1] * (x.dim() - 1), dtype=x.dtype))
    return x, y
more["fn_batch_collate"] = collate
""",
    ),
    Piece(
        "mixed samples",
        """
def collate(samples):
    x, y = torch.utils.data.default_collate(samples)
    part = np.random.beta(0.4, 0.4)
    return (x * part + x.flip(0) * (1 - part)).to(x.dtype), y
more["fn_batch_collate"] = collate
""",
        only=("images", "vectors", "odd parts"),
    ),
)
TESTS = (
    Piece(
        "metrics",
        """
class Margin:
    def __call__(self, outputs, targets):
        return float(outputs.detach().double().max() - outputs.detach().double().min())
def mean_output(outputs, targets):
    return outputs.detach().double().mean()
more["metrics"] = [Margin(), mean_output]
""",
        bars=("own test",),
    ),
    Piece(
        "own test",
        """
def validate(model, test_iter, fn_args):
    total = sum(float(nn.functional.cross_entropy(model(x), y, reduction="sum")) for x, y in test_iter)
    return total / len(test_iter.dataset)
more["fn_test"] = validate
""",
    ),
)
