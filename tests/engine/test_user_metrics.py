"""What a script measures: its own metrics, its own validation, its loggers."""

from __future__ import annotations

import math

import pytest

from tests.engine.test_user_code import finish, script


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
