"""What a node host does once in its warm process, so that every driver forked from it finds it done: imports, torch's lazy first times."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

VISIBLE = "CUDA_VISIBLE_DEVICES"
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
            outputs = net(torch.zeros(2, 1, 4, 4))
            nn.functional.cross_entropy(outputs, torch.zeros(2, dtype=torch.int64)).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()


@contextmanager
def _no_gpus() -> Iterator[None]:
    """An optimizer looks for a GPU and would initialise it, after which nothing that is forked from this process could use one."""
    seen = os.environ.get(VISIBLE)
    os.environ[VISIBLE] = ""
    try:
        yield
    finally:
        del os.environ[VISIBLE]
        if seen is not None:
            os.environ[VISIBLE] = seen
