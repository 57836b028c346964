"""save_to_onnx: the final model in ONNX format, or a warning that says why not. Never more than a warning."""

from __future__ import annotations

import onnx
import pytest
import torch
from onnx.reference import ReferenceEvaluator
from torch import nn

from tests.engine.test_user_code import finish, script

FINAL = "model/train/model_epoch_final.onnx"


def test_the_final_model_is_exported_for_any_batch_size_and_computes_the_same(start):
    run = finish(start, script(arguments=", save_to_onnx=True"))
    assert run.events("warning") == []
    assert run.events("checkpoint")[-1].paths == (FINAL,)
    session = ReferenceEvaluator(onnx.load(run.result_dir / FINAL))
    layer = nn.Linear(4, 2)
    weights = torch.load(run.result_dir / "model/train/model_epoch_final.pth", weights_only=True)
    layer.load_state_dict({name.removeprefix("layer."): value for name, value in weights.items()})
    for samples in (1, 7):
        x = torch.randn(samples, 4)
        (got,) = session.run(None, {session.input_names[0]: x.numpy()})
        assert torch.allclose(torch.as_tensor(got), layer(x), atol=1e-5)
    left = {path.name for path in run.result_dir.rglob("*") if path.is_file()}
    assert "example.pt" not in left
    assert not any(name.startswith(".onnx") for name in left)


AS_ON_A_GPU = """
import os
driver = os.getpid()
def _apply(self, fn, recurse=True):
    if "worker" not in os.environ.get("LOG_DIR", "") and os.getpid() != driver:
        raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")
    return super(Net, self)._apply(fn, recurse)
"""


def test_a_model_that_only_the_driver_itself_can_move_is_exported_too(start):
    run = finish(
        start, script(top=AS_ON_A_GPU, arguments=", save_to_onnx=True").replace("model = Net()", "Net._apply = _apply\nmodel = Net()")
    )
    assert run.events("warning") == []
    assert (run.result_dir / FINAL).exists()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"top": "import sys\nsys.modules['onnxscript'] = None"}, "pip install onnxscript"),
        ({"forward": "x = x if float(x.sum()) > 0 else -x"}, "data-dependent"),
        ({"top": "import os", "forward": "os.kill(os.getpid(), 11) if torch.compiler.is_exporting() else 0"}, "its process ended (-11)"),
        ({"top": "import os, time", "forward": "time.sleep(600) if torch.compiler.is_exporting() else 0"}, "took longer than 3 s"),
        ({"forward": "x = x + (3.0 if torch.compiler.is_exporting() else 0.0)"}, "computes something else"),
    ],
)
def test_an_export_that_cannot_be_made_costs_a_warning_and_not_the_run(start, change, says):
    run = finish(start, script(**change, arguments=", enable_onnx=True"), env={"EDT_ONNX_TIMEOUT": "3"} if "sleep" in str(change) else {})
    (warning,) = run.events("warning")
    assert says in warning.message
    assert run.events("finished")[-1].outcome == "completed"
    assert not (run.result_dir / FINAL).exists()
