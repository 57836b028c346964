"""Searches for hyperparameters as IBM's notebooks start and poll them (hypersearch): each trial is a run that finds its values."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

from experiments import services
from experiments.files import runfiles
from experiments.models import Experiment, RunState, RunValue, Search, TrainingRun, User
from experiments.runs import states
from experiments.runs.run_values import configured, keep_arguments
from experiments.searches import advancing
from experiments.services import searches as verbs
from experiments.services.projects import add_member
from tests.conftest import SentMessages
from tests.domain.test_search_choices import LR, algo
from tests.web import wmla
from tests.web.submitting import MAIN, part, submit, tar
from tests.web.wmla import DL, Script, basic
from training_runtime.variables import CONFIG_JSON

NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
SEARCHES = f"{DL}/hypersearch"
ARGS = "--exec-start PyTorch --cs-datastore-meta type=fs --python-version 3.6                     --gpuPerWorker 1 --model-main main.py"
ARGS += " --model-dir pytorch_hpo                     --debug-level debug"


@pytest.fixture
def script(alice: User, said: SentMessages) -> Script:
    return wmla.of(alice)


def start(script: Script, *, files: dict[str, Any] | None = None, **algo_def: Any) -> Any:
    data = {"modelSpec": {"sigName": "dliauto", "args": ARGS}, "algoDef": algo(**algo_def), "hyperParams": [LR]}
    sent = files if files is not None else part(tar({"pytorch_hpo/main.py": MAIN}))
    return script.call("post", SEARCHES, {"data": json.dumps(data), **sent}, Accept="application/json")


def started(script: Script, **algo_def: Any) -> str:
    answer = start(script, **algo_def)
    assert answer.status_code == 200, answer.content
    return str(answer.json()["uid"])


def look(script: Script, name: str) -> dict[str, Any]:
    found: dict[str, Any] = script.json(f"{SEARCHES}/{name}")
    return found


def live() -> list[TrainingRun]:
    return [run for run in TrainingRun.objects.order_by("pk") if run.is_live()]


def finish(run: TrainingRun, *losses: float, state: str = RunState.COMPLETED) -> None:
    if losses:
        rows = [{"steps": step, "loss": loss} for step, loss in enumerate(losses)]
        (runfiles.make(run) / "val_dict_list.json").write_text(json.dumps(rows))
    for each in (RunState.STARTING, RunState.RUNNING, state):
        states.transition(run, each, reason="a test", now=NOW)


def test_a_search_runs_its_trials_some_at_a_time_and_says_which_was_best(script: Script, home: Any) -> None:
    name = started(script, maxJobNum=3, maxParalleJobNum=2)
    first = look(script, name)
    assert (first["state"], first["progress"], first["creator"], first["hpoName"]) == ("SUBMITTED", "0/3", "alice", name)
    advancing.advance_all(NOW)
    one, two = live()
    assert one.environment.keys() == {CONFIG_JSON}
    rate = json.loads(two.environment[CONFIG_JSON])["learning_rate"]
    assert 0.001 <= rate < 0.1
    assert rate != json.loads(one.environment[CONFIG_JSON])["learning_rate"]
    assert (one.version, one.experiment, one.command, two.min_slots) == (two.version, two.experiment, "main.py", 1)
    finish(one, 0.9, 0.4, 0.5)
    advancing.advance_all(NOW)
    advancing.advance_all(NOW)
    _, three = live()
    assert (look(script, name)["state"], look(script, name)["progress"]) == ("RUNNING", "1/3")
    finish(two, 0.2)
    finish(three, state=RunState.FAILED)
    advancing.advance_all(NOW)
    found = look(script, name)
    assert (found["state"], found["progress"], found["complete"], found["failed"], found["running"]) == ("FINISHED", "3/3", 2, 1, 0)
    assert [each["state"] for each in found["experiments"]] == ["FINISHED", "FINISHED", "ERROR"]
    assert [each.get("metricVal") for each in found["experiments"]] == [0.4, 0.2, None]
    assert found["best"] == found["experiments"][1]
    assert found["best"]["appId"] == f"wmla-{two.pk}"
    assert found["best"]["hyperParams"] == [{"name": "learning_rate", "dataType": "double", "fixedVal": str(rate), "userDefined": False}]
    assert script.json(SEARCHES) == [look(script, name)]
    assert script.json(f"{DL}/execs/{found['best']['appId']}")["state"] == "FINISHED"


def test_tables_of_runs_have_what_each_trial_was_given(script: Script) -> None:
    started(script)
    given = json.loads(live()[0].environment[CONFIG_JSON])["learning_rate"]
    assert RunValue.objects.get(run=live()[0], name="learning_rate").number == pytest.approx(given)


def test_what_a_search_varies_counts_more_than_what_the_script_would_have_taken(script: Script) -> None:
    started(script)
    run = live()[0]
    run.command = "main.py --learning_rate 5"
    keep_arguments(run, None)
    assert RunValue.objects.get(run=run, name="learning_rate").text == str(json.loads(run.environment[CONFIG_JSON])["learning_rate"])


@pytest.mark.parametrize("text", ["{", "[1]", '{"a": [1], "b": null, "": 1, "c\\u0000": 2}'])
def test_a_config_that_a_table_cannot_have_is_no_argument(text: str) -> None:
    assert configured({CONFIG_JSON: text}) == {}


def test_the_first_generation_is_told_the_name_as_text(alice: User, said: SentMessages) -> None:
    script = Script(basic("alice"))
    name = start(script).json()
    assert name == f"alice-hpo-{Search.objects.get().pk}"
    assert look(script, name)["algoDef"]["algorithm"] == "Random"
    assert script.json(f"{SEARCHES}/")[0]["hpoName"] == name


def test_a_single_script_may_be_sent_under_its_own_name(script: Script) -> None:
    assert start(script, files=part(MAIN.encode(), "main.py", field="main.py")).status_code == 200


def test_a_search_without_any_result_has_failed_and_says_what_lacks(script: Script) -> None:
    name = started(script, maxJobNum=1)
    finish(live()[0])
    advancing.advance_all(NOW)
    found = look(script, name)
    assert (found["state"], [each["state"] for each in found["experiments"]]) == ("FAILED", ["FAILED"])
    assert "wrote a finite loss to RESULT_DIR/val_dict_list.json" in found["reason"]
    assert "best" not in found


def test_a_search_whose_script_fails_whatever_it_gets_begins_no_more(script: Script) -> None:
    name = started(script, maxJobNum=50, maxParalleJobNum=2)
    for _ in range(6):
        advancing.advance_all(NOW)
        for run in live():
            finish(run, state=RunState.FAILED)
    advancing.advance_all(NOW)
    found = look(script, name)
    assert (found["state"], TrainingRun.objects.count(), len(live())) == ("FAILED", 6, 0)
    assert (
        f"Its first 6 trials failed, so no more are begun: the last one, #{TrainingRun.objects.latest('pk').pk}, says why."
        in found["reason"]
    )


def test_a_search_of_which_some_trials_fail_goes_on(script: Script) -> None:
    started(script, maxJobNum=9, maxParalleJobNum=1)
    finish(live()[0], 0.3)
    for _ in range(7):
        advancing.advance_all(NOW)
        finish(live()[0], state=RunState.FAILED)
    advancing.advance_all(NOW)
    assert TrainingRun.objects.count() == 9


@pytest.mark.parametrize(
    "content", [b"{", b'[1, {}, {"loss": "low"}, {"loss": true}]', b'[{"loss": 1%s}]' % (b"0" * 400), b"7", b"[" * 100_000]
)
def test_a_file_of_results_that_is_none_is_no_result(script: Script, content: bytes) -> None:
    name = started(script, maxJobNum=1)
    (runfiles.make(live()[0]) / "val_dict_list.json").write_bytes(content)
    finish(live()[0])
    advancing.advance_all(NOW)
    assert look(script, name)["state"] == "FAILED"


def test_a_search_that_is_stopped_stops_its_trials_and_begins_none(script: Script) -> None:
    name = started(script)
    advancing.advance_all(NOW)
    assert script.call("put", f"{SEARCHES}/{name}").status_code == 204
    assert not live()
    advancing.advance_all(NOW)
    assert not live()
    found = look(script, name)
    assert (found["state"], {each["state"] for each in found["experiments"]}) == ("STOPPED", {"KILLED"})
    assert script.call("put", f"{SEARCHES}/{name}/force").status_code == 204
    refused = script.call("put", f"{SEARCHES}/{name}/restart")
    assert (refused.status_code, "submit it anew" in refused.content.decode()) == (400, True)


def test_a_search_that_is_stopped_while_its_next_trial_is_chosen_begins_none(
    script: Script, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(script, maxJobNum=9, maxParalleJobNum=2)
    search = Search.objects.get()

    def stopped_meanwhile(*asked: Any) -> Any:
        verbs.stop_search(search, by=alice, now=NOW)
        return choose(*asked)

    choose = advancing.choosing.choose
    monkeypatch.setattr(advancing.choosing, "choose", stopped_meanwhile)
    advancing.advance_all(NOW)
    assert (TrainingRun.objects.count(), live()) == (1, [])
    assert (Search.objects.get().state, Search.objects.get().reason) == ("stopped", "Stopped by alice.")


def test_a_search_that_may_take_longer_than_calendars_go_is_taken_on(script: Script) -> None:
    name = started(script, maxJobNum=2, maxParalleJobNum=1, maxRunTime=10**12)
    finish(live()[0], 0.5)
    advancing.advance_all(NOW)
    assert look(script, name)["progress"] == "1/2"


def test_when_its_time_is_up_a_search_ends(script: Script) -> None:
    name = started(script, maxRunTime=1)
    later = Search.objects.get().created_at + dt.timedelta(minutes=1)
    advancing.advance_all(later)
    advancing.advance_all(later)
    found = look(script, name)
    assert (found["state"], "maxRunTime" in found["reason"], len(found["experiments"])) == ("FAILED", True, 1)


def test_a_search_is_deleted_with_its_trials_once_it_is_over(script: Script) -> None:
    name = started(script)
    refused = script.call("delete", f"{SEARCHES}/{name}")
    assert (refused.status_code, "stop it" in refused.content.decode()) == (400, True)
    script.call("put", f"{SEARCHES}/{name}")
    assert script.call("delete", f"{SEARCHES}/{name}").status_code == 204
    assert not Search.objects.exists()
    assert not Experiment.objects.exists()
    assert script.get(f"{SEARCHES}/{name}").status_code == 400


def test_deleting_all_leaves_those_that_run_and_jobs_leave_searches(script: Script) -> None:
    over, runs = started(script), started(script)
    script.call("put", f"{SEARCHES}/{over}")
    assert script.call("delete", f"{DL}/execs").status_code == 204
    assert len(look(script, over)["experiments"]) == 1
    assert script.call("delete", SEARCHES).status_code == 204
    assert [each["hpoName"] for each in script.json(SEARCHES)] == [runs]


def test_a_trial_that_was_deleted_is_not_begun_again(script: Script) -> None:
    name = started(script, maxJobNum=2, maxParalleJobNum=2)
    advancing.advance_all(NOW)
    one, two = live()
    finish(one, 0.5)
    assert script.call("delete", f"{DL}/execs/wmla-{one.pk}").status_code == 204
    finish(two, 0.6)
    advancing.advance_all(NOW)
    assert (look(script, name)["state"], TrainingRun.objects.count()) == ("FINISHED", 1)


def test_strangers_see_nothing_and_readers_change_nothing(script: Script, alice: User, bob: User, victor: User) -> None:
    name = started(script)
    for method in ("get", "put", "delete"):
        assert wmla.of(victor).call(method, f"{SEARCHES}/{name}").status_code == 400
    project = Search.objects.get().experiment.project
    add_member(project, by=alice, username="bob", role="viewer")
    assert look(wmla.of(bob), name)["hpoName"] == name
    assert wmla.of(bob).call("put", f"{SEARCHES}/{name}").status_code == 403
    assert wmla.of(bob).json(SEARCHES) == []
    assert len(live()) == 1


def test_who_may_not_run_any_more_begins_no_trial(script: Script, alice: User) -> None:
    name = started(script, maxJobNum=2, maxParalleJobNum=1)
    finish(live()[0], 0.5)
    User.objects.filter(pk=alice.pk).update(is_active=False)
    advancing.advance_all(NOW)
    search = Search.objects.get()
    assert (search.state, search.reason) == ("finished", "alice may not run experiments of this project any more.")
    assert not live()
    assert name


def test_a_full_project_holds_a_search_up_and_ends_it_where_nothing_of_it_runs(script: Script, dora: User) -> None:
    started(script, maxJobNum=9, maxParalleJobNum=2)
    advancing.advance_all(NOW)
    one, two = live()
    finish(one, 0.4)
    project = one.experiment.project_id
    services.set_policy(by=dora, policy="fair_share", project_disk={str(project): 1})
    TrainingRun.objects.filter(pk=one.pk).update(disk_bytes=10**9, disk_files=1, disk_counted_at=NOW)
    advancing.advance_all(NOW)
    assert (live(), Search.objects.get().ended_at) == ([two], None), "when it has ended there may be room"
    finish(two, 0.3)
    services.set_policy(by=dora, policy="fair_share", project_disk={str(project): 2})
    advancing.advance_all(NOW)
    assert len(live()) == 2
    services.set_policy(by=dora, policy="fair_share", project_disk={str(project): 1})
    for run in live():
        finish(run, 0.2)
    advancing.advance_all(NOW)
    search = Search.objects.get()
    assert (search.state, TrainingRun.objects.count()) == ("finished", 4)
    assert "of disk that it may take" in search.reason


def test_of_a_search_that_may_run_everything_at_once_other_work_has_its_turn_in_between(script: Script) -> None:
    started(script, maxJobNum=30, maxParalleJobNum=-1)
    advancing.advance_all(NOW)
    assert len(live()) == 1 + advancing.MOST_A_TURN
    advancing.advance_all(NOW)
    assert len(live()) == 30


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({"algoDef": algo("Bayesian")}, "Bayesian is not available here"),
        ({"algoDef": None}, "The search has no algoDef"),
        ({"algoDef": algo(note=float("nan"))}, "a number that is none"),
        ({"algoDef": algo(note="a\0b")}, "a null character in it"),
        ({"hyperParams": []}, "The search has nothing to try"),
        ({"modelSpec": {"args": "--exec-start Caffe --model-main main.py"}}, "Framework Caffe is not available here"),
        ({"modelSpec": {}}, "The args name no framework"),
    ],
)
def test_what_cannot_be_searched_is_said_and_nothing_is_made(script: Script, data: dict[str, Any], why: str) -> None:
    usual = {"modelSpec": {"args": ARGS}, "algoDef": algo(), "hyperParams": [LR]}
    answer = script.call("post", SEARCHES, {"data": json.dumps({**usual, **data}), **part(tar({"m/main.py": MAIN}))})
    assert (answer.status_code, why in answer.content.decode()) == (400, True), answer.content
    assert not TrainingRun.objects.exists()


def test_the_algorithms_are_listed_and_none_can_be_installed(script: Script) -> None:
    assert [each["name"] for each in script.json(f"{SEARCHES}/algorithm")] == ["Random", "Tpe", "Hyperband", "ExperimentGridSearch"]
    assert script.json(f"{SEARCHES}/algorithm?type=USER_PLUGIN") == []
    assert script.json(f"{SEARCHES}/algorithm/random")["type"] == "BUILD_IN"
    for method, path in (("post", "install"), ("delete", "mine"), ("get", "mine")):
        answer = script.call(method, f"{SEARCHES}/algorithm/{path}")
        assert (answer.status_code, "cannot be installed here" in answer.content.decode()) == (400, True)


def test_a_job_of_the_xgboost_plugin_is_one_process(script: Script) -> None:
    answer = submit(script, "--exec-start XGboost --gpuPerWorker 1 --model-main main.py", part(MAIN.encode(), "main.py"))
    assert answer.json()["framework"] == "XGboost"
    assert TrainingRun.objects.get().version.distributed == "single"
