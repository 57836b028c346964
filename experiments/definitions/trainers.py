"""By which library's trainer a script trains, read from its text, and what its type of training makes of that. Pure: text in, words out."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

EXACT = "exact"
NAMES = {
    "lightning": "Lightning's Trainer",
    "transformers": "Transformers' Trainer",
    "accelerate": "Accelerate",
    "deepspeed": "DeepSpeed",
    "ddp": "DistributedDataParallel",
    "loop": "a loop of its own",
}
_PACKAGES = {"lightning": "lightning", "pytorch_lightning": "lightning", "lightning_fabric": "lightning", "deepspeed": "deepspeed"}
_TRAINERS = {"transformers": ("Trainer", "Seq2SeqTrainer"), "trl": ("Trainer",), "accelerate": ("Accelerator",)}
OWN_STEPS = (
    "{path} trains by {name}, whose steps are its own. “Elastic distributed training (exact)” is for a FabricModel or a loop over "
    "edt.elastic(...); without either the script trains in one process, whatever slots it has. As “torchrun elastic” it grows and shrinks "
    "by its checkpoints, as “Single process” it has the GPUs of one machine."
)
STARTED_AGAIN = (
    "{path} trains by {name}. When its slots change, its processes are started again and go on from the checkpoint that the script loads; "
    "the weights depend on the slots that it had."
)
ONE_PROCESS = (
    "{path} trains by {name}. “Elastic distributed training (exact)” is for a FabricModel or a loop over edt.elastic(...); without either "
    "the script trains in one process that sees no GPU, whatever slots it has. As “Single process” it has the GPUs of one machine."
)
_WORDS = {"elastic": OWN_STEPS, "torchrun_elastic": STARTED_AGAIN}  # by the type of training


@dataclass(frozen=True)
class Trainer:
    """`path`: the script; `kind`: a key of NAMES."""

    path: str
    kind: str

    @property
    def name(self) -> str:
        return NAMES[self.kind]


def read(source: str) -> str:
    """EXACT, a key of NAMES, or nothing: of who trains in this file. Nothing is known of one that does not parse."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    packages, names = _used(tree)
    if packages & {"fabric_model", "pyedt", "keras"} or ("edt" in packages and "elastic" in names):
        return EXACT
    for package, kind in _PACKAGES.items():
        if package in packages and names & {"Trainer", "Fabric", "LightningCLI", "initialize"}:
            return kind
    for package, ends in _TRAINERS.items():
        if package in packages and any(name.endswith(ends) for name in names):
            return "transformers" if package == "trl" else package
    if names & {"DistributedDataParallel", "DDP", "init_process_group"}:
        return "ddp"
    return "loop" if "torch" in packages and "backward" in names else ""


def _used(tree: ast.Module) -> tuple[set[str], set[str]]:
    """(packages that are imported, names that are called or imported)"""
    packages, names = set[str](), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            packages |= {each.name.split(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            packages.add((node.module or "").split(".")[0])
            names |= {each.name for each in node.names}
        elif isinstance(node, ast.Call):
            names |= {node.func.attr} if isinstance(node.func, ast.Attribute) else set()
            names |= {node.func.id} if isinstance(node.func, ast.Name) else set()
    return packages, names


def note(distributed: str, found: Mapping[str, str]) -> str:
    """What the page of a definition of this type says of its code, `found` by path: nothing where there is nothing to say."""
    if EXACT in found.values():
        return ""
    trainers = [Trainer(path, kind) for path, kind in found.items() if kind]
    trainer = min(trainers, key=lambda each: each.kind == "loop", default=None)
    words = _WORDS.get(distributed, "")
    if trainer is not None and trainer.kind == "loop":
        words = ONE_PROCESS if distributed == "elastic" else ""
    return words.format(path=trainer.path, name=trainer.name) if trainer else ""
