"""Searches for hyperparameters that people begin: by the form of an experiment, and by the API."""

from __future__ import annotations

import datetime as dt
import uuid
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from experiments import services
from experiments.models import (
    DefinitionVersion,
    Experiment,
    Metric,
    MetricSeries,
    Node,
    Notification,
    Project,
    RunState,
    Search,
    TrainingRun,
    User,
)
from experiments.runs import states
from experiments.searches import advancing
from experiments.services import searches as verbs
from tests import cast
from tests.conftest import SentMessages
from tests.web import api, wmla
from tests.web.conftest import As
from tests.web.test_experiments import create
from tests.web.text import one_line

NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
ASKED = {"parameters": "lr = 0.001..0.1 log\n\nbatch-size=16, 32\n", "metric": "test loss", "goal": "minimize", "method": "tpe"}
ASKED |= {"trials": "3", "at_once": "2"}

DECLARES = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--batch-size")
parser.parse_args()
"""


@pytest.fixture
def version(project: Project, alice: User, said: SentMessages) -> DefinitionVersion:
    return cast.definition(project, by=alice)


def live() -> list[TrainingRun]:
    return [run for run in TrainingRun.objects.order_by("pk") if run.is_live()]


def finish(run: TrainingRun, *, state: str = RunState.COMPLETED, **least: float) -> None:
    """`least`: the lowest value of each of its test curves."""
    for name, value in least.items():
        MetricSeries.objects.create(run=run, group="test", name=name, least=value, greatest=value + 1)
    for each in (RunState.STARTING, RunState.RUNNING, state):
        states.transition(run, each, reason="a test", now=NOW)


def test_the_form_begins_a_search_whose_runs_have_the_values_as_arguments(
    project: Project, alice: User, version: DefinitionVersion, as_: As, home: Any
) -> None:
    answer = create(as_(alice), project, versions=[version.pk], **{f"command-{version.pk}": "main.py --lr 5 --epochs 2"}, **ASKED)
    search = Search.objects.get()
    assert answer.url == reverse("experiment", args=[search.experiment_id])
    advancing.advance_all(NOW)
    one, two = live()
    for run in (one, two):
        values = run.trial.values
        assert run.command == f"main.py --lr {values['lr']} --epochs 2 --batch-size {values['batch-size']}"
        assert run.name == f"first try: lr={values['lr']} batch-size={values['batch-size']}"
        assert not run.environment
        assert 0.001 <= values["lr"] <= 0.1
        assert values["batch-size"] in ("16", "32")
    finish(one, loss=0.4)
    finish(two, loss=0.2)
    advancing.advance_all(NOW)
    (three,) = live()
    finish(three, state=RunState.FAILED)
    advancing.advance_all(NOW)
    search.refresh_from_db()
    assert (search.state, search.reason) == ("finished", "All of its trials have ended.")
    page = one_line(as_(alice).get(answer.url).content.decode())
    assert "lr = 0.001..0.1 log" in page
    assert "batch-size = 16, 32" in page
    assert f'<b>0.2</b> by <a href="/runs/{two.pk}/">' in page


def test_edit_as_new_asks_for_the_same_search_and_run_again_runs_the_command(
    project: Project, alice: User, version: DefinitionVersion, as_: As
) -> None:
    create(as_(alice), project, versions=[version.pk], **ASKED)
    experiment = Experiment.objects.get()
    form = as_(alice).get(reverse("new_experiment", args=[project.pk]), {"like": experiment.pk}).content.decode()
    assert "lr = 0.001..0.1 log\nbatch-size = 16, 32</textarea>" in form
    assert 'name="trials" value="3"' in form
    as_(alice).post(reverse("run_experiment", args=[experiment.pk]), {"idempotency_key": str(uuid.uuid4())})
    assert TrainingRun.objects.order_by("pk").last().command == version.command
    assert Search.objects.get().trials.count() == 1


@pytest.mark.django_db(transaction=True)
def test_the_next_trial_is_asked_for_when_one_has_ended(
    project: Project, alice: User, version: DefinitionVersion, as_: As, home: Any, said: SentMessages
) -> None:
    create(as_(alice), project, versions=[version.pk], **ASKED)
    create(as_(alice), project, versions=[version.pk], name="plain")
    trial, plain = live()
    said.clear()
    finish(plain)
    assert "advance_searches" not in said.task_names()
    finish(trial, loss=0.1)
    assert said.task_names().count("advance_searches") == 1


def test_a_command_that_its_values_make_too_long_is_refused(project: Project, alice: User, version: DefinitionVersion, as_: As) -> None:
    many = "\n".join(f"{'a' * 190}{n} = 1..9" for n in range(12))
    answer = create(as_(alice), project, versions=[version.pk], **{**ASKED, "parameters": many})
    assert "characters: use at most 2000" in answer.content.decode()
    assert not Experiment.objects.exists()


def test_a_form_that_was_sent_twice_begins_one(project: Project, alice: User, version: DefinitionVersion, as_: As) -> None:
    for _ in range(2):
        answer = create(as_(alice), project, versions=[version.pk], idempotency_key="7a0dd0a4-94f2-4f5f-9a5e-d5a5c0a6f9f1", **ASKED)
        assert answer.status_code == 302
    assert (Search.objects.count(), Experiment.objects.count(), TrainingRun.objects.count()) == (1, 1, 1)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"parameters": "lr 0.1"}, "lr 0.1 has no values: write NAME = VALUES, a line each."),
        ({"parameters": "lr=1..3\nlr=3..5"}, "lr is there twice"),
        ({"parameters": "lr=4..1"}, "give the smaller one first"),
        ({"metric": ""}, "Name the metric that says which is best as its chart does"),
        ({"trials": "0"}, "Give a whole number from 1 to"),
        ({"goal": "both"}, "Select a valid choice"),
        ({"versions": []}, "Choose at least one training definition."),
        ({"commands": "main.py --lr {1,2}"}, "A search varies the arguments of one command, and here are 2"),
        ({"name": ""}, "This field is required."),
    ],
)
def test_what_is_wrong_is_said_and_stays(
    changes: dict[str, Any], says: str, project: Project, alice: User, version: DefinitionVersion, as_: As
) -> None:
    sent = {"versions": [version.pk], **ASKED, **changes}
    if "commands" in sent:
        sent[f"command-{version.pk}"] = sent.pop("commands")
    answer = create(as_(alice), project, **sent)
    assert answer.status_code == 200
    assert says in one_line(answer.content.decode()).replace("&#x27;", "'")
    assert not Experiment.objects.exists()
    told = as_(alice).post(reverse("check_experiment", args=[project.pk]), {"name": "first try", **sent}).json()
    assert says in str(told) or "name" in changes


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("lr", ""),
        ("--lr", ""),
        ("batch_size", ""),
        ("depth", ""),
        ("leaning-rate", "main.py declares no argument leaning-rate, and may end with an error: it has --lr, --batch-size."),
        ("-x", "no argument -x"),
    ],
)
def test_an_argument_that_the_script_does_not_declare_is_remarked_on(
    name: str, says: str, project: Project, alice: User, as_: As, home: Any, said: SentMessages
) -> None:
    version = cast.definition(project, by=alice, files={"main.py": DECLARES})
    sent = {"idempotency_key": str(uuid.uuid4()), "name": "n", "versions": [version.pk], **ASKED, "parameters": f"{name} = 1..3"}
    sent[f"command-{version.pk}"] = "main.py --depth 2"
    found = as_(alice).post(reverse("check_experiment", args=[project.pk]), sent).json()
    assert found["errors"] == {}
    assert says in str(found["notes"].get("parameters", ""))
    assert bool(says) == ("parameters" in found["notes"])


def test_a_search_whose_runs_have_no_such_curve_ends_and_says_which_they_have(
    project: Project, alice: User, version: DefinitionVersion, as_: As, home: Any
) -> None:
    create(as_(alice), project, versions=[version.pk], **{**ASKED, "trials": "40", "at_once": "1"})
    for _ in range(2):
        finish(live()[0], accuracy=0.5)
        advancing.advance_all(NOW)
    search = Search.objects.get()
    assert not live()
    assert (search.state, search.trials.count()) == ("failed", 2)
    assert search.reason == (
        "Its first 2 trials came to no result, so no more are begun. None of its trials has a curve test loss with a finite value; "
        "the last one has test accuracy."
    )


def test_by_the_api(project: Project, alice: User, victor: User, charlie: User, version: DefinitionVersion, home: Any) -> None:
    script = api.of(alice)
    body = {"name": "by api", "version": version.pk, "command": "main.py --lr=1", "metric": "test accuracy", "goal": "maximize"}
    body |= {"parameters": {"lr": [0.5, 2], "layers": "1..4"}, "method": "random", "trials": 2}
    answer = script.post(f"/projects/{project.pk}/searches", body)
    assert answer.status_code == 201, answer.content
    made = answer.json()
    assert (made["name"], made["algorithm"], made["objective"], made["most"]) == ("by api", "Random", "maximize", 2)
    assert made["parameters"] == {"lr": "0.5, 2", "layers": "1..4"}
    assert made["url"].endswith(f"/experiments/{made['experiment']}/")
    (run,) = live()
    (trial,) = made["trials"]
    assert run.command == f"main.py --lr={trial['values']['lr']} --layers {trial['values']['layers']}"
    finish(run, accuracy=0.5)
    advancing.advance_all(timezone.now())
    found = script.get(f"/experiments/{made['experiment']}/search").json()
    assert found["best"]["result"] == 1.5, "the greatest value of its curve"
    by_definition = {"definition": version.definition_id, "name": "newest", "metric": "test loss", "parameters": {"lr": "1..3"}}
    assert script.post(f"/projects/{project.pk}/searches", by_definition).status_code == 201
    assert api.of(victor).post(f"/projects/{project.pk}/searches", body).status_code == 403
    assert api.of(charlie).post(f"/projects/{project.pk}/searches", body).status_code == 404


def test_the_api_says_all_that_is_wrong_by_field(project: Project, alice: User, version: DefinitionVersion) -> None:
    body = {"name": "", "version": version.pk, "parameters": {"lr": "1"}, "metric": "", "trials": 10**9}
    answer = api.of(alice).post(f"/projects/{project.pk}/searches", body)
    assert answer.status_code == 400
    assert set(answer.json()["errors"]) == {"name", "parameters", "metric", "trials"}
    unnamed = {"name": "x", "parameters": {"lr": "1..3"}, "metric": "test loss"}
    assert api.of(alice).post(f"/projects/{project.pk}/searches", unnamed).status_code == 400
    assert not Experiment.objects.exists()


def test_wmla_knows_its_own_searches_only(project: Project, alice: User, version: DefinitionVersion, as_: As) -> None:
    create(as_(alice), project, versions=[version.pk], **ASKED)
    assert wmla.of(alice).json("/platform/rest/deeplearning/v1/hypersearch") == []


def train(run: TrainingRun, *losses: float, state: str = RunState.RUNNING) -> None:
    """An epoch for each of these test losses; and so far it has got."""
    ended = state == RunState.COMPLETED
    for each in (RunState.STARTING, RunState.RUNNING, *([state] if ended else [])):
        states.transition(run, each, reason="a test", now=NOW)
    series = MetricSeries.objects.create(run=run, group="test", name="loss", least=min(losses), greatest=max(losses))
    Metric.objects.bulk_create(
        Metric(series=series, step=10 * epoch, seq=epoch, epoch=epoch, t=0.0, value=loss) for epoch, loss in enumerate(losses, 1)
    )


def test_a_run_that_falls_behind_is_ended_early_and_counts_with_what_it_has(
    project: Project, alice: User, version: DefinitionVersion, as_: As, home: Any
) -> None:
    create(as_(alice), project, versions=[version.pk], **{**ASKED, "trials": "7", "at_once": "1", "early_stop": "on"})
    for last in (0.1, 0.2, 0.3, 0.4):
        train(live()[0], 0.9, 0.5, last, state=RunState.COMPLETED)
        advancing.advance_all(NOW)
    (bad,) = live()
    train(bad, 0.9, 0.8)
    TrainingRun.objects.filter(pk=bad.pk).update(head_node=Node.objects.create(name="here", last_seen_at=NOW))
    advancing.advance_all(NOW)
    bad.refresh_from_db()
    assert bad.state == RunState.STOPPING
    assert bad.stop_reason.endswith(
        "it fell behind in its search: after 2 epochs its best test loss is 0.8, and half of the trials before it had 0.5 or less by then"
    )
    states.transition(bad, RunState.STOPPED, reason=bad.stop_reason, now=NOW)
    advancing.advance_all(NOW)
    assert (bad.trial.ended_early, Search.objects.get().trials.get(run=bad).result) == (True, 0.8)
    (good,) = live()
    train(good, 0.9, 0.4)
    advancing.advance_all(NOW)
    good.refresh_from_db()
    assert good.state == RunState.RUNNING
    assert "5 of 7 have ended, 1 early" in one_line(as_(alice).get(f"/experiments/{good.experiment_id}/").content.decode())


def test_a_run_that_somebody_stops_did_not_fall_behind(
    project: Project, alice: User, version: DefinitionVersion, as_: As, home: Any
) -> None:
    create(as_(alice), project, versions=[version.pk], **{**ASKED, "trials": "7", "at_once": "1", "early_stop": "on"})
    for _ in range(4):
        train(live()[0], 0.9, 0.5, state=RunState.COMPLETED)
        advancing.advance_all(NOW)
    (bad,) = live()
    services.stop_run(bad, by=alice, reason="no more of it")
    advancing.advance_all(NOW)
    trial = Search.objects.get().trials.get(run=bad)
    assert (trial.settled, trial.ended_early, trial.result) == (True, False, None)


def test_the_trials_of_a_search_that_was_stopped_end_too(
    project: Project, alice: User, version: DefinitionVersion, as_: As, home: Any
) -> None:
    create(as_(alice), project, versions=[version.pk], **ASKED)
    advancing.advance_all(NOW)
    one, _ = live()
    for each in (RunState.STARTING, RunState.RUNNING):
        states.transition(one, each, reason="a test", now=NOW)
    TrainingRun.objects.filter(pk=one.pk).update(head_node=Node.objects.create(name="here", last_seen_at=NOW))
    search = Search.objects.get()
    verbs.stop_search(search, by=alice, now=NOW)
    advancing.advance_all(NOW)
    assert [trial.settled for trial in search.trials.order_by("place")] == [False, True], "one is being stopped"
    one.refresh_from_db()
    states.transition(one, RunState.STOPPED, reason="a test", now=NOW)
    advancing.advance_all(NOW)
    assert search.trials.filter(settled=True).count() == 2
    search.refresh_from_db()
    assert (search.state, search.trials.count()) == ("stopped", 2), "and nothing more is begun"


def told(person: User) -> list[tuple[str, str]]:
    return list(Notification.objects.filter(person=person).exclude(kind="project.member").order_by("pk").values_list("kind", "text"))


def test_its_person_is_told_once_that_it_has_ended_and_not_of_each_run(
    project: Project, alice: User, bob: User, version: DefinitionVersion, as_: As, home: Any
) -> None:
    create(as_(bob), project, versions=[version.pk], **{**ASKED, "parameters": "lr = 0.1, 0.2", "trials": "3", "at_once": "1"})
    for loss, state in ((0.5, RunState.COMPLETED), (0.25, RunState.COMPLETED), (0.1, RunState.FAILED)):
        finish(live()[0], state=state, loss=loss)
        advancing.advance_all(NOW)
    best = Search.objects.get().trials.get(place=1)
    said = f"Best: test loss 0.25 with lr {best.values['lr']} (run {best.run_id})."
    assert told(bob) == [("search.ended", f"The search first try has ended: All of its trials have ended. {said}")]
    create(as_(bob), project, versions=[version.pk], **{**ASKED, "name": "second"})
    second = Search.objects.latest("pk")
    verbs.stop_search(second, by=bob, now=NOW)
    assert len(told(bob)) == 1, "who ends it knows"
    create(as_(bob), project, versions=[version.pk], **{**ASKED, "name": "third"})
    verbs.stop_search(Search.objects.latest("pk"), by=alice, now=NOW)
    assert [kind for kind, _ in told(bob)] == ["search.ended", "search.ended", "run.stopped"]
    assert told(bob)[1][1] == "The search third has ended: Stopped by alice."
