"""Experiments in the browser: Create and run, with and without script; the page with its runs."""

from __future__ import annotations

import re
import uuid
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from experiments import services
from experiments.models import DefinitionVersion, Experiment, Project, TrainingRun, User
from tests import cast
from tests.conftest import SentMessages
from tests.web.conftest import As, definition_form
from tests.web.seed import Seeded
from tests.web.text import one_line


@pytest.fixture
def version(project: Project, alice: User, said: SentMessages) -> DefinitionVersion:
    return cast.definition(project, by=alice)


def create(client: Client, project: Project, **changes: Any) -> Any:
    sent = {
        "idempotency_key": str(uuid.uuid4()),
        "name": "first try",
        "description": "",
        "source_folder": "",
        "global_command": "",
        **changes,
    }
    return client.post(reverse("new_experiment", args=[project.pk]), sent)


def test_create_and_run_makes_a_run_of_each_definition_and_goes_to_the_page(
    project: Project, alice: User, version: DefinitionVersion, as_: As
) -> None:
    other = cast.definition(project, by=alice, name="resnet")
    answer = create(as_(alice), project, versions=[other.pk, version.pk])
    experiment = Experiment.objects.get()
    assert answer.url == reverse("experiment", args=[experiment.pk])
    assert [part.version for part in experiment.parts.all()] == [other, version]
    assert TrainingRun.objects.filter(experiment=experiment, state="queued").count() == 2
    assert "Queued" in as_(alice).get(answer.url).content.decode()


def test_each_definition_runs_the_command_that_was_typed_for_it(project: Project, alice: User, version: DefinitionVersion, as_: As) -> None:
    other = cast.definition(project, by=alice, name="resnet")
    sent = {"versions": [version.pk, other.pk], f"command-{version.pk}": "main.py --lr 0.1", f"command-{other.pk}": other.command}
    create(as_(alice), project, **sent)
    assert list(TrainingRun.objects.order_by("position").values_list("command", flat=True)) == ["main.py --lr 0.1", other.command]
    again = as_(alice).get(reverse("new_experiment", args=[project.pk]), {"like": Experiment.objects.get().pk}).content.decode()
    assert f'name="command-{version.pk}" value="main.py --lr 0.1"' in again


def test_a_typed_command_that_names_no_script_is_refused_and_stays(
    project: Project, alice: User, version: DefinitionVersion, as_: As
) -> None:
    page = create(as_(alice), project, versions=[version.pk], **{f"command-{version.pk}": "rm -rf <b>"}).content.decode()
    assert 'id="id_versions_error"' in page
    assert 'value="rm -rf &lt;b&gt;"' in page
    assert not Experiment.objects.exists()


def errors(page: str) -> list[tuple[str, str]]:
    """Each error beside a field, as (field, words)."""
    parts = re.split(r'id="id_(\w+)_error"', page)[1:]
    said = [re.findall(r'class="error"><svg.*?</svg>(.*?)</', part.partition("</div>")[0]) for part in parts[1::2]]
    return [(field, words) for field, all_ in zip(parts[::2], said, strict=True) for words in all_]


def test_all_that_is_wrong_is_said_at_once_each_at_its_field(project: Project, alice: User, said: SentMessages, as_: As) -> None:
    silent = cast.definition(project, by=alice, name="silent", command="")
    wrong = cast.definition(project, by=alice, name="wrong")
    client = as_(alice)
    none_of_it = errors(create(client, project, name="", source_folder="nowhere").content.decode())
    assert [field for field, _ in none_of_it] == ["name", "source_folder", "versions"]
    assert none_of_it[2][1] == "Choose at least one training definition."
    typed = {"versions": [silent.pk, wrong.pk], f"command-{wrong.pk}": "missing.py"}
    both = errors(create(client, project, name="", **typed).content.decode())
    assert [(field, words.split(" ")[0]) for field, words in both] == [("name", "This"), ("versions", "silent"), ("versions", "wrong:")]
    over = errors(create(client, project, use_global="on", source_folder="nowhere", **typed).content.decode())
    assert [field for field, _ in over] == ["source_folder", "global_command"], "whose command is overridden has nothing wrong with it"
    assert not Experiment.objects.exists()


def test_the_form_offers_the_scripts_arguments_with_their_types(project: Project, alice: User, as_: As) -> None:
    script = """import argparse
p = argparse.ArgumentParser()
p.add_argument("--epochs", type=int, default=3, help="how often")
p.add_argument("--opt", choices=["sgd", "adam"])
p.add_argument("--amp", action="store_true")
"""
    version = cast.definition(project, by=alice, files={"main.py": script}, command="main.py")
    made = cast.experiment(project, by=alice, versions=[version])
    page = as_(alice).get(reverse("new_experiment", args=[project.pk]), {"like": made.pk}).content.decode()
    form = one_line(page.split('id="associated"')[1].split("</tbody>")[0])
    assert 'data-flags="--epochs" data-kind="whole" data-default="3"' in form
    assert "how often" in form
    assert "<option>adam</option>" in form
    assert 'data-flags="--amp" data-kind="flag" data-default="off"' in form


def test_the_form_says_that_a_plain_loop_wants_another_type_of_training(project: Project, alice: User, as_: As) -> None:
    loop = "import torch\nfor x in data:\n    loss(x).backward()\n"
    version = cast.definition(project, by=alice, files={"main.py": loop}, command="main.py")
    made = cast.experiment(project, by=alice, versions=[version])
    page = as_(alice).get(reverse("new_experiment", args=[project.pk]), {"like": made.pk}).content.decode()
    form = one_line(page.split('id="associated"')[1].split("</tbody>")[0])
    assert "main.py trains by a loop of its own" in form
    assert reverse("new_version", args=[version.definition.pk]) in form


def test_the_same_form_sent_twice_makes_one_experiment_and_one_run(
    project: Project, alice: User, version: DefinitionVersion, as_: As
) -> None:
    idempotency_key = str(uuid.uuid4())
    addresses = {create(as_(alice), project, idempotency_key=idempotency_key, versions=[version.pk]).url for _ in range(2)}
    assert len(addresses) == 1
    assert (Experiment.objects.count(), TrainingRun.objects.count()) == (1, 1)


def test_without_script_a_definition_is_written_on_the_same_form(project: Project, alice: User, said: SentMessages, as_: As) -> None:
    inline = {f"new-{key}": value for key, value in definition_form().items()}
    answer = create(as_(alice), project, **inline)
    assert answer.status_code == 302
    assert Experiment.objects.get().versions.get().definition.name == "lenet"


@pytest.mark.parametrize(
    ("changes", "said_there"),
    [
        ({"name": ""}, 'id="id_name_error"'),
        ({"name": "x" * 300}, "at most 120"),
        ({"versions": []}, "training definition"),
        ({"use_global": "on"}, 'id="id_global_command_error"'),
        ({"source_folder": "../../etc"}, 'id="id_source_folder_error"'),
        ({"source_folder": "no/such/folder"}, 'id="id_source_folder_error"'),
    ],
)
def test_bad_input_is_said_and_what_was_chosen_stays(
    changes: dict[str, Any], said_there: str, project: Project, alice: User, version: DefinitionVersion, as_: As
) -> None:
    page = create(as_(alice), project, **{"versions": [version.pk], "description": "typed before", **changes}).content.decode()
    assert said_there in page
    assert "typed before" in page
    if changes.get("versions", True):
        assert f'<tr data-version="{version.pk}">' in page.split('id="none-associated"')[0]
    assert not Experiment.objects.exists()
    assert not TrainingRun.objects.exists()


def test_the_same_version_runs_once_for_each_of_its_rows_and_values(
    project: Project, alice: User, version: DefinitionVersion, as_: As
) -> None:
    other = cast.definition(project, by=alice, name="resnet", command="main.py -v")
    typed = {f"command-{version.pk}": ["main.py --lr {0.1, 0.3} --layers 64,64", "main.py --lr 1"], f"command-{other.pk}": other.command}
    create(as_(alice), project, versions=[version.pk, other.pk, version.pk], **typed)
    commands = ["main.py --lr 0.1 --layers 64,64", "main.py --lr 0.3 --layers 64,64", "main.py -v", "main.py --lr 1"]
    assert list(TrainingRun.objects.order_by("position").values_list("command", flat=True)) == commands
    again = as_(alice).get(reverse("new_experiment", args=[project.pk]), {"like": Experiment.objects.get().pk}).content.decode()
    table = again.split('id="associated"')[1].split("</tbody>")[0]
    assert re.findall(r'name="command-\d+" value="(.*?)"', table) == commands, "edited as new, each is a row"


def test_without_script_each_line_is_a_run_of_its_own(project: Project, alice: User, version: DefinitionVersion, as_: As) -> None:
    create(as_(alice), project, versions=[version.pk], **{f"command-{version.pk}": "main.py --lr 1\r\n\r\nmain.py --lr {2,3}\r\n"})
    assert [run.name for run in TrainingRun.objects.order_by("position")] == ["first try: lr=1", "first try: lr=2", "first try: lr=3"]


def test_a_global_command_with_a_list_runs_with_each_of_its_values(
    project: Project, alice: User, version: DefinitionVersion, as_: As
) -> None:
    other = cast.definition(project, by=alice, name="resnet", command="")
    create(as_(alice), project, versions=[version.pk, other.pk], use_global="on", global_command="main.py --lr {1,2}")
    runs = TrainingRun.objects.order_by("position")
    wanted = [(each.pk, f"main.py --lr {lr}") for each in (version, other) for lr in (1, 2)]
    assert [(run.version_id, run.command) for run in runs] == wanted


@pytest.mark.parametrize(
    ("command", "says"),
    [("main.py --lr {1,,2}", "empty value"), ("main.py" + " --x {1,2,3}" * 5, "243 runs: at most 100"), ("x.py --lr {1,2}", "x.py is not")],
)
def test_a_list_that_cannot_run_is_said_and_stays(
    command: str, says: str, project: Project, alice: User, version: DefinitionVersion, as_: As
) -> None:
    page = create(as_(alice), project, versions=[version.pk], **{f"command-{version.pk}": command}).content.decode()
    (said,) = (said for field, said in errors(page) if field == "versions")
    assert says in said
    assert f'value="{command}"' in page
    assert not Experiment.objects.exists()


def test_another_projects_definition_cannot_be_run(project: Project, alice: User, charlie: User, said: SentMessages, as_: As) -> None:
    theirs = cast.shared_project(charlie, editor=cast.person("erin"), viewer=cast.person("frank"), name="Theirs")
    version = cast.definition(theirs, by=charlie)
    assert create(as_(alice), project, versions=[version.pk]).status_code == 200
    assert not Experiment.objects.exists()


def test_it_is_run_again_once_per_click(project: Project, alice: User, version: DefinitionVersion, as_: As) -> None:
    experiment = cast.experiment(project, by=alice, versions=[version])
    idempotency_key = str(uuid.uuid4())
    for _ in range(2):
        as_(alice).post(reverse("run_experiment", args=[experiment.pk]), {"idempotency_key": idempotency_key})
    assert experiment.runs.count() == 1


def test_variables_reach_every_run_of_the_experiment_and_its_copies(
    project: Project, alice: User, version: DefinitionVersion, as_: As
) -> None:
    client = as_(alice)
    create(client, project, versions=[version.pk], environment="NCCL_DEBUG=INFO\n\n OPTS=a=b <c>\n")
    experiment, given = Experiment.objects.get(), {"NCCL_DEBUG": "INFO", "OPTS": "a=b <c>"}
    client.post(reverse("run_experiment", args=[experiment.pk]), {"idempotency_key": str(uuid.uuid4())})
    client.post(reverse("duplicate_experiment", args=[experiment.pk]), {"idempotency_key": str(uuid.uuid4())})
    assert [run.environment for run in TrainingRun.objects.all()] == [given, given]
    assert [each.environment for each in Experiment.objects.all()] == [given, given]
    again = client.get(reverse("new_experiment", args=[project.pk]), {"like": experiment.pk}).content.decode()
    assert "NCCL_DEBUG=INFO\nOPTS=a=b &lt;c&gt;</textarea>" in again
    for address in (reverse("experiment_overview", args=[experiment.pk]), reverse("run_overview", args=[TrainingRun.objects.first().pk])):
        assert "<dt><code>OPTS</code></dt><dd><bdi>a=b &lt;c&gt;</bdi></dd>" in client.get(address).content.decode()


@pytest.mark.parametrize(("typed", "says"), [("PATH=/tmp", "PATH could change"), ("1a=1", "letters, digits"), ("NOTHING", "NAME=VALUE")])
def test_a_variable_that_cannot_be_given_is_said_at_its_field(
    typed: str, says: str, project: Project, alice: User, version: DefinitionVersion, as_: As
) -> None:
    page = create(as_(alice), project, versions=[version.pk], environment=typed).content.decode()
    (said,) = (said for field, said in errors(page) if field == "environment")
    assert says in said
    assert not Experiment.objects.exists()


def test_edit_as_new_starts_with_what_was_there(project: Project, alice: User, version: DefinitionVersion, as_: As) -> None:
    experiment = cast.experiment(project, by=alice, versions=[version], name="baseline")
    page = as_(alice).get(reverse("new_experiment", args=[project.pk]), {"like": experiment.pk}).content.decode()
    assert "baseline (copy)" in page
    assert f'<tr data-version="{version.pk}">' in page.split('id="none-associated"')[0]


def test_the_page_has_the_three_tables_with_reasons_and_metrics(studio: Seeded, as_: As) -> None:
    page = as_(studio.alice).get(reverse("experiment", args=[studio.experiment.pk])).content.decode()
    before, rest = page.split('id="progress-title"')
    progress, completed = rest.split('id="completed-title"')
    assert "Queued" not in before, "a table without a run would only push the others down"
    assert f'id="run-{studio.running.pk}"' in progress
    assert "fair share while two people have work" in progress
    assert f'id="run-{studio.completed.pk}"' in completed
    assert f'id="run-{studio.failed.pk}"' in completed
    assert "Test accuracy" in completed


def test_an_experiment_is_deleted_with_its_runs_but_not_while_one_is_live(studio: Seeded, as_: As) -> None:
    client = as_(studio.alice)
    address = reverse("delete_experiment", args=[studio.experiment.pk])
    assert client.post(address).url == reverse("experiment", args=[studio.experiment.pk])
    assert Experiment.objects.filter(pk=studio.experiment.pk).exists()


def test_a_duplicate_has_the_same_parts_and_is_not_run(project: Project, alice: User, version: DefinitionVersion, as_: As) -> None:
    create(as_(alice), project, versions=[version.pk], **{f"command-{version.pk}": "main.py --lr 3"})
    first = Experiment.objects.get()
    idempotency_key = str(uuid.uuid4())
    addresses = {
        as_(alice).post(reverse("duplicate_experiment", args=[first.pk]), {"idempotency_key": idempotency_key}).url for _ in range(2)
    }
    copy = Experiment.objects.exclude(pk=first.pk).get()
    assert addresses == {reverse("experiment", args=[copy.pk])}
    assert (copy.name, copy.parts.get().version, copy.parts.get().command) == ("first try (copy)", version, "main.py --lr 3")
    assert not copy.runs.exists()


def test_an_experiment_without_a_run_says_how_to_make_one(studio: Seeded, as_: As) -> None:
    made = cast.experiment(studio.digits, by=studio.alice, versions=[studio.version], name="later")
    address = reverse("experiment", args=[made.pk])
    for person, words in (
        (studio.alice, "<b>Run</b>, at the top"),
        (User.objects.get(username="victor"), "An editor of this project can run it"),
    ):
        page = as_(person).get(address).content.decode()
        assert words in page
        assert "No training runs found" not in page
    services.run_experiment(made, by=studio.alice)
    assert "Not run yet" not in as_(studio.alice).get(address, {"part": "runs"}).content.decode()
