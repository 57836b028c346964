"""A run says whether it is exact, or why that is not promised: from what was seen in it."""

from __future__ import annotations

import functools
import random

import numpy as np
import pytest
import torch

from tests.engine.scripts import SMALL
from training_runtime.elastic.state.generators import Watched

SHORT = ("--epochs", "2", "--samples", "47")


def verdict(run):
    return run.events("exactness")[-1]


def finished(start, script, *arguments, slots=(0, 1), **options):
    run = start(script, *arguments, **options)
    run.members(*slots)
    assert run.wait() == 0, run.tail()
    return run


def test_a_script_that_computes_the_same_twice_is_exact_and_was_looked_at(start):
    run = finished(start, SMALL, *SHORT)
    assert (verdict(run).reasons, verdict(run).checked) == ((), True)
    assert len(run.events("exactness")) <= 2, "no line for each worker that says the same"


def test_a_generator_that_a_dataset_draws_from_is_named(start):
    script = SMALL.replace("random.randrange(3)", "rng.randrange(3)").replace("parser =", "rng = random.Random(1)\nparser =", 1)
    script = script.replace("0.1 * torch.randn(1, 8, 8)", "0.1 * torch.randn(1, 8, 8, generator=self.own)")
    script = script.replace("self.x = torch.randn", "self.own = torch.Generator()\n        self.x = torch.randn")
    said = verdict(finished(start, script, *SHORT)).reasons
    assert "the same samples, loaded twice, were not the same" in said
    assert any("the training dataset.own is a random generator of its own" in reason for reason in said)
    assert any(": rng is a random generator of its own" in reason for reason in said)


def test_a_generator_that_only_made_the_data_is_not_held_against_a_script(start):
    script = SMALL.replace("g = torch.Generator()", "self.g = g = torch.Generator()")
    assert verdict(finished(start, script, *SHORT)).reasons == ()


CLOCK = """
import time
class Late(nn.Module):
    def forward(self, x):
        return x + 1e-6 * (time.monotonic_ns() % 1000)
"""


def test_a_model_that_does_not_compute_the_same_twice_is_found_out(start):
    script = SMALL.replace("model = nn.Sequential(", CLOCK + "model = nn.Sequential(Late(), ")
    said = verdict(finished(start, script, *SHORT, slots=(0,)))
    assert said.reasons == ("the same batch, computed twice, gave different gradients",)


KEPT = {
    "a state that begins as None": ("self.kept = None", "x + (self.kept or 0)", "self.kept = float(x.mean())"),
    "a state of tensors": ("self.kept = None", "x if self.kept is None else x + self.kept", "self.kept = x.detach().mean()"),
    "a list of figures": ("self.kept = [0.0]", "x + sum(self.kept) / len(self.kept)", "self.kept.append(float(x.mean()))"),
    "a counter in a dict": ("self.kept = {'calls': 0}", "x * (1 + 0.01 * self.kept['calls'])", "self.kept['calls'] += 1"),
}
KEEPS = """
class Keeps(nn.Module):
    def __init__(self):
        super().__init__()
        {}
    def forward(self, x):
        found = {}
        if self.training:
            {}
        return found
"""


@pytest.mark.parametrize("kept", KEPT)
def test_what_a_module_keeps_from_batch_to_batch_is_found_out(start, kept):
    script = SMALL.replace("model = nn.Sequential(", KEEPS.format(*KEPT[kept]) + "model = nn.Sequential(Keeps(), ")
    (said,) = verdict(finished(start, script, *SHORT, slots=(0,))).reasons
    assert said.startswith("a batch gave other gradients after another one had been computed")


@pytest.mark.parametrize(
    "kept",
    [
        ("self.calls = 0", "x * (1 + 0.01 * self.calls)", "self.calls += 1"),
        ("self.register_buffer('mean', torch.zeros(()))", "x + self.mean", "self.mean = x.mean()"),
        ("self.seen = None", "x + 0.1", "self.seen = x.detach()"),
    ],
    ids=["a number", "a buffer", "what nobody reads"],
)
def test_what_does_not_depend_on_who_has_computed_what_is_not_held_against_a_script(start, kept):
    script = SMALL.replace("model = nn.Sequential(", KEEPS.format(*kept) + "model = nn.Sequential(Keeps(), ")
    assert verdict(finished(start, script, *SHORT, slots=(0,))).reasons == ()


OWN_STEP = """
def made():
    calls = 0
    def step(model, data, eva, train_loader, fn_args):
        nonlocal calls
        calls += 1
        outputs = model(data[0])
        loss = (1 + 0.1 * calls) * model.get_loss_function()(outputs, data[1])
        loss.backward()
        return eva(outputs, data[1]), loss
    return step
"""


def test_what_a_step_of_the_scripts_own_keeps_is_found_out(start):
    script = SMALL.replace("model = nn.Sequential(", OWN_STEP + "model = nn.Sequential(")
    script = script.replace("nn.functional.cross_entropy, optimizer)", "nn.functional.cross_entropy, optimizer, fn_step_train=made())")
    (said,) = verdict(finished(start, script, *SHORT, slots=(0,))).reasons
    assert said.startswith("a batch gave other gradients after another one had been computed")


def test_a_model_that_changes_its_parameters_as_it_computes_is_found_out(start):
    teaches = ("self.mean = nn.Parameter(torch.zeros(()), requires_grad=False)", "x - self.mean", "self.mean.data.lerp_(x.mean(), 0.1)")
    script = SMALL.replace("model = nn.Sequential(", KEEPS.format(*teaches) + "model = nn.Sequential(Keeps(), ")
    (said,) = verdict(finished(start, script, *SHORT, slots=(0,))).reasons
    assert said.startswith("computing a batch changed parameters")


COUNTS = """
class Counts:
    calls = 0
    def __call__(self, outputs, targets):
        Counts.calls += 1
        return nn.functional.cross_entropy(outputs, targets)
"""


def test_what_the_script_does_besides_computing_is_not_done_twice(start):
    script = SMALL.replace("model = nn.Sequential(", COUNTS + "model = nn.Sequential(").replace(
        "nn.functional.cross_entropy, optimizer)", "Counts(), optimizer, metrics=[lambda o, t: Counts.calls])"
    )
    run = finished(start, script, *SHORT, slots=(0,))
    assert verdict(run).checked
    assert run.events("train")[0].metrics["<lambda>"] == 2.5, "of four engines 1, 2, 3 and 4"


@pytest.mark.parametrize(("setting", "checked"), [("0", False), ("1", True)])
def test_whoever_does_not_want_it_is_not_kept_by_it(start, setting, checked):
    run = finished(start, SMALL, *SHORT, env={"EDT_VERIFY": setting})
    assert (verdict(run).reasons, verdict(run).checked) == ((), checked)


WARNS = """
import warnings
class Scatters(nn.Module):
    def forward(self, x):
        warnings.warn("scatter_add_cuda_kernel does not have a deterministic implementation, but you set "
                      "'torch.use_deterministic_algorithms(True, warn_only=True)'.")
        return x
"""


def test_operations_that_torch_warns_of_are_counted(start):
    script = SMALL.replace("model = nn.Sequential(", WARNS + "model = nn.Sequential(Scatters(), ")
    script = "import warnings\nwarnings.simplefilter('ignore')\n" + script
    said = verdict(finished(start, script, *SHORT)).reasons
    assert said == ("scatter_add_cuda_kernel has no deterministic kernel on this device",)


def test_a_run_that_goes_on_on_another_kind_of_machine_says_so(start, tmp_path):
    prelude = "import os\nfrom pathlib import Path\nfrom training_runtime import processor\n"
    prelude += "processor.gpus.__defaults__ = (Path(os.environ['RESULT_DIR']) / 'gpus',)\n"
    run = start(prelude + SMALL, "--epochs", "60")
    run.members(0)
    run.until_step(10)
    run.stop()
    assert run.wait() == 0
    (run.result_dir / "gpus" / "0000:3b:00.0").mkdir(parents=True)
    (run.result_dir / "gpus" / "0000:3b:00.0" / "information").write_text("Model: \t NVIDIA H200\nDevice Minor: \t 0\n")
    run.again()
    run.members(0)
    run.until(lambda: verdict(run).reasons, what="a reason")
    assert "it went on with another build or on another kind of machine" in verdict(run).reasons[0]
    assert "NVIDIA H200" in verdict(run).reasons[0]
    run.stop()
    assert run.wait() == 0


class Holder:
    """What a script may hand over."""

    def __init__(self, *held):
        self.held = held

    def draw(self):
        return AT_THE_TOP.random()


AT_THE_TOP = random.Random(1)


@pytest.mark.parametrize(
    ("make", "draw"),
    [
        (lambda: random.Random(1), lambda rng: rng.random()),
        (lambda: np.random.default_rng(1), lambda rng: rng.random()),
        (lambda: np.random.RandomState(1), lambda rng: rng.rand()),
        (lambda: torch.Generator(), lambda rng: torch.rand(1, generator=rng)),
    ],
    ids=["random", "numpy", "numpy, old", "torch"],
)
@pytest.mark.parametrize(
    "hide",
    [
        lambda rng: rng,
        lambda rng: [{"deep": (rng,)}],
        lambda rng: Holder(Holder(rng)),
        lambda rng: functools.partial(print, rng),
        lambda rng: lambda: rng,
        lambda rng: torch.nn.Sequential(torch.nn.Identity()).register_forward_hook(lambda *_: rng) and Holder(rng).__init__.__self__,
    ],
    ids=["itself", "containers", "attributes", "partial", "closure", "method"],
)
def test_a_generator_is_found_wherever_it_is_kept_and_only_if_it_is_drawn_from(make, draw, hide):
    rng = make()
    watched = Watched({"it": hide(rng)})
    assert watched.drawn() == []
    draw(rng)
    assert len(watched.drawn()) == 1
    assert watched.drawn()[0].startswith("it")


def test_generators_that_are_seeded_for_each_batch_are_not_counted_and_those_of_the_module_are():
    watched = Watched({"it": Holder(random.random, np.random.rand, torch.default_generator)})
    random.random(), np.random.rand(), torch.rand(1)
    assert watched.drawn() == []
    AT_THE_TOP.random()
    assert watched.drawn() == ["it.draw: AT_THE_TOP"]
