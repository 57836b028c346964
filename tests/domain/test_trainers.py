"""By whose trainer a script trains, read from its text, and what its definition's page says of that."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.definitions import trainers

STRANGERS = Path(__file__).resolve().parents[1] / "e2e" / "strangers"
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ELASTIC, TORCHRUN, SINGLE = "elastic", "torchrun_elastic", "single"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ((STRANGERS / "lightning" / "train.py").read_text(), "lightning"),
        ((STRANGERS / "transformers" / "train.py").read_text(), "transformers"),
        ((EXAMPLES / "digits" / "main.py").read_text(), "exact"),
        ("import pytorch_lightning as pl\npl.Trainer(max_epochs=3).fit(model)", "lightning"),
        ("from lightning.pytorch.cli import LightningCLI\nLightningCLI(Model)", "lightning"),
        ("from trl import SFTTrainer\nSFTTrainer(model).train()", "transformers"),
        ("from accelerate import Accelerator\nAccelerator()", "accelerate"),
        ("import deepspeed\ndeepspeed.initialize(model=model)", "deepspeed"),
        ("from torch.nn.parallel import DistributedDataParallel as DDP\nDDP(model)", "ddp"),
        ("import torch\ntorch.distributed.init_process_group()", "ddp"),
        ("import edt\nfor step in edt.elastic(model, optimizer, data): pass", "exact"),
        ("from transformers import AutoModel\nAutoModel.from_pretrained('x')", ""),
        ("import keras\nkeras.Sequential([]).fit(x, y)", ""),
        ("class Trainer: pass\nTrainer().fit()", ""),
        ("if args.distributed:\n    torch.distributed.init_process_group('nccl')", "ddp_alone"),
        ("if 'RANK' in os.environ: setup()\nfrom torch.nn.parallel import DistributedDataParallel", "ddp_alone"),
        (
            "import torch.multiprocessing as mp\ndef work(rank): dist.init_process_group('gloo', rank=rank)\nmp.spawn(work, nprocs=2)",
            "ddp_alone",
        ),
        ("import torch\nfor x, y in loader: pass", ""),
        ("import torch\nfor x, y in loader:\n    loss(model(x), y).backward()", "loop"),
        ("import torch\nfrom pyedt.fabric_model import FabricModel\ndef step(loss): loss.backward()", "exact"),
        ("def (", ""),
        ("(" * 5000, ""),
    ],
)
def test_a_trainer_is_known_by_what_the_script_imports_and_calls(source: str, found: str) -> None:
    assert trainers.read(source) == found


@pytest.mark.parametrize(
    ("distributed", "found", "words"),
    [
        (ELASTIC, {"train.py": "lightning"}, "train.py trains by Lightning's Trainer, whose steps are its own"),
        (
            TORCHRUN,
            {"a.py": "", "fit.py": "transformers"},
            "fit.py trains by Transformers' Trainer. When its slots change, its processes are told",
        ),
        (
            TORCHRUN,
            {"fit.py": "accelerate"},
            "fit.py trains by Accelerate. When its slots change, its processes are started again and go on",
        ),
        (SINGLE, {"train.py": "lightning"}, ""),
        (ELASTIC, {"train.py": "lightning", "other.py": "exact"}, ""),
        (ELASTIC, {"train.py": ""}, ""),
        (ELASTIC, {"step.py": "loop", "train.py": "ddp"}, "train.py trains by DistributedDataParallel, whose steps are its own"),
        (ELASTIC, {"train.py": "loop"}, "train.py trains by a loop of its own."),
        (ELASTIC, {"step.py": "loop", "train.py": "exact"}, ""),
        (TORCHRUN, {"train.py": "loop"}, ""),
        (ELASTIC, {}, ""),
    ],
)
def test_the_note_says_how_such_a_script_is_run(distributed: str, found: dict[str, str], words: str) -> None:
    said = trainers.note(distributed, found)
    assert said.startswith(words) and bool(said) == bool(words)


@pytest.mark.parametrize(
    ("found", "script", "kind"),
    [
        ({"main.py": "exact"}, "main.py", "elastic"),
        ({"main.py": "", "net.py": "exact", "util.py": "loop"}, "main.py", "elastic"),
        ({"main.py": "loop", "elastic-main.py": "exact"}, "main.py", "single"),
        ({"main.py": "loop", "elastic-main.py": "exact"}, "", "elastic"),
        ({"main.py": "loop"}, "main.py", "single"),
        ({"main.py": "lightning"}, "main.py", "single"),
        ({"main.py": "ddp_alone"}, "main.py", "single"),
        ({"main.py": "ddp"}, "main.py", "torchrun"),
        ({"main.py": "", "trainer.py": "ddp", "step.py": "loop"}, "main.py", "torchrun"),
        ({"main.py": "deepspeed"}, "main.py", "torchrun"),
        ({"main.py": ""}, "main.py", "single"),
        ({}, "main.py", "elastic"),
    ],
)
def test_code_of_which_nobody_says_a_type_is_run_as_it_was_written(found: dict[str, str], script: str, kind: str) -> None:
    assert trainers.wanted_type(found, script, is_launched=False, scripts=["main.py"]) == kind
    assert trainers.wanted_type(found, script, is_launched=True, scripts=["main.py"]) == "torchrun"
