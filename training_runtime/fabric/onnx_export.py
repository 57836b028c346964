"""Exports the final model in ONNX format and verifies it: `model/train/model_epoch_final.onnx`.

All of it happens in a child process that the driver forks when the training is done, so an exporter that fails, crashes or hangs costs a
warning and nothing else. Verified means: the evaluator of the onnx package computes what torch computes, for batches of other sizes and
samples than the one the export saw. (Not ONNX Runtime: it reports its use to its maker.) Nothing here is imported by workers.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import select
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from training_runtime.elastic.job import Job
from training_runtime.elastic.processes.process_handles import die_with_parent
from training_runtime.elastic.state import model_files
from training_runtime.errors import ExportFailed

NEEDED = ("onnx", "onnxscript")
EXAMPLES = model_files.EXAMPLES
TRACED = 2  # samples in the batch that the exporter sees; with one it would take the batch size for a constant


class Export:
    """An export that is under way in a child of this process. To be made while no thread runs."""

    def __init__(self, job: Job) -> None:
        if job.components.no_onnx:
            raise ExportFailed(job.components.no_onnx)
        missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
        if missing:
            names = " ".join(missing)
            raise ExportFailed(f"packages are missing: install them with `pip install {names}` and train again")
        self._answer, answer = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        with _on_the_processor(job.model):
            self._pid = os.fork()
            if not self._pid:
                os.close(self._answer)
                _child(parent, job, answer)
        os.close(answer)

    def finish(self, timeout_s: float) -> tuple[tuple[str, ...], int]:
        """Wait for it: paths relative to the result folder, and bytes in all. Raises ExportFailed; the child is gone in any case."""
        poll, said = select.poll(), b""
        poll.register(self._answer, select.POLLIN)
        try:
            ended = False
            while not ended and poll.poll(1000 * timeout_s):
                part = os.read(self._answer, 65536)
                said, ended = said + part, not part
            if not ended:
                raise ExportFailed(f"it took longer than {timeout_s:g} s (EDT_ONNX_TIMEOUT sets how long it may take)")
        finally:
            os.kill(self._pid, signal.SIGKILL)  # our child and not reaped: the pid is still its own
            _, status = os.waitpid(self._pid, 0)
            os.close(self._answer)
        if not said:
            raise ExportFailed(f"its process ended ({os.waitstatus_to_exitcode(status)}) without an answer")
        answer = json.loads(said)
        if "error" in answer:
            raise ExportFailed(answer["error"])
        return tuple(answer["paths"]), answer["bytes"]


@contextmanager
def _on_the_processor(model: torch.nn.Module) -> Iterator[None]:
    """Inside, the model is there. A fork cannot fetch it: where this process has used CUDA, none of its children can."""
    where = [(t, t.device) for t in (*model.parameters(), *model.buffers())]
    model.cpu()
    try:
        yield
    finally:
        for t, device in where:
            if t.device != device:
                t.data = t.data.to(device)


def _child(parent: int, job: Job, to: int) -> None:
    try:
        die_with_parent(parent)
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns of packages that nobody asked for
        os.nice(5)  # the slots are free already, others train on them
        paths, size = export(job)
        answer: dict[str, Any] = {"paths": paths, "bytes": size}
    except BaseException as error:
        traceback.print_exc()
        answer = {"error": f"{type(error).__name__}: {error}"[:2000]}
    os.write(to, json.dumps(answer).encode())  # short enough for a pipe to take it at once
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def export(job: Job) -> tuple[tuple[str, ...], int]:
    """Export `job.model`, verify it, put it in place. The paths relative to the result folder, and bytes in all."""
    example = model_files.example_path(job.result_dir)
    inputs = torch.load(example, weights_only=True, map_location="cpu")
    model = getattr(job.model, "_orig_mod", job.model).eval()  # the exporter takes no model that torch.compile has wrapped
    final = model_files.onnx_path(job.result_dir)
    beside = final.with_name(f".onnx-{os.getpid()}")
    beside.mkdir()
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # the exporter's own, of no use to who trains
            shapes = pytree.tree_map(lambda leaf: {0: torch.export.Dim.AUTO} if _is_batch(leaf) else None, inputs)
            traced = torch.export.export(model, (first(inputs, TRACED),), dynamic_shapes=(shapes,))
            program = torch.onnx.export(traced, dynamo=True, verbose=False)
            assert program is not None
            program.save(beside / final.name)
            _verify(model, inputs, beside / final.name)
        return _put(beside, final, job.result_dir)
    finally:
        for left in beside.iterdir():
            left.unlink()
        beside.rmdir()
        example.unlink()  # last: a driver that was killed in between exports again


def _put(beside: Path, final: Path, root: Path) -> tuple[tuple[str, ...], int]:
    """Rename what was written into its place; a model of more than 2 GB has its weights in a file of their own, which comes first."""
    paths, size = [], 0
    for path in sorted(beside.iterdir(), key=lambda path: path.name == final.name):
        with open(path, "rb") as file:
            os.fsync(file.fileno())
        size += path.stat().st_size
        paths.append(str(path.replace(final.with_name(path.name)).relative_to(root)))
    return tuple(paths[::-1]), size


def _verify(model: torch.nn.Module, inputs: Any, path: Path) -> None:
    """Raises ExportFailed where the exported model computes something else than torch."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    onnx.checker.check_model(str(path))  # by its path: as one message it may be too large
    exported = onnx.load(path)
    session = ReferenceEvaluator(exported)
    sizes = [slot.type.tensor_type.shape.dim[:1] for slot in exported.graph.input]
    fixed = any(size and size[0].dim_value == TRACED for size in sizes)  # some models only work for one batch size
    for samples in (TRACED,) if fixed else (TRACED, EXAMPLES, 1):
        batch = first(inputs, samples)
        given = [leaf.numpy() for leaf in pytree.tree_leaves(batch) if isinstance(leaf, torch.Tensor)]
        got = session.run(None, dict(zip(session.input_names, given, strict=True)))
        wanted = [leaf for leaf in pytree.tree_leaves(model(batch)) if isinstance(leaf, torch.Tensor)]
        for ours, theirs in zip(wanted, got, strict=True):
            if not torch.allclose(torch.as_tensor(theirs), ours, rtol=1e-3, atol=1e-4, equal_nan=True):
                raise ExportFailed(f"the exported model computes something else than the trained one (for {samples} samples)")


def first(inputs: Any, samples: int) -> Any:
    """A batch of the first `samples` of an example."""
    return pytree.tree_map(lambda leaf: leaf[:samples] if _is_batch(leaf) else leaf, inputs)


def _is_batch(leaf: Any) -> bool:
    """Whether a leaf of an example has one entry a sample."""
    return isinstance(leaf, torch.Tensor) and leaf.dim() > 0 and leaf.shape[0] == EXAMPLES
