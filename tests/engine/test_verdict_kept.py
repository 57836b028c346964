"""A run says that it is not exact where something is kept that not every worker knows: by datasets and metrics, for callbacks, by them."""

from __future__ import annotations

import pytest

from tests.engine.scripts import SMALL
from tests.engine.test_verdict import SHORT, finished, verdict

KEEPS_FIRST = {
    "a dictionary": ("", "self.kept = {}", "self.kept.setdefault(i, self.x[i] + torch.randn(1, 8, 8))"),
    "a cache of functools": ("import functools\nfirst = functools.cache(lambda i: torch.randn(1, 8, 8))\n", "", "self.x[i] + first(i)"),
}


@pytest.mark.parametrize("kept", KEEPS_FIRST)
def test_a_dataset_that_keeps_the_noise_of_a_samples_first_use_is_found_out(start, kept):
    top, begin, get = KEEPS_FIRST[kept]
    script = SMALL.replace("parser =", top + "parser =", 1).replace("self.x = torch.randn", f"{begin}\n        self.x = torch.randn")
    script = script.replace("x = self.x[i].roll(random.randrange(3), -1) + 0.1 * torch.randn(1, 8, 8)", f"x = {get}")
    (said,) = verdict(finished(start, script, *SHORT)).reasons
    assert said.startswith("samples that had been loaded before were not what they are when they are loaded for the first time")


def test_a_dataset_that_keeps_what_is_always_the_same_is_not_held_against_a_script(start):
    script = SMALL.replace("self.x = torch.randn", "self.kept = {}\n        self.x = torch.randn")
    script = script.replace("self.x[i].roll", "self.kept.setdefault(i, self.x[i]).roll")
    assert verdict(finished(start, script, *SHORT)).reasons == ()


ADDS_UP = """
class AddsUp:
    def __init__(self):
        self.right = self.count = 0
    def __call__(self, outputs, targets):
        self.right += int((outputs.argmax(1) == targets).sum())
        self.count += len(targets)
        return self.right / self.count
class Mean(AddsUp):
    def __call__(self, outputs, targets):
        super().__call__(outputs, targets)
        return float((outputs.argmax(1) == targets).double().mean())
"""


def test_a_metric_that_adds_up_over_batches_is_named_and_one_that_gives_its_batchs_value_is_not(start):
    script = SMALL.replace("model = nn.Sequential(", ADDS_UP + "model = nn.Sequential(").replace(
        "nn.functional.cross_entropy, optimizer)", "nn.functional.cross_entropy, optimizer, metrics=[AddsUp(), Mean()])"
    )
    (said,) = verdict(finished(start, script, *SHORT)).reasons
    assert said.startswith("the metric AddsUp gave another value for the same batch after another one had been measured")


BEST = """
class Best:
    best = 0
    def __call__(self, outputs, targets):
        Best.best += not model.training
        return Best.best
"""
KEPT_LOSS = """
seen = []
def kept(outputs, targets):
    if not model.training:
        seen.append(1)
    return nn.functional.cross_entropy(outputs, targets) * (1 + len(seen))
"""
TESTED = {
    "a metric": (BEST, "nn.functional.cross_entropy, optimizer, metrics=[Best()])", "the metric Best gave another value"),
    "a loss": (KEPT_LOSS, "kept, optimizer)", "the same test batch gave another loss"),
}


@pytest.mark.parametrize("kept", TESTED)
def test_what_is_kept_from_test_batch_to_test_batch_is_found_out(start, kept):
    top, arguments, reason = TESTED[kept]
    script = SMALL.replace("model = nn.Sequential(", top + "model = nn.Sequential(")
    (said,) = verdict(finished(start, script.replace("nn.functional.cross_entropy, optimizer)", arguments), *SHORT)).reasons
    assert said.startswith(reason)


def test_a_test_dataset_that_keeps_the_noise_of_a_samples_first_use_is_found_out(start):
    script = SMALL.replace("class Noisy", KEPT_TESTS + "class Noisy").replace("Noisy(61, 2)", "Kept(61)")
    (said,) = verdict(finished(start, script, *SHORT)).reasons
    assert said.startswith("samples that had been loaded before were not what they are when they are loaded for the first time")


KEPT_TESTS = """
class Kept(torch.utils.data.Dataset):
    def __init__(self, count):
        self.count, self.kept = count, {}
    def __len__(self):
        return self.count
    def __getitem__(self, i):
        return self.kept.setdefault(i, torch.randn(1, 8, 8).to(dtype)), i % 2
"""


def test_what_tests_leave_for_callbacks_is_found_out(start):
    lines = ("val = {'loss': 0.0}", "val['loss'] += 0.0 if model.training else loss.item()", "val['loss']")
    (said,) = verdict(finished(start, with_callback(READS.format(*lines), "Reads", "cross_entropy"), *SHORT, slots=(0,))).reasons
    assert said.startswith("computing batches changes Reads.on_epoch_end: val, which callbacks or hooks use")


def test_a_metric_that_is_no_number_is_not_held_against_a_script(start):
    arguments = "nn.functional.cross_entropy, optimizer, metrics=[lambda outputs, targets: float('nan')])"
    script = SMALL.replace("nn.functional.cross_entropy, optimizer)", arguments)
    assert verdict(finished(start, script, *SHORT, slots=(0,))).reasons == ()


TELLS = {
    "a dictionary": ("stats = {'sum': 0.0}", "stats['sum'] += loss.item()", "stats['sum']", "Reads.on_epoch_end: stats"),
    "a list": ("losses = []", "losses.append(loss.item())", "losses[-1]", "Reads.on_epoch_end: losses"),
    "a number": ("calls = 0", "global calls; calls += 1", "calls", "Reads.on_epoch_end: calls"),
    "a meter": (
        "class Meter:\n    value = 0.0\nmeter = Meter()",
        "meter.value = loss.item()",
        "meter.value",
        "Reads.on_epoch_end: meter.value",
    ),
    "a class": ("class Meter:\n    value = 0.0", "Meter.value = loss.item()", "Meter.value", "Reads.on_epoch_end: Meter.value"),
    "a metric of a library": (
        "from torch.nn import Identity\nmeter = Identity()\nmeter.total = 0.0",
        "meter.total += loss.item()",
        "meter.total",
        "Reads.on_epoch_end: meter.total",
    ),
}
READS = """
from callbacks import Callback
{}
def cross_entropy(outputs, targets):
    loss = nn.functional.cross_entropy(outputs, targets)
    {}
    return loss
class Reads(Callback):
    def on_epoch_end(self, epoch):
        self.seen = {}
"""


def with_callback(top: str, callback: str, loss: str = "nn.functional.cross_entropy") -> str:
    script = SMALL.replace("model = nn.Sequential(", top + "model = nn.Sequential(")
    return script.replace("nn.functional.cross_entropy, optimizer)", f"{loss}, optimizer, user_callback={callback}())")


@pytest.mark.parametrize("kept", TELLS)
def test_what_a_loss_leaves_for_callbacks_is_found_out(start, kept):
    *made, name = TELLS[kept]
    (said,) = verdict(finished(start, with_callback(READS.format(*made), "Reads", "cross_entropy"), *SHORT, slots=(0,))).reasons
    assert said.startswith(f"computing batches changes {name}, which callbacks or hooks use")


def test_what_a_loss_leaves_for_nobody_is_not_held_against_a_script(start):
    script = with_callback(READS.format("losses = []", "losses.append(loss.item())", "epoch"), "Reads", "cross_entropy")
    assert verdict(finished(start, script, *SHORT)).reasons == ()


SETS = """
from callbacks import Callback
LEVEL = 0
class Sets(Callback):
    def on_epoch_begin(self, epoch):
        {}
"""


@pytest.mark.parametrize(
    ("sets", "reads", "name"),
    [
        ("made[0].level = epoch", "self.level", "the training dataset.level"),
        ("Noisy.level = epoch", "self.level", "the training dataset.level"),
        ("global LEVEL; LEVEL = epoch", "LEVEL", "the training dataset.__getitem__: LEVEL"),
    ],
    ids=["an attribute", "a class", "a global name"],
)
def test_a_callback_that_changes_what_samples_are_loaded_by_is_found_out(start, sets, reads, name):
    script = with_callback(SETS.format(sets), "Sets").replace("self.x[i].roll", f"({reads} + self.x[i]).roll")
    script = script.replace("class Noisy(torch.utils.data.Dataset):", "made = []\nclass Noisy(torch.utils.data.Dataset):\n    level = 0")
    script = script.replace("self.x = torch.randn", "made.append(self)\n        self.x = torch.randn")
    (said,) = verdict(finished(start, script, *SHORT)).reasons
    assert said.startswith(f"a callback changes {name}")


def test_a_callback_that_fills_a_datasets_cache_is_not_held_against_a_script(start):
    script = with_callback(SETS.format("made[0].kept[epoch] = made[0].first = torch.ones(3)"), "Sets")
    script = script.replace("class Noisy(torch.utils.data.Dataset):", "made = []\nclass Noisy(torch.utils.data.Dataset):\n    first = None")
    script = script.replace("self.x = torch.randn", "made.append(self)\n        self.kept = {}\n        self.x = torch.randn")
    assert verdict(finished(start, script, *SHORT)).reasons == ()
