"""What a node host does once in its warm process, so that every driver forked from it finds it done: imports, torch's lazy first times."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

VISIBLE, BY_NVML = "CUDA_VISIBLE_DEVICES", "PYTORCH_NVML_BASED_CUDA_CHECK"
FABRIC = ("model", "callbacks", "elog", "emetrics")
OF_A_DRIVER = ("training_runtime.elastic.driver.main", *(f"training_runtime.fabric.{name}" for name in FABRIC))  # to be found in memory


def warm_up() -> None:
    """Import all that a training needs and take one step of a tiny net.

    About 4 s cold, most of it for `torch._dynamo`, which the first optimizer needs. Leaves no thread behind, initialises no GPU.
    """
    import torch
    from torch import nn

    torch.set_num_threads(1)
    for name in OF_A_DRIVER:
        importlib.import_module(name)
    with suppress(ImportError):
        import rich.style  # noqa: F401 - it draws a random number at its import, which then is no run's, however that begins
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Dropout(0.1), nn.Flatten(), nn.Linear(8, 2))
    with _no_gpus():
        for optimizer in (torch.optim.SGD(net.parameters(), 0.1, momentum=0.9), torch.optim.Adam(net.parameters())):
            loss = nn.functional.cross_entropy(net(torch.zeros(2, 1, 4, 4)), torch.zeros(2, dtype=torch.int64))
            # The first backward pass counts the GPUs by initialising CUDA; what it finds, none here, stays true in all that is forked.
            if torch.backends.cuda.is_built():  # type: ignore[no-untyped-call]
                for p in net.parameters():
                    p.grad = torch.zeros_like(p)
            else:
                loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()


@contextmanager
def _no_gpus() -> Iterator[None]:
    """An optimizer looks for a GPU, and would initialise it, after which nothing that is forked from this process could use one: let torch
    look by NVML, and see none."""
    before = {name: os.environ.get(name) for name in (VISIBLE, BY_NVML)}
    os.environ.update({VISIBLE: "", BY_NVML: "1"})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
