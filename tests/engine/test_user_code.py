"""What a user's script may do, right and wrong, and what it is told."""

from __future__ import annotations

import math
import textwrap

import pytest

PLAIN = """
import torch
from torch import nn
from fabric_model import FabricModel
{top}
def data():
    g = torch.Generator().manual_seed(3)
    x = torch.randn(96, 4, generator=g)
    y = (x[:, 0] > 0).long()
    {data}
    return torch.utils.data.TensorDataset(x[:64], y[:64]), torch.utils.data.TensorDataset(x[64:], y[64:])
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
    def forward(self, x):
        {forward}
        return self.layer(x)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
FabricModel(model, data, nn.functional.cross_entropy, optimizer{arguments}).train({train})
{bottom}
"""


def script(*, top="", data="pass", forward="pass", arguments="", train="2, 8, 2", bottom=""):
    return PLAIN.format(top=textwrap.dedent(top), data=data, forward=forward, arguments=arguments, train=train, bottom=bottom)


def finish(start, text: str, *, slots=(0, 1), code=0, **options):
    run = start(text, **options)
    run.members(*slots)
    assert run.wait() == code, run.tail()
    return run


@pytest.mark.parametrize(
    ("where", "change"),
    [
        ("worker on slot", {"forward": "raise ValueError('oh no')"}),
        ("datasets function", {"data": "raise ValueError('oh no')"}),
        ("driver", {"top": "raise ValueError('oh no')"}),
        ("driver", {"bottom": "raise ValueError('oh no')"}),
    ],
)
def test_an_error_in_user_code_fails_the_run_at_once_with_its_traceback(start, where, change):
    run = finish(start, script(**change), code=1)
    (failed,) = run.events("error")
    assert failed.message == "ValueError: oh no"
    assert failed.where.startswith(where)
    assert "main.py" in failed.traceback
    assert run.events("finished")[-1].outcome == "failed"
    assert "oh no" in run.tail()


def test_an_error_on_one_rank_only_fails_the_run_too(start):
    text = script(top="import os", forward="if not self.training and x.sum() > -1e9: raise RuntimeError('only in validation')")
    run = finish(start, text, code=1)
    assert run.events("error")[0].message == "RuntimeError: only in validation"


def test_a_script_that_crashes_its_process_each_time_is_not_tried_for_ever(start):
    run = finish(start, script(top="import os, signal", forward="os.kill(os.getpid(), signal.SIGSEGV)"), slots=(0,), code=1)
    assert "SIGSEGV" in run.events("error")[0].message


def test_a_script_without_fabric_model_just_runs(start):
    run = start("import sys\nprint('hello', sys.argv[1:])\nsys.exit(3)\n", "a", "--b")
    assert run.wait() == 3
    assert "hello ['a', '--b']" in run.log.read_text()


def test_wrong_arguments_get_one_clear_sentence(start):
    run = start(script(train="2, 0"))
    assert run.wait() == 1
    assert run.events("error")[0].message == "UserError: train: batch_size must be a whole number of at least 1, not 0"


def test_several_workers_on_a_processor_that_orders_writes_otherwise_are_refused_and_one_is_not(start):
    top = "import platform; platform.machine = lambda: 'aarch64'"
    run = start(script(top=top))
    assert run.wait() == 1
    assert "several workers cannot train on this machine: its processor (aarch64)" in run.events("error")[0].message
    finish(start, script(top=top), slots=(0,), max_slots=1)


def test_effective_batch_size_gives_the_engines_and_the_larger_wins(start):
    assert finish(start, script(train="1, 8, effective_batch_size=24")).events("started")[0].engines == 3
    assert finish(start, script(train="1, 8, 2, effective_batch_size=32")).events("started")[0].engines == 4
    assert finish(start, script(train="1, 8"), max_slots=3).events("started")[0].engines == 3


def test_frequency_0_is_never_and_the_final_model_is_there(start):
    run = finish(start, script(train="3, 8, 2, validation_freq=0, checkpoint_freq=0"))
    assert run.events("test") == []
    assert [c.paths[0] for c in run.events("checkpoint")] == ["model/train/model_epoch_final.pth"]
    assert (run.result_dir / "model/train/model_epoch_final_optimizer_state.pth").exists()


def test_the_model_holds_the_final_weights_after_train(start):
    bottom = "saved = torch.load(__import__('os').environ['RESULT_DIR'] + '/model/train/model_epoch_final.pth')\n"
    bottom += "assert all(torch.equal(model.state_dict()[k], v) for k, v in saved.items())\nprint('same weights')"
    assert "same weights" in finish(start, script(bottom=bottom)).log.read_text()


def test_metrics_are_the_users_functions_under_their_names(start):
    top = """
    def half(output, target):
        return 0.5
    """
    run = finish(start, script(top=top, arguments=", metrics=[half]"))
    assert set(run.events("train")[0].metrics) == {"loss", "half"}
    assert run.events("test")[0].metrics["half"] == 0.5


def test_a_metric_may_go_on_with_the_tensor_that_it_has_returned(start):
    top = """
    kept = torch.zeros(())
    def calls(output, target):
        return kept.add_(1)
    """
    run = finish(start, script(top=top, arguments=", metrics=[calls]"), slots=(0,))
    assert run.events("train")[0].metrics["calls"] == 1.5, "of the first engine 1, of the second 2"


def test_a_metric_is_not_called_for_what_is_computed_only_to_warm_up(start):
    top = """
    kept = torch.zeros(())
    def calls(output, target):
        return kept.add_(1)
    """
    compiled = script(top=top, arguments=", metrics=[calls]").replace("model = Net()", "model = torch.compile(Net(), backend='eager')")
    run = finish(start, compiled, slots=(0,))
    assert run.events("train")[0].metrics["calls"] == 1.5, "of the first engine 1, of the second 2"


def test_metrics_of_a_step_of_ones_own_are_taken_where_it_asks_for_the_accuracy(start):
    top = """
    def largest(output, target):
        return output.max()
    def step(model, data, eva, train_loader, fn_args):
        outputs = model(data[0])
        loss = model.get_loss_function()(outputs, data[1])
        loss.backward()
        return {returned}, loss
    """
    plain = finish(start, script(top=top, arguments=", metrics=[largest]"), slots=(0,))
    for returned, same in (("eva(outputs, data[1])", True), ("50.0", False)):
        text = script(top=top.format(returned=returned), arguments=", metrics=[largest], fn_step_train=step")
        run = finish(start, text)
        assert run.test_lines()[0][2][1][0] == "largest"
        if same:
            assert run.train_lines() == plain.train_lines()
        else:
            assert math.isnan(run.events("train")[0].metrics["largest"])


FN_TEST = """
def validate(model, test_iter, fn_args):
    assert not model.training and not torch.is_grad_enabled()
    total = 0.0
    for inputs, targets in test_iter:
        total += float(nn.functional.cross_entropy(model(inputs), targets, reduction="sum"))
    print("batches", len(test_iter), "samples", len(test_iter.dataset), fn_args)
    return {returns}
"""


def test_fn_test_sees_all_test_batches_and_its_result_is_the_validation_loss(start):
    top = FN_TEST.format(returns="total / len(test_iter.dataset)")
    whole = finish(start, script(top=top, arguments=", fn_test=validate"))
    plain = finish(start, script(), slots=(0,))
    for mine, theirs in zip(whole.events("test"), plain.events("test"), strict=True):
        assert mine.metrics.keys() == {"loss"}
        assert mine.metrics["loss"] == pytest.approx(theirs.metrics["loss"], rel=1e-5)
        assert mine.samples == 32
    console = "".join((whole.result_dir / f"log/worker-{slot}/console.log").read_text() for slot in (0, 1))
    assert console.count("batches 4 samples 32 {}") == 2  # once an epoch, whatever the number of workers
    assert whole.weights() == plain.weights()
    assert finish(start, script(top=top, arguments=", fn_test=validate"), slots=(0,)).test_lines() == whole.test_lines()


def test_fn_test_that_returns_no_number_is_told_what_it_should_return(start):
    run = finish(start, script(top=FN_TEST.format(returns="(total, 1)"), arguments=", fn_test=validate"), code=1)
    assert "fn_test must return the loss over all test batches, a number, not tuple" in run.events("error")[0].message


def test_two_metrics_of_one_class_are_two_metrics_and_a_function_alone_is_a_list_of_one(start):
    top = """
    class Fraction:
        def __init__(self, value):
            self.value = value
        def __call__(self, output, target):
            return self.value
    """
    run = finish(start, script(top=top, arguments=", metrics=[Fraction(0.25), Fraction(0.75)]"))
    assert {k: v for k, v in run.events("train")[0].metrics.items() if k != "loss"} == {"Fraction": 0.25, "Fraction_2": 0.75}
    run = finish(start, script(top=top, arguments=", metrics=Fraction(0.25)"))
    assert run.events("test")[0].metrics["Fraction"] == 0.25


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"train": "2, 8, 2, validation_freq=-1"}, "train: validation_freq must be a whole number of at least 0, not -1"),
        ({"train": "2, 8, 2, num_dataloader_threads=None"}, "train: num_dataloader_threads must be a whole number of at least 0, not None"),
        ({"train": "2, 8, 2, effective_batch_size=0"}, "train: effective_batch_size must be a whole number of at least 1, not 0"),
        ({"arguments": ", metrics=['accuracy']"}, "metrics must be functions (outputs, targets) -> number, not 'accuracy'"),
    ],
)
def test_arguments_that_cannot_work_are_named(start, change, says):
    run = start(script(**change))
    assert run.wait() == 1
    assert run.events("error")[0].message == f"UserError: {says}"


def test_a_second_train_in_a_run_is_refused_with_what_to_do_instead(start):
    run = finish(start, script(bottom="FabricModel(model, data, nn.functional.cross_entropy, optimizer).train(1, 8, 2)"), code=1)
    assert "make the second training an experiment of its own" in run.events("error")[0].message
    assert (run.result_dir / "model/train/model_epoch_final.pth").exists()


LOGGERS = """
class First:
    def log_train_metrics(self, loss, acc, completed_batch, worker=0):
        print("first", round(acc / 100, 3) <= 1, 0 < acc <= 100, completed_batch, worker)
    def log_test_metrics(self, loss, acc, completed_batch, worker=0):
        print("first test", completed_batch)
    def on_train_end(self):
        print("first end")
class Second:
    def log_train_metrics(self, metrics, completed_batch, epoch, worker=0):
        print("second", sorted(metrics), completed_batch, epoch, worker)
class Third:
    def log_train_metrics(self, metrics, iteration, epoch, workers):
        print("third", sorted(metrics), iteration, epoch, workers)
    def log_test_metrics(self, metrics, iteration, epoch):
        print("third test", iteration, epoch)
    def on_train_begin(self):
        print("third begin")
class Broken:
    def log_train_metrics(self, metrics, iteration, epoch, workers):
        raise KeyError("telemetry")
"""


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("First", ["first True True 8 2", "first test 0", "first end"]),
        ("Second", ["second ['accuracy', 'loss'] 8 1 2"]),
        ("Third", ["third begin", "third ['accuracy', 'loss'] 8 1 2", "third ['accuracy', 'loss'] 16 2 2", "third test 0 2"]),
    ],
)
def test_driver_loggers_of_every_form_are_called(start, name, lines):
    run = finish(start, script(top=LOGGERS, arguments=f", driver_logger={name}()"))
    console = run.log.read_text()
    assert [line for line in lines if line not in console] == []


def test_worker_loggers_run_on_the_workers_with_their_own_count(start):
    run = finish(start, script(top=LOGGERS, arguments=", worker_logger_callback=Third()"))
    for slot in (0, 1):
        console = (run.result_dir / f"log/worker-{slot}/console.log").read_text()
        assert "third begin" in console
        assert "third ['accuracy', 'loss'] 8 2 2" in console


def test_without_a_logger_of_its_own_a_worker_prints_its_own_figures_into_its_log(start):
    run = finish(start, script())
    for slot in (0, 1):
        assert "epoch 1  batches 1  loss " in (run.result_dir / f"log/worker-{slot}/console.log").read_text()


def test_a_logger_that_raises_costs_a_warning_and_nothing_else(start):
    run = finish(start, script(top=LOGGERS, arguments=", driver_logger=Broken()"))
    assert run.events("finished")[-1].outcome == "completed"
    assert any("KeyError" in w.message for w in run.events("warning"))


def test_user_callbacks_change_the_learning_rate_that_the_workers_step_with(start):
    top = """
    from callbacks import Callback
    class Halve(Callback):
        def __init__(self):
            self.seen = []
        def on_epoch_begin(self, epoch):
            self.seen.append(epoch)
            for group in self.params["optimizer"].param_groups:
                group["lr"] *= 0.5
        def on_train_end(self):
            print("halved", self.seen, self.params["optimizer"].param_groups[0]["lr"], self.params["epochs"])
    """
    run = finish(start, script(top=top, arguments=", user_callback=[Halve()]", train="3, 8, 2"))
    assert "halved [0, 1, 2] 0.0125 3" in (run.result_dir / "log/worker-1/console.log").read_text()


def test_scripts_written_for_the_original_find_their_modules(start):
    text = """
import os, sys
path = os.path.join(os.getenv("FABRIC_HOME"), "libs", "fabric.zip")
sys.path.insert(0, path)
from fabric_model import FabricModel
from callbacks import LoggerCallback, Callback
from emetrics import EMetrics
from elog import ELog
import pyedt.fabric_model
assert pyedt.fabric_model.FabricModel is FabricModel
with EMetrics.open() as metrics:
    metrics.record(EMetrics.TRAIN_GROUP, 3, {"loss": 0.5})
log = ELog.open()
log.recordTrain("Train", 4, 1, 0.5, 0.25)
log.close()
"""
    run = start(text)
    assert run.wait() == 0, run.tail()
    assert '"grouplabel": "train"' in (run.folder / "evaluation-metrics.txt").read_text()
    columns = (run.folder / "stdout").read_text().replace(":", ",").split(",")
    assert [float(columns[i]) for i in (6, 8, 10, 12)] == [1, 4, 0.5, 0.25]


RAISES = """
import os
class Full:
    def on_epoch_end(self, epoch, save_model=False):
        if save_model:
            raise OSError(28, "No space left on device")
        self.params["optimizer"].param_groups[0]["lr"] *= 0.5
"""


def test_a_user_callback_that_raises_on_one_worker_fails_the_run_with_its_traceback(start):
    run = start(script(top=RAISES, arguments=", user_callback=Full()"))
    run.members(0, 1)
    assert run.wait() == 1, run.tail()
    (failed,) = run.events("error")
    assert failed.message == "OSError: [Errno 28] No space left on device"
    assert "main.py" in failed.traceback


WAITING = """
import os, time
from pathlib import Path
from callbacks import Callback
results = Path(os.environ["RESULT_DIR"])
class Slow(Callback):
    def on_train_begin(self):  # the third worker that starts takes long
        for name in ("first", "second", "third"):
            try:
                os.close(os.open(results / name, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            while name == "third" and not (results / "go").exists():
                time.sleep(0.01)
            return
"""


def test_a_newcomer_that_gets_no_weights_asks_again_and_is_stopped_after_its_limit(start):
    env = {"EDT_PULL_WEIGHT_TIME_OUT": "0.2", "EDT_PULL_FAILED_LIMITS": "2"}
    text = script(top=WAITING, arguments=", user_callback=Slow()", train="100000, 8, 3, validation_freq=0, checkpoint_freq=0")
    run = start(text, env=env)
    run.members(0)
    run.until_step(1)
    run.members(0, 1, 2)
    run.until(lambda: len(run.events("warning")) >= 2, what="two warnings")
    told = [w.message for w in run.events("warning")]
    assert all(message.startswith("PULL_FAILED: slot ") for message in told)
    assert told[0].endswith("got no weights within 0.2 s (attempt 1 of 2)")
    assert told[1].endswith("(attempt 2 of 2)")
    before = run.step()
    run.until_step(before + 5)  # the run goes on
    (run.result_dir / "go").touch()
    run.until_workers(3)  # a new worker was started in its place
    run.stop()
    assert run.wait() == 0, run.tail()
