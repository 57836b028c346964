"""Somebody whose code is a notebook brings it as it is: its cells are a run, its parameters are arguments, and it may be elastic."""

from __future__ import annotations

import json
import zipfile

import pytest

from tests.e2e.test_cli import Shell, shell  # noqa: F401  (a fixture)
from tests.runtime.test_notebooks import code, notebook

pytestmark = [pytest.mark.e2e, pytest.mark.shared_studio, pytest.mark.timeout(300)]
PARAMETERS = code("lr = 0.1  # the rate\nepochs = 2", "parameters")
LOOP = """%%time
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr)
for epoch in range(epochs):
    loss = model(torch.ones(8, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"Epoch {epoch} loss: {loss.item():.4f}")
"""
ELASTIC = """
from fabric_model import FabricModel
def data():
    rows = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
    return rows, rows
model = torch.nn.Linear(4, 1)
edt_m = FabricModel(model, data, torch.nn.functional.mse_loss, torch.optim.SGD(model.parameters(), lr))
edt_m.train(epochs, 8, 2)
"""


def test_a_notebook_is_run_with_other_parameters_and_a_run_of_each_of_several(shell: Shell) -> None:  # noqa: F811
    shell.log_in()
    cells = ("%matplotlib inline\n!pip install -q torch\nimport torch", PARAMETERS, LOOP, "!mkdir -p kept\n%cd kept\n!echo {lr} > lr.txt")
    cells += ("import matplotlib.pyplot as plt\nplt.plot([1, lr])", "epochs")
    (shell.folder / "train.ipynb").write_text(notebook(*cells))
    said = shell.run("edt run . train.ipynb -- --epochs 3")
    assert "Not run: pip install -q torch" in said
    assert "\n3\n" in said, "what stands at the end of a cell"
    (run,) = shell.said("edt ls -n 1 --json")
    assert (run["state"], run["command"], set(run["metrics"])) == ("completed", "train.ipynb --epochs 3", {"train loss"})
    shell.run(f"edt download {run['id']} --to results.zip")
    names = zipfile.ZipFile(shell.folder / "results.zip").namelist()
    assert [name.rsplit("/", 2)[-2:] for name in names if name.endswith(".txt") and "kept" in name] == [["kept", "lr.txt"]]
    assert len([name for name in names if "/figures/figure-001-" in name]) == 1
    assert not [name for name in names if name.endswith(".ipynb.py")], "it is the code, and no result"
    made = json.loads(shell.run("edt sweep . train.ipynb lr=0.1,0.2 --json"))
    assert [each["command"] for each in made["runs"]] == ["train.ipynb --lr 0.1", "train.ipynb --lr 0.2"]


def test_a_notebook_with_fabric_model_is_elastic(shell: Shell) -> None:  # noqa: F811
    shell.log_in()
    (shell.folder / "edt.ipynb").write_text(notebook("import torch\nfrom torch.utils.data import TensorDataset", PARAMETERS, ELASTIC))
    said = shell.run("edt run . edt.ipynb 2>&1")
    assert "; type elastic)" in said
    assert "--------END TRAINING" in said
