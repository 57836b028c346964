"""A script as tutorials have it, with the path of its data in its code, reads a data asset and downloads nothing."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from tests.e2e.test_cli import Shell, shell  # noqa: F401  (a fixture)

pytestmark = [pytest.mark.e2e, pytest.mark.shared_studio, pytest.mark.timeout(300)]
SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

train = datasets.MNIST("../data", train=True, download=True, transform=transforms.ToTensor())
test = datasets.MNIST("../data", train=False, transform=transforms.ToTensor())
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
for epoch in range(1, 3):
    for images, labels in DataLoader(train, batch_size=64, shuffle=True):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    print(f"Train Epoch: {epoch} Loss: {loss.item():.6f}")
    right = sum((model(images).argmax(1) == labels).sum().item() for images, labels in DataLoader(test, batch_size=100))
    print(f"Test set: Accuracy: {right}/{len(test)}")
torch.save(model.state_dict(), "mnist.pt")
"""


def write_idx(folder: Path) -> None:
    """scikit-learn's digits, as MNIST's files are laid out."""
    digits = load_digits()
    images, labels = (digits.images * 15).astype(np.uint8), digits.target.astype(np.uint8)
    folder.mkdir(parents=True)
    for name, part in (("train", slice(0, 1500)), ("t10k", slice(1500, None))):
        shape = images[part].shape
        (folder / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">4I", 0x803, *shape) + images[part].tobytes())
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, shape[0]) + labels[part].tobytes())


def test_mnist_is_read_where_the_script_would_download_it_to(shell: Shell, tmp_path: Path) -> None:  # noqa: F811
    pytest.importorskip("torchvision")
    shell.log_in()
    (shell.folder / "main.py").write_text(SCRIPT)
    write_idx(tmp_path / "mnist" / "MNIST" / "raw")
    shell.run(f"edt upload {tmp_path / 'mnist'}")
    said = shell.run("edt run . main.py --data mnist")
    assert "Test set: Accuracy: 2" in said
    assert "Downloading" not in said
    (run,) = shell.said("edt ls -n 1 --json")
    assert set(run["metrics"]) == {"train Loss", "test Accuracy"}
    shell.run(f"edt download {run['id']} --to results.zip")
    names = zipfile.ZipFile(shell.folder / "results.zip").namelist()
    assert [name for name in names if name.endswith("/mnist.pt")]
    assert not [name for name in names if "/MNIST/" in name], "what was uploaded is no result"
