"""Environment variables of projects and training definitions: what runs get, and that nobody is told a secret again."""

from __future__ import annotations

import base64

import pytest
from django.db import connection
from django.utils import timezone

from experiments import services
from experiments.cluster import desired, scheduling
from experiments.definitions import variables
from experiments.errors import DomainError
from experiments.models import EnvironmentVariable, RunState, TrainingRun
from tests import cast
from training_runtime import protocol

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice(db):
    return cast.person("alice")


@pytest.fixture
def project(alice):
    return cast.shared_project(alice, editor=cast.person("bob"), viewer=cast.person("victor"))


def spec_of(run: TrainingRun, node) -> protocol.RunSpec:
    (found,) = (each.spec for each in desired.desired_state(node, now=timezone.now()).runs if each.spec.run == run.pk)
    return found


def started(project, alice, version=None, environment=None) -> tuple[TrainingRun, object]:
    node = cast.node()
    version = version or cast.definition(project, by=alice)
    made = services.create_experiment(project, by=alice, name="try", versions=[version], environment=environment or {})
    run = services.run_experiment(made, by=alice)[0]
    scheduling.tick(now=timezone.now())
    run.refresh_from_db()
    return run, node


def keep(of, by, **said: str) -> None:
    """Secrets begin with s_."""
    for name, value in said.items():
        services.set_variable(of, by=by, name=name, value=value, secret=name.startswith("s_"))


def test_the_definitions_win_over_the_projects_and_the_experiments_over_both(project, alice):
    version = cast.definition(project, by=alice)
    keep(project, alice, A="project", B="project", C="project", s_d="of project", s_e="of project", s_f="of project")
    keep(version.definition, alice, B="definition", C="definition", s_e="of definition", s_f="of definition")
    services.set_variable(version.definition, by=alice, name="s_g", value="plain here", secret=False)
    services.set_variable(project, by=alice, name="s_g", value="hidden there", secret=True)
    run, node = started(project, alice, version, {"C": "experiment", "s_f": "experiment"})
    spec = spec_of(run, node)
    assert spec.env == {"A": "project", "B": "definition", "C": "experiment", "s_f": "experiment", "s_g": "plain here"}
    assert spec.secrets == {"s_d": "of project", "s_e": "of definition"}


def test_a_secret_of_the_definition_wins_over_a_plain_one_of_the_project(project, alice):
    version = cast.definition(project, by=alice)
    services.set_variable(project, by=alice, name="TOKEN", value="plain", secret=False)
    services.set_variable(version.definition, by=alice, name="TOKEN", value="hidden", secret=True)
    run, node = started(project, alice, version)
    assert (spec_of(run, node).env, spec_of(run, node).secrets) == ({}, {"TOKEN": "hidden"})


def test_a_run_keeps_its_plain_ones_and_gets_secrets_as_they_are(project, alice):
    keep(project, alice, RATE="0.1", s_token="first")
    run, node = started(project, alice)
    keep(project, alice, RATE="0.2", MORE="1", s_token="second")
    assert (spec_of(run, node).env, spec_of(run, node).secrets) == ({"RATE": "0.1"}, {"s_token": "second"})
    services.delete_variable(project, by=alice, name="s_token")
    assert spec_of(run, node).secrets == {}


def test_others_do_not_get_them(project, alice):
    other = services.create_project(by=alice, name="Other")
    keep(other, alice, s_token="of the other", A="1")
    keep(cast.definition(project, by=alice, name="beside").definition, alice, s_token="of one beside")
    run, node = started(project, alice)
    assert (spec_of(run, node).env, spec_of(run, node).secrets) == ({}, {})


def test_the_database_has_no_value_of_a_secret_and_runs_have_none(project, alice):
    keep(project, alice, s_token="hf_s3cret-value")
    run, _ = started(project, alice)
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names():
            cursor.execute(f'SELECT * FROM "{table}"')
            for form in ("hf_s3cret-value", base64.b64encode(b"hf_s3cret-value").decode()[:16]):
                assert form not in repr(cursor.fetchall()), table
    assert run.environment == {}


def test_no_words_of_the_runtime_show_them(project, alice):
    keep(project, alice, s_token="hf_s3cret-value")
    run, node = started(project, alice)
    assert "hf_s3cret" not in repr(desired.desired_state(node, now=timezone.now()))
    assert "hf_s3cret" not in repr(spec_of(run, node))


def test_a_secret_of_another_key_fails_a_run_that_has_not_begun_and_says_what_to_do(project, alice, settings):
    keep(project, alice, s_token="hf_s3cret-value")
    run, node = started(project, alice)
    other, _ = started(project, alice)
    TrainingRun.objects.filter(pk=other.pk).update(started_at=timezone.now(), state=RunState.RUNNING)
    settings.SECRET_KEY = "another"
    assert spec_of(other, node).secrets == {}, "one that trains goes on"
    run.refresh_from_db()
    assert run.state == RunState.FAILED
    assert "The secret s_token was saved with another key" in run.state_reason
    settings.SECRET_KEY = "a third"
    services.set_variable(project, by=alice, name="s_token", value="anew", secret=True)
    assert spec_of(other, node).secrets == {"s_token": "anew"}


@pytest.mark.parametrize("name", ["", "1A", "A-B", "Ä", "A B", "LD_PRELOAD", "PYTHONPATH", "PATH", "RESULT_DIR", "EDT_HOME", "RANK"])
@pytest.mark.parametrize("secret", [True, False])
def test_names_that_are_none_or_are_the_studios_are_refused(project, alice, name, secret):
    with pytest.raises(DomainError) as refused:
        services.set_variable(project, by=alice, name=name, value="long enough", secret=secret)
    assert list(refused.value.fields) == ["name"]


@pytest.mark.parametrize("name", ["MASTER_ADDR", "WORLD_SIZE", "TORCHELASTIC_ERROR_FILE", "DLI_MORE", "WMLA_NWORKER"])
def test_names_that_workers_get_are_refused(project, alice, name):
    with pytest.raises(DomainError, match="for each worker its own"):
        services.set_variable(project, by=alice, name=name, value="1", secret=False)


@pytest.mark.parametrize("name", ["HF_TOKEN", "no_proxy", "MLFLOW_TRACKING_URI", "_x1", "OMP_NUM_THREADS", "EDT_CHECKPOINT_MINUTES"])
def test_names_that_people_use_are_taken(project, alice, name):
    assert services.set_variable(project, by=alice, name=f" {name} ", value="1", secret=False).name == name


def test_a_setting_of_the_studio_is_no_secret(project, alice):
    with pytest.raises(DomainError, match="make it a plain variable"):
        services.set_variable(project, by=alice, name="EDT_CHECKPOINT_MINUTES", value="1234", secret=True)


@pytest.mark.parametrize("value", ["", "abc", " abc \n", "a\nbc\n"])
def test_what_could_not_be_hidden_is_no_secret(project, alice, value):
    with pytest.raises(DomainError, match="at least 4 characters"):
        services.set_variable(project, by=alice, name="TOKEN", value=value, secret=True)
    assert services.set_variable(project, by=alice, name="TOKEN", value=value, secret=False)


def test_a_value_comes_as_it_was_typed(project, alice):
    key = "-----BEGIN KEY-----\r\nabcd\r\n-----END KEY-----\r\n"
    kept = services.set_variable(project, by=alice, name="KEY", value=key, secret=True)
    assert variables.decrypt(kept) == key.replace("\r\n", "\n")
    assert variables.decrypt(services.set_variable(project, by=alice, name="TOKEN", value="  pasted\n", secret=True)) == "pasted"


def test_they_are_limited_in_number_and_size(project, alice):
    with pytest.raises(DomainError, match="at most 16000"):
        services.set_variable(project, by=alice, name="A", value="x" * 16_001, secret=False)
    for name in ("A", "B"):
        services.set_variable(project, by=alice, name=name, value="x" * 15_900, secret=False)
    with pytest.raises(DomainError, match="32000 characters in all"):
        services.set_variable(project, by=alice, name="C", value="x" * 300, secret=False)
    services.set_variable(project, by=alice, name="B", value="small again", secret=False)
    for number in range(98):
        services.set_variable(project, by=alice, name=f"N{number}", value="1", secret=False)
    with pytest.raises(DomainError, match="100 variables already"):
        services.set_variable(project, by=alice, name="C", value="1", secret=False)
    services.set_variable(project, by=alice, name="N1", value="2", secret=False)


def test_a_copy_has_the_plain_ones_alone(project, alice):
    version = cast.definition(project, by=alice)
    keep(version.definition, alice, A="1", s_token="hidden")
    other = services.create_project(by=alice, name="Other")
    made = services.copy_definition(version, to=other, by=alice)
    assert list(made.definition.variables.values_list("name", "value", "secret")) == [("A", "1", False)]


def test_they_go_with_what_has_them(project, alice):
    version = cast.definition(project, by=alice)
    keep(version.definition, alice, s_token="hidden")
    keep(project, alice, s_token="hidden")
    services.delete_definition(version.definition, by=alice)
    assert EnvironmentVariable.objects.count() == 1
    services.delete_project(project, by=alice)
    assert EnvironmentVariable.objects.count() == 0
