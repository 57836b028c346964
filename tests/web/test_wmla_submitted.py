"""What was submitted by WMLA's REST interface: polled, listed, stopped, deleted, and by whom."""

from __future__ import annotations

import pytest
from django.utils import timezone

from experiments import services
from experiments.models import Experiment, Project, RunState, TrainingDefinition, TrainingRun, User
from experiments.runs import states
from tests import cast
from tests.conftest import SentMessages
from tests.web import wmla
from tests.web.submitting import GEN_B, MAIN, part, run_of, submit, tar
from tests.web.test_wmla_execs import script
from tests.web.wmla import DL, Script

__all__ = ["script"]  # a fixture


@pytest.mark.parametrize(
    ("state", "word"),
    [
        ("queued", "PENDING_CRD_SCHEDULER"),
        ("starting", "RUNNING"),
        ("running", "RUNNING"),
        ("suspended", "PENDING_CRD_SCHEDULER"),
        ("stopping", "RUNNING"),
        ("completed", "FINISHED"),
        ("failed", "ERROR"),
        ("stopped", "KILLED"),
    ],
)
def test_notebooks_poll_until_it_has_ended_and_no_longer(script: Script, state: str, word: str) -> None:
    run = run_of(submit(script, "--exec-start PyTorch", part(MAIN.encode(), "main.py")))
    TrainingRun.objects.filter(pk=run.pk).update(state=state)
    assert script.json(f"{DL}/execs/wmla-{run.pk}")["state"] == word
    assert script.json(f"{DL}/execs/{run.pk}")["state"] == word
    going_on = word in {"PENDING_CRD_SCHEDULER", "SUBMITTED", "RUNNING"}
    assert going_on == TrainingRun.objects.get(pk=run.pk).is_live()


def test_the_list_is_of_ones_own_and_can_be_narrowed_and_sorted(script: Script, alice: User, bob: User, project: Project) -> None:
    runs = [run_of(submit(script, "--exec-start PyTorch", part(MAIN.encode(), "main.py"))) for _ in range(3)]
    on_pages, _of_bobs = cast.run(project, by=alice), cast.run(project, by=bob)
    TrainingRun.objects.filter(pk__in=[runs[0].pk, runs[2].pk]).update(state="completed")
    ids = lambda query: [each["id"] for each in script.json(f"{DL}/execs{query}")]  # noqa: E731
    assert ids("") == [f"wmla-{run.pk}" for run in (*runs, on_pages)]
    assert ids("/?state=FINISHED&sort_by=id:desc") == [f"wmla-{runs[2].pk}", f"wmla-{runs[0].pk}"]
    assert ids("?limit=1&state=FINISHED&sort_by=id:desc") == [f"wmla-{runs[2].pk}"]
    assert ids("?state=PENDING_CRD_SCHEDULER,RUNNING&sort_by=id:asc") == [f"wmla-{runs[1].pk}", f"wmla-{on_pages.pk}"]
    assert ids("?state=NONSENSE&limit=x&sort_by=x") == []
    shown = script.json(f"{DL}/execs/{on_pages.pk}")
    assert shown["args"] == "--exec-start edtPyTorch --model-main main.py --epochs 2"


def test_it_is_stopped_and_deleted_with_what_the_submission_had_made(script: Script) -> None:
    run = run_of(submit(script, GEN_B, part(tar({"resnet-wmla/elastic-main.py": MAIN}))))
    one = f"{DL}/execs/wmla-{run.pk}"
    live = script.call("delete", one)
    assert (live.status_code, "stop it" in live.content.decode()) == (400, True)
    assert script.call("post", f"{one}/stop").status_code == 204
    assert script.json(one)["state"] == "KILLED"
    assert script.call("post", f"{one}/stop/").status_code == 204, "twice does no harm"
    assert script.call("delete", one).status_code == 204
    assert script.get(one).status_code == 400
    assert (TrainingRun.objects.count(), Experiment.objects.count(), TrainingDefinition.objects.count()) == (0, 0, 0)
    assert Project.objects.count() == 1


def test_deleting_one_leaves_what_others_use(script: Script, alice: User) -> None:
    one, other = (run_of(submit(script, GEN_B, part(tar({"resnet-wmla/elastic-main.py": MAIN})))) for _ in range(2))
    again = services.run_experiment(one.experiment, by=alice)[0]
    for run in (one, other, again):
        states.transition(run, RunState.STOPPED, reason="over", now=timezone.now())
    for run, left in ((one, (2, 2, 1)), (other, (1, 1, 1))):
        assert script.call("delete", f"{DL}/execs/{run.pk}").status_code == 204
        assert (TrainingRun.objects.count(), Experiment.objects.count(), TrainingDefinition.objects.count()) == left


def test_deleting_all_takes_what_was_submitted_here_and_has_ended(script: Script, alice: User, project: Project) -> None:
    ended, live = (run_of(submit(script, "--exec-start PyTorch", part(MAIN.encode(), "main.py"))) for _ in range(2))
    on_pages = cast.run(project, by=alice)
    TrainingRun.objects.filter(pk__in=[ended.pk, on_pages.pk]).update(state="completed")
    assert script.call("delete", f"{DL}/execs/").status_code == 204
    assert set(TrainingRun.objects.values_list("pk", flat=True)) == {live.pk, on_pages.pk}


def test_a_stranger_is_told_that_there_is_no_such_task(script: Script, bob: User, charlie: User, dora: User) -> None:
    run = run_of(submit(script, GEN_B, part(tar({"resnet-wmla/elastic-main.py": MAIN}))))
    stranger, none = wmla.of(charlie), {"statusCode": 400, "message": f"Cannot find task wmla-{run.pk}."}
    for method, path in (("get", ""), ("delete", ""), ("post", "/stop"), ("get", "/log"), ("get", "/result")):
        answer = stranger.call(method, f"{DL}/execs/wmla-{run.pk}{path}", Accept="application/json")
        assert (answer.status_code, answer.json()) == (400, none), (method, path)
    assert stranger.json(f"{DL}/execs") == []
    assert wmla.of(dora).call("post", f"{DL}/execs/{run.pk}/stop").status_code == 204, "administrators of the cluster may stop any run"
    for odd in ("wmla-", "x", "wmla-99999999999999999999", "-1", "1e3", "%00", "\u0661"):
        assert script.get(f"{DL}/execs/{odd}").status_code == 400, odd


def test_a_viewer_looks_and_changes_nothing(alice: User, victor: User, project: Project, said: SentMessages) -> None:
    run, viewer = cast.run(project, by=alice), wmla.of(victor)
    assert viewer.json(f"{DL}/execs/{run.pk}")["creator"] == "alice"
    for method, path in (("delete", ""), ("post", "/stop")):
        assert viewer.call(method, f"{DL}/execs/{run.pk}{path}").status_code == 403
    run.refresh_from_db()
    assert run.state == "queued"


def test_the_frameworks_are_listed_as_clients_print_them(script: Script) -> None:
    found = {each["name"]: each for each in script.json(f"{DL}/execs/frameworks/")}
    assert set(found) == {"edtPyTorch", "distPyTorch", "PyTorch", "edtTensorflow", "edtKeras", "tensorflow", "keras", "XGboost"}
    assert (found["edtTensorflow"]["backend"], found["edtTensorflow"]["execMode"]) == ("tensorflow", "distributed")
    assert (found["keras"]["backend"], found["keras"]["execMode"]) == ("keras", "single")
    assert found["edtPyTorch"]["appName"] == "ElasticPyTorchTrain"
    assert "--exec-start edtPyTorch" in "\n".join(found["edtPyTorch"]["desc"])
