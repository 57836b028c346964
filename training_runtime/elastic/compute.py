"""One engine's part of a step, and one test batch: load, forward, backward, metrics. All randomness is seeded by what is computed,
not by where.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.data import TensorDataset, default_collate

from training_runtime.elastic.job import Job
from training_runtime.elastic.sampler import derive, seed_everything


class Compute:
    """The user's model on one device."""

    def __init__(self, job: Job, device: torch.device) -> None:
        self.job, self.device = job, device
        job.model.to(device)
        if isinstance(job.loss, torch.nn.Module):
            job.loss.to(device)

    def train(self, place: tuple[int, int, int], indices: Sequence[int], weight: float) -> list[float]:
        """Forward and backward of engine m of `place` = (epoch, step, m); gradients stand in `.grad`, multiplied by `weight` (the
        engine's part of the global batch). Returns the metric columns: samples, samples with accuracy, loss sum, metric sums."""
        job = self.job
        self._seed(place, "load")
        inputs, targets = self._load(job.train_set, indices)
        self._seed(place, "forward")
        if job.train_function is not None:
            return self._train_by_user(inputs, targets, len(indices))
        outputs = job.model(inputs)
        loss = job.loss(outputs, targets)
        (loss * weight).backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            return self._columns(float(loss), outputs, targets, len(indices))

    def test(self, place: tuple[int, int, int], indices: Sequence[int]) -> list[float]:
        """The metric columns of one test batch."""
        self._seed(place, "test")
        with torch.no_grad():
            inputs, targets = self._load(self.job.test_set, indices)
            outputs = self.job.model(inputs)
            return self._columns(float(self.job.loss(outputs, targets)), outputs, targets, len(indices))

    def example(self, count: int) -> Any:
        """The inputs of a batch of the first `count` training samples, again from the first where there are fewer."""
        self._seed((0, 0, 0), "example")
        return self._load(self.job.train_set, [i % len(self.job.train_set) for i in range(count)])[0]

    def _seed(self, place: tuple[int, int, int], purpose: str) -> None:
        seed_everything(derive(self.job.seed, *place, purpose), devices=self.device.type != "cpu")

    def _load(self, data: Any, indices: Sequence[int]) -> tuple[Any, Any]:
        batch = load(data, indices, self.job.collate)
        if not isinstance(batch, (tuple, list)) or len(batch) != 2:
            raise TypeError(
                f"a batch must be (inputs, targets); the dataset and fn_batch_collate gave {type(batch).__name__} of {len(batch)}"
            )
        return self._move(batch[0]), self._move(batch[1])

    def _move(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value if value.device == self.device else value.to(self.device)
        if isinstance(value, dict):
            return {k: self._move(v) for k, v in value.items()}
        return type(value)(self._move(v) for v in value) if isinstance(value, (list, tuple)) else value

    def _columns(self, loss: float, outputs: Any, targets: Any, count: int) -> list[float]:
        if self.job.metrics is not None:
            return [count, 0, loss * count, *(float(metric(outputs, targets)) * count for metric in self.job.metrics)]
        right = correct(outputs, targets)
        return [count, 0 if right is None else count, loss * count, 0.0 if right is None else right * count]

    def _train_by_user(self, inputs: Any, targets: Any, count: int) -> list[float]:
        """fn_step_train(model, data, eva, train_loader, fn_args) -> (accuracy in percent, loss); it calls backward() itself, so its
        gradients are weighted afterwards (see Exchange.end)."""
        model: Any = self.job.model
        model.get_optimizer, model.get_loss_function = lambda: self.job.optimizer, lambda: self.job.loss
        assert self.job.train_function is not None
        accuracy, loss = self.job.train_function(model, (inputs, targets), _percent, None, {})
        return [count, count, float(loss) * count, float(accuracy) / 100 * count]


def load(data: Any, indices: Sequence[int], collate: Any) -> Any:
    """A batch of the samples `indices`, put together as a DataLoader would."""
    if collate is None and type(data) is TensorDataset:
        chosen = torch.as_tensor(indices)
        return [t[chosen] for t in data.tensors]  # the same values as item by item, without the items
    samples = data.__getitems__(list(indices)) if hasattr(data, "__getitems__") else [data[i] for i in indices]
    return (collate or default_collate)(samples)


def correct(outputs: Any, targets: Any) -> float | None:
    """The fraction of right classes, where outputs are scores [N, C, ...] and targets integer classes [N, ...]; None where they are not."""
    if not (isinstance(outputs, torch.Tensor) and isinstance(targets, torch.Tensor)):
        return None
    if outputs.dim() < 2 or not outputs.is_floating_point() or targets.is_floating_point() or targets.is_complex():
        return None
    if targets.shape != outputs.shape[:1] + outputs.shape[2:] or not targets.numel():
        return None
    return float((outputs.argmax(1) == targets).sum()) / targets.numel()


def _percent(outputs: Any, targets: Any) -> float:
    return 100 * (correct(outputs, targets) or 0.0)
