"""By which library's trainer a script trains, read from its text, and what its type of training makes of that. Pure: text in, words out."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

EXACT = "exact"
NAMES = {
    "lightning": "Lightning's Trainer",
    "transformers": "Transformers' Trainer",
    "accelerate": "Accelerate",
    "deepspeed": "DeepSpeed",
    "ddp": "DistributedDataParallel",
    "ddp_alone": "DistributedDataParallel",  # if at all, or in processes that it starts itself
    "loop": "a loop of its own",
}
_PACKAGES = {"lightning": "lightning", "pytorch_lightning": "lightning", "lightning_fabric": "lightning", "deepspeed": "deepspeed"}
_TRAINERS = {"transformers": ("Trainer", "Seq2SeqTrainer"), "trl": ("Trainer",), "accelerate": ("Accelerator",)}
OWN_STEPS = (
    "{path} trains by {name}, whose steps are its own. “Elastic distributed training (exact)” is for a FabricModel or a loop over "
    "edt.elastic(...); without either the script trains in one process, whatever slots it has. As “torchrun elastic” it grows and shrinks "
    "by its checkpoints, as “Single process” it has the GPUs of one machine."
)
GOES_ON = (
    "{path} trains by {name}. When its slots change, its processes are told to end, save what they have, and are started again with the "
    "new number, where they were; the weights depend on the slots that it had."
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
_SAVED_FOR = ("lightning", "transformers")  # see training_runtime/elastic/trainers
_TYPES = {EXACT: "elastic", "deepspeed": "torchrun", "ddp": "torchrun"}  # of others, as of what is no training at all: one process
_RANKS = ("RANK", "LOCAL_RANK", "WORLD_SIZE")


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
    if packages & {"fabric_model", "pyedt"} or ("edt" in packages and "elastic" in names):
        return EXACT
    for package, kind in _PACKAGES.items():
        if package in packages and names & {"Trainer", "Fabric", "LightningCLI", "initialize"}:
            return kind
    for package, ends in _TRAINERS.items():
        if package in packages and any(name.endswith(ends) for name in names):
            return "transformers" if package == "trl" else package
    if names & {"DistributedDataParallel", "DDP", "init_process_group"}:
        return "ddp_alone" if names & {"spawn", "start_processes"} or _is_optional(tree) else "ddp"
    return "loop" if "torch" in packages and "backward" in names else ""


def _used(tree: ast.AST) -> tuple[set[str], set[str]]:
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


def _is_optional(tree: ast.Module) -> bool:
    """Whether the script joins the other processes only under some condition, or looks whether there are any."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and any("init_process_group" in _used(each)[1] for each in (*node.body, *node.orelse)):
            return True
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Constant) and node.left.value in _RANKS:
            return True
    return False


def wanted_type(found: Mapping[str, str], script: str, *, is_launched: bool, scripts: Sequence[str]) -> str:
    """The type of training that code asks for of which nobody has said another. `found`: by path, by whom it trains; `script`: that of the
    command, if there is one, and `is_launched`: PyTorch's launcher is to start it; `scripts`: all files, of which some may not be read."""
    if is_launched:
        return "torchrun"
    kinds = [kind for kind in found.values() if kind]
    kind = found.get(script, "") or next((each for each in (EXACT, *NAMES) if each in kinds), "")
    if not kind and set(scripts) - set(found):
        return "elastic"
    return _TYPES.get(kind, "single")


def note(distributed: str, found: Mapping[str, str]) -> str:
    """What the page of a definition of this type says of its code, `found` by path: nothing where there is nothing to say."""
    if EXACT in found.values():
        return ""
    trainers = [Trainer(path, kind) for path, kind in found.items() if kind]
    trainer = min(trainers, key=lambda each: each.kind == "loop", default=None)
    words = _WORDS.get(distributed, "")
    if trainer is not None and trainer.kind == "loop":
        words = ONE_PROCESS if distributed == "elastic" else ""
    if trainer is not None and words == STARTED_AGAIN and trainer.kind in _SAVED_FOR:
        words = GOES_ON
    return words.format(path=trainer.path, name=trainer.name) if trainer else ""
