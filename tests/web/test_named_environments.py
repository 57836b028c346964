"""The pages of environments that administrators offer by name, and the forms that choose one."""

from __future__ import annotations

import html
import json
import uuid
from typing import Any

import pytest
from django.urls import reverse

from experiments import services
from experiments.models import DefinitionVersion, EnvironmentBuild, NamedEnvironment, Project, TrainingRun, User
from tests import cast
from tests.conftest import SentMessages
from tests.web import wmla
from tests.web.conftest import As, definition_form
from tests.web.seed import Seeded
from tests.web.text import one_line

pytestmark = pytest.mark.django_db


def form(**changes: str) -> dict[str, str]:
    return {"idempotency_key": str(uuid.uuid4()), "name": "vision", "description": "for pictures", "text": "tqdm\npandas>=2\n", **changes}


def shown(answer: Any) -> str:
    return html.unescape(answer.content.decode())


def told(answer: Any) -> str:
    return " ".join(str(message) for message in answer.context["messages"])


def offer(dora: User, **said: str) -> NamedEnvironment:
    facts = {"name": "vision", "text": "tqdm\n", **said}
    return services.create_named_environment(by=dora, **facts).environment  # type: ignore[arg-type]


def at(verb: str, environment: NamedEnvironment) -> str:
    return reverse(f"{verb}_named_environment" if verb else "named_environment", args=[environment.pk])


def test_an_administrator_offers_one_and_everybody_reads_it(as_: As, dora: User, alice: User, victor: User, charlie: User) -> None:
    client = as_(dora)
    answer = client.post(reverse("new_named_environment"), form(), follow=True)
    assert told(answer) == "vision is offered."
    environment = NamedEnvironment.objects.get()
    for person in (dora, alice, victor, charlie):
        assert "for pictures" in shown(as_(person).get(reverse("named_environments")))
        page = shown(as_(person).get(at("", environment)))
        assert "pandas>=2" in page
        assert ("Renew" in page) == person.is_staff
        assert reverse("named_environments" if not person.is_staff else "environments") in shown(as_(person).get(reverse("cluster")))
    assert reverse("named_environments") in shown(client.get(reverse("environments")))


def test_a_form_that_is_sent_twice_offers_one(as_: As, dora: User) -> None:
    sent = form()
    for _ in range(2):
        assert as_(dora).post(reverse("new_named_environment"), sent).status_code == 302
    assert NamedEnvironment.objects.count() == 1


def test_a_wrong_text_comes_back_with_its_line(as_: As, dora: User) -> None:
    page = shown(as_(dora).post(reverse("new_named_environment"), form(text="\n\ntqdm\nnot a requirement\n")))
    assert "environment vision line 4: not a requirement is not a requirement: write it as NAME" in page
    assert "not a requirement\n</textarea>" in page.replace("\r", ""), "what was typed is not lost"
    assert not NamedEnvironment.objects.exists()
    environment = offer(dora)
    page = shown(as_(dora).post(at("change", environment), form(text="torch @ https://x.example.org/torch.whl\n")))
    assert "environment vision line 1: torch comes from an address" in page
    for text in ("", "  \n", "# none\n"):
        assert "ame" in "".join(as_(dora).post(at("change", environment), form(text=text)).context["form"].errors["text"])
    assert environment.versions.count() == 1


def test_others_change_nothing(as_: As, dora: User, alice: User) -> None:
    environment = offer(dora)
    for verb in ("change", "renew", "build", "retire", "delete"):
        assert as_(alice).post(at(verb, environment), form(text="numpy")).status_code == 403, verb
    assert as_(alice).post(reverse("new_named_environment"), form(name="other")).status_code == 403
    environment.refresh_from_db()
    assert (NamedEnvironment.objects.count(), environment.versions.count(), environment.retired_at) == (1, 1, None)
    assert as_(dora).get(reverse("named_environment", args=[999])).status_code == 404


def test_edit_and_renew_make_versions_and_retire_takes_it_away(as_: As, dora: User) -> None:
    environment, client = offer(dora), as_(dora)
    assert "tqdm" in shown(client.get(at("change", environment)))
    assert told(client.post(at("change", environment), form(text="tqdm\nrich\n"), follow=True)) == "Saved: vision version 2."
    sent = {"idempotency_key": str(uuid.uuid4())}
    for _ in range(2):  # a double click renews once
        assert "vision version 3 is resolved afresh" in told(client.post(at("renew", environment), sent, follow=True))
    assert [each.number for each in environment.versions.all()] == [3, 2, 1]
    assert "load the page again" in told(client.post(at("renew", environment), {}, follow=True))
    assert "It is retired" in told(client.post(at("retire", environment), follow=True))
    assert ">retired<" in shown(client.get(reverse("named_environments")))
    assert "offered again" in told(client.post(at("retire", environment), {"retired": "no"}, follow=True))
    environment.refresh_from_db()
    assert environment.retired_at is None


def test_build_now_says_where_and_the_page_what_became_of_it(as_: As, studio: Seeded) -> None:
    client, environment = as_(studio.dora), NamedEnvironment.objects.get()
    page = shown(client.get(at("", environment)))
    assert "vision 2026 line 3: tensorboard is not in the package index" in page
    assert "$ uv pip compile" in page
    assert "ResNet-18" not in page, "of a project that is not the administrator's"
    assert "1 training definition in all" in page
    assert "ResNet-18" in shown(as_(studio.bob).get(at("", environment)))
    assert told(client.post(at("build", environment), follow=True)) == "It is being built on 1 machine."
    assert EnvironmentBuild.objects.get(in_advance=True).state == "wanted"
    said = told(client.post(at("delete", environment), follow=True))
    assert said.startswith("Versions of 1 training definition use it (ResNet-18 in CIFAR with residual nets): retire it instead")
    other = offer(studio.dora)
    assert told(client.post(at("delete", other), follow=True)) == "vision is deleted."


def test_what_it_came_to_is_everybodys_to_read(as_: As, studio: Seeded, stranger: User) -> None:
    built = EnvironmentBuild.objects.get(state="failed").environment
    page = shown(as_(stranger).get(reverse("environment", args=[built.pk])))
    assert "vision 2026 version 2" in page
    assert as_(stranger).post(reverse("drop_environment", args=[built.pk])).status_code == 403


def test_the_forms_of_definitions_offer_it(as_: As, project: Project, alice: User, dora: User) -> None:
    client, new = as_(alice), reverse("new_definition", args=[project.pk])
    assert "Offered by administrators" not in shown(client.get(new))
    environment = offer(dora)
    value = f'value="named:{environment.pk}"'
    assert value in shown(client.get(new))
    assert client.post(new, definition_form(packages=f"named:{environment.pk}")).status_code == 302
    version = DefinitionVersion.objects.get()
    assert (version.packages, str(version.named)) == ("named", "vision version 1")
    page = shown(client.get(reverse("definition", args=[version.definition.pk])))
    assert f'<a href="{at("", environment)}">vision version 1</a>' in one_line(page)
    services.retire_named_environment(environment, by=dora, retired=True)
    assert value not in shown(client.get(new))
    refused = client.post(new, definition_form(packages=f"named:{environment.pk}"))
    assert refused.context["form"].errors["packages"]
    again = reverse("new_version", args=[version.definition.pk])
    assert "vision (retired)" in shown(client.get(again))
    sent = definition_form(upload=None, packages=f"named:{environment.pk}", command="main.py --epochs 4")
    assert client.post(again, sent).status_code == 302
    assert version.definition.newest().named == version.named
    page = shown(client.get(reverse("definition", args=[version.definition.pk])))
    assert ">retired<" in page
    sent = definition_form(upload=None, packages="own")
    assert client.post(again, sent).status_code == 302
    newest = version.definition.newest()
    assert "vision version 1" in shown(client.get(reverse("changes", args=[newest.pk])))
    assert "retired" not in shown(client.get(again)), "it has it no more"


def submitted(script: wmla.Script, args: str) -> DefinitionVersion:
    code = definition_form()["upload"]
    code.name = "code.modelDir.tar"
    where = f"{wmla.DL}/execs/?args={args}"
    answer = script.client.post(where, {"file": code}, headers=script.headers)
    assert answer.status_code < 300, answer.content
    return DefinitionVersion.objects.latest("pk")


def test_a_script_names_it_as_the_platform_s_do(alice: User, dora: User, said: SentMessages) -> None:
    environment = offer(dora)
    script, begin = wmla.of(alice), "--exec-start edtPyTorch --model-main main.py"
    plain = submitted(script, begin)
    named = submitted(script, f"{begin} --conda-env-name Vision")
    assert (plain.named, str(named.named)) == (None, "vision version 1")
    assert named.definition == plain.definition
    assert submitted(script, f"{begin} --conda-env-name vision") == named, "the same again is the same version"
    services.renew_named_environment(environment, by=dora)
    assert str(submitted(script, f"{begin} --conda-env-name vision").named) == "vision version 2"
    count = DefinitionVersion.objects.count()
    submitted(script, f"{begin} --conda-env-name dlipy3")
    assert DefinitionVersion.objects.count() == count, "a name that is not offered means nothing here, as ever"
    services.retire_named_environment(environment, by=dora, retired=True)
    assert str(submitted(script, f"{begin} --conda-env-name vision --numWorker 2").named) == "vision version 2"
    code = definition_form()["upload"]
    args = "--exec-start edtPyTorch --model-main main.py --model-dir other --conda-env-name vision"
    answer = script.client.post(f"{wmla.DL}/execs/?args={args}", {"file": code}, headers=script.headers)
    assert answer.status_code == 400
    assert "not offered any more" in json.dumps(answer.content.decode())


def test_a_missing_package_is_to_be_added_where_the_packages_come_from(as_: As, project: Project, alice: User, dora: User) -> None:
    offer(dora)
    as_(alice).post(reverse("new_definition", args=[project.pk]), definition_form(packages=f"named:{NamedEnvironment.objects.get().pk}"))
    made = cast.experiment(project, by=alice, versions=[DefinitionVersion.objects.get()])
    run = services.run_experiment(made, by=alice)[0]
    advice = "ModuleNotFoundError: No module named 'rich'. The package rich is not installed where scripts run: add a line"
    TrainingRun.objects.filter(pk=run.pk).update(state="failed", error_message=advice)
    assert "no file of the upload adds to them: ask an administrator" in one_line(shown(as_(alice).get(reverse("run", args=[run.pk]))))
    DefinitionVersion.objects.update(packages="own", named=None)
    assert "no file of the upload" not in shown(as_(alice).get(reverse("run", args=[run.pk])))
