"""What a user's script may do, right and wrong, and what it is told."""

from __future__ import annotations

import textwrap

import pytest

from training_runtime import processor

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


LOADER = "torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=8)"


def test_a_data_loader_in_the_place_of_a_data_set_is_told_what_to_give_instead(start):
    run = finish(start, script(data=f"return {LOADER}, None"), code=1)
    message = run.events("error")[0].message
    assert message.startswith("UserError: the train dataset is a DataLoader, and FabricModel makes the batches itself: return its dataset")
    assert "stream" not in message


OWN_STEPS = """
def step(model, data, eva, loader, args):
    x, y = data
    other.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    other.step()
    return eva(model(x), y), loss.item()
"""


def test_an_optimizer_that_steps_within_a_part_of_a_step_is_refused_and_where_there_is_one_part_it_is_not(start):
    other = "other = torch.optim.Adam(model.parameters())"
    text = script(top=OWN_STEPS, arguments=", fn_step_train=step").replace("FabricModel(model", f"{other}\nFabricModel(model")
    run = finish(start, text, slots=(0,), code=1)
    assert "fn_step_train called step() of Adam. It computes one of the 2 parts of a step" in run.events("error")[0].message
    finish(start, text.replace("2, 8, 2", "2, 8, 1"), slots=(0,))


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


@pytest.mark.parametrize(
    ("top", "says"),
    [
        ("Net = lambda: nn.LazyLinear(2)", "the shape of weight is not known before the model has seen a batch"),
        ("torch.optim.SGD = lambda *given, **_: torch.optim.LBFGS(*given[:1])", "LBFGS computes the loss again within a step"),
    ],
)
def test_what_cannot_be_trained_is_said_before_anything_begins(start, top, says):
    text = script()
    assert "model = Net()" in text
    run = start(text.replace("model = Net()", f"{top}\nmodel = Net()"))
    assert run.wait() == 1
    assert run.events("error")[0].message.startswith(f"UserError: {says}")


def test_a_second_train_in_a_run_is_refused_with_what_to_do_instead(start):
    run = finish(start, script(bottom="FabricModel(model, data, nn.functional.cross_entropy, optimizer).train(1, 8, 2)"), code=1)
    assert "make the second training an experiment of its own" in run.events("error")[0].message
    assert (run.result_dir / "model/train/model_epoch_final.pth").exists()


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


EXPORTS = """
import torch
class Exports:
    def on_epoch_end(self, epoch, save_model=False):
        if epoch == self.params["epochs"] - 1 and save_model:
            torch.randn(1, 2, device="cuda", requires_grad=True)
class Counts:
    def on_epoch_end(self, epoch, save_model=False):
        print("epoch", epoch, "has ended")
"""


def test_a_callback_that_exports_the_final_model_by_a_gpu_that_there_is_not_costs_a_warning(start):
    if processor.gpus():
        pytest.skip("this machine has a GPU")
    run = start(script(top=EXPORTS, arguments=", user_callback=[Exports(), Counts()]"))
    run.members(0, 1)
    assert run.wait() == 0, run.tail()
    (warning,) = [said.message for said in run.events("warning") if "asks for a GPU" in said.message]
    assert "write device='cuda' if torch.cuda.is_available() else 'cpu'" in warning
    assert (run.result_dir / "model/train/model_epoch_final.pth").is_file()


def test_before_the_last_epoch_it_fails_the_run_as_any_other(start):
    if processor.gpus():
        pytest.skip("this machine has a GPU")
    run = start(script(top=EXPORTS.replace('self.params["epochs"] - 1', "0"), arguments=", user_callback=Exports()"))
    run.members(0, 1)
    assert run.wait() == 1, run.tail()


READS = """
import os
from callbacks import Callback
class Reads(Callback):
    def on_epoch_end(self, epoch, save_model=False):
        epoch_file = os.path.join(os.environ["RESULT_DIR"], "model", "train", f"model_epoch_{epoch + 1}.pth")
        with open(os.path.join(os.environ["RESULT_DIR"], f"seen-{os.getpid()}"), "a") as seen:
            seen.write(f"{os.path.exists(epoch_file)}\\n")
"""


def test_a_callback_that_looks_for_an_epochs_files_at_its_end_finds_them(start):
    run = start(script(top=READS, arguments=", user_callback=Reads()"))
    run.members(0, 1)
    assert run.wait() == 0, run.tail()
    seen = [line for path in run.result_dir.glob("seen-*") for line in path.read_text().splitlines()]
    assert len(seen) >= 2
    assert set(seen) == {"True"}


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


REAPS = {
    "the kernel": "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "a handler": "signal.signal(signal.SIGCHLD, lambda *_: [None for _ in iter(lambda: os.waitpid(-1, os.WNOHANG)[0], 0)])",
}


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("who", REAPS)
def test_a_script_whose_children_are_reaped_by_something_else_trains_and_has_that_again_behind_it(start, who, method):
    top, bottom = (
        f"import os, signal\n{REAPS[who]}\nset_by_me = signal.getsignal(signal.SIGCHLD)",
        "assert signal.getsignal(signal.SIGCHLD) == set_by_me",
    )
    finish(start, script(top=top, bottom=bottom), env={"EDT_START_METHOD": method})
