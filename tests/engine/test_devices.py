"""What must hold for GPUs and can be seen without one. Whether torch then computes there, only a machine with a GPU can tell."""

from __future__ import annotations

import os
import threading

import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from training_runtime.elastic.processes import script, warm, worker_context
from training_runtime.elastic.state import optimizers
from training_runtime.elastic.torchrun import workers
from training_runtime.elastic.worker import compute
from training_runtime.protocol import SlotRef


@pytest.mark.parametrize("touched", [True, False])
def test_a_process_that_has_so_much_as_asked_for_gpus_is_not_forked(monkeypatch, touched):
    here = os.getpid()
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    # A build of torch with CUDA answers like this, in the fork alone.
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: touched and os.getpid() != here)
    monkeypatch.setattr(threading, "enumerate", lambda: [threading.main_thread()])
    assert ("initialised CUDA" in script.why_not_fork()) is touched


def test_a_process_that_has_opened_what_cuda_alone_opens_is_not_forked(monkeypatch, tmp_path):
    device = tmp_path / "nvidia-uvm"
    device.touch()
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(threading, "enumerate", lambda: [threading.main_thread()])
    monkeypatch.setattr(script, "CUDA_DEVICE", str(device))
    assert "initialised CUDA" not in script.why_not_fork()
    with device.open():
        assert "initialised CUDA" in script.why_not_fork()


def test_the_warm_process_leaves_gpus_alone():
    names, seen = ("CUDA_VISIBLE_DEVICES", "PYTORCH_NVML_BASED_CUDA_CHECK"), []
    hook = register_optimizer_step_pre_hook(lambda *_: seen.append([os.environ[name] for name in names]))
    try:
        before = [os.environ.get(name) for name in names]
        warm.warm_up()
    finally:
        hook.remove()
    assert seen == [["", "1"]] * 2, "torch's optimizers look for a GPU at every step"
    assert [os.environ.get(name) for name in names] == before


def test_the_warm_process_goes_no_way_backward_where_torch_would_count_gpus(monkeypatch):
    gone = []
    monkeypatch.setattr(torch.Tensor, "backward", lambda self, *_, **__: gone.append(self))
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    warm.warm_up()
    assert gone == [], "what is counted there, none, stays true in every process that is forked from this one"


@pytest.mark.parametrize(
    ("kind", "in_studio", "before", "after"),
    [
        ("gpu", True, "5", "1"),
        ("gpu", False, None, "1"),
        ("gpu", False, "2, 3", "3"),
        ("gpu", False, "GPU-aa,GPU-bb", "GPU-bb"),
        ("cpu", True, "2,3", ""),
        ("cpu", False, None, ""),
    ],
)
def test_a_worker_sees_the_gpu_of_its_slot_alone(monkeypatch, kind, in_studio, before, after):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if before is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", before)
    assert worker_context.visible_gpu(kind, 1, in_studio=in_studio) == after


@pytest.mark.parametrize(("in_studio", "index", "seen"), [(True, 1, "GPU-bb"), (True, 7, "7"), (False, 1, "3")])
def test_where_not_every_gpu_can_be_opened_it_is_named_by_its_uuid(monkeypatch, in_studio, index, seen):
    monkeypatch.setenv("EDT_GPU_UUIDS", "GPU-aa,GPU-bb")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert worker_context.visible_gpu("gpu", index, in_studio=in_studio) == seen
    assert worker_context.visible_gpu("cpu", index, in_studio=in_studio) == ""


def test_a_script_on_several_slots_is_told_each_of_their_gpus_once(monkeypatch):
    slots = [
        SlotRef(10 + place, "here", index, device) for place, (index, device) in enumerate([(1, "gpu"), (0, "gpu"), (1, "gpu"), (0, "cpu")])
    ]
    monkeypatch.delenv("EDT_GPU_UUIDS", raising=False)
    assert workers.gpus(slots) == ["1", "0"]
    monkeypatch.setenv("EDT_GPU_UUIDS", "GPU-aa,GPU-bb")
    assert workers.gpus(slots) == ["GPU-bb", "GPU-aa"]


@pytest.mark.parametrize("shape", [(3,), ()], ids=["of some", "of one, as a temperature that is learnt"])
@pytest.mark.parametrize(("options", "counts_on"), [({}, "cpu"), ({"capturable": True}, "meta"), ({"fused": True}, "meta")])
def test_the_state_of_an_optimizer_goes_where_its_parameters_are(options, counts_on, shape):
    there, here = nn.Parameter(torch.empty(shape, device="meta")), nn.Parameter(torch.zeros(shape))
    optimizer = torch.optim.Adam([{"params": [there], **options}, {"params": [here], **options}])
    for p in (there, here):
        optimizer.state[p] = {"step": torch.tensor(1.0), "exp_avg": torch.zeros(shape), "exp_avg_sq": torch.zeros(shape)}
    optimizers.follow(optimizer)
    assert {k: v.device.type for k, v in optimizer.state[there].items()} == {"step": counts_on, "exp_avg": "meta", "exp_avg_sq": "meta"}
    assert {v.device.type for v in optimizer.state[here].values()} == {"cpu"}


def test_a_device_is_told_to_compute_the_same_bits_each_time_unless_somebody_does_not_want_it(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    try:
        monkeypatch.setenv("EDT_DETERMINISTIC", "0")
        compute.be_deterministic()
        assert torch.backends.cudnn.benchmark and not torch.are_deterministic_algorithms_enabled()
        monkeypatch.delenv("EDT_DETERMINISTIC")
        compute.be_deterministic()
        assert not torch.backends.cudnn.benchmark
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
        torch.utils.deterministic.fill_uninitialized_memory = True
