"""A run that failed for the want of a package: one click makes the version that requires it."""

from __future__ import annotations

import uuid
import zipfile

import pytest
from django.test import Client
from django.urls import reverse

from experiments import services
from experiments.files import bundles
from experiments.models import DefinitionVersion, Project, TrainingRun, User
from tests import cast
from tests.web.conftest import As
from training_runtime.elastic.driver import advice


def failed(project: Project, by: User, files: dict[str, str | bytes], *, name: str = "yaml", **said: str) -> TrainingRun:
    version = cast.definition(project, by=by, files=files, **said)  # type: ignore[arg-type]
    run = services.run_experiment(cast.experiment(project, by=by, versions=[version]), by=by)[0]
    error = ModuleNotFoundError(f"No module named {name!r}", name=name)
    run.state, run.error_message = "failed", f"ModuleNotFoundError: {error}{advice.after(error)}"
    run.save()
    return run


def click(client: Client, run: TrainingRun) -> str:
    """What the page says after it."""
    sent = {"idempotency_key": str(uuid.uuid4())}
    return client.post(reverse("add_package", args=[run.pk]), sent, follow=True).content.decode()


def content(version: DefinitionVersion) -> dict[str, bytes]:
    with zipfile.ZipFile(bundles.zip_path(version.bundle.sha256)) as kept:
        return {entry.filename: kept.read(entry) for entry in kept.infolist() if not entry.is_dir()}


CODES = {
    "without requirements": ({"main.py": "import no_yaml"}, "main.py", "requirements.txt", b"no-such-package\n"),
    "with some, and no line break at their end": (
        {"main.py": "", "requirements.txt": "tqdm>=4", "data.bin": b"\0\1"},
        "main.py",
        "requirements.txt",
        b"tqdm>=4\nno-such-package\n",
    ),
    "below a folder": (
        {"top/main.py": "", "top/requirements.txt": "tqdm\n"},
        "main.py",
        "top/requirements.txt",
        b"tqdm\nno-such-package\n",
    ),
    "beside the script": (
        {"main.py": "", "requirements.txt": "rich\n", "train/go.py": "", "train/requirements.txt": "tqdm\n"},
        "train/go.py",
        "train/requirements.txt",
        b"tqdm\nno-such-package\n",
    ),
}


@pytest.mark.parametrize("code", CODES)
def test_the_next_version_requires_it_and_is_else_the_same(project: Project, alice: User, as_: As, code: str) -> None:
    files, command, path, expected = CODES[code]
    run = failed(project, alice, files, name="no-such-package", command=command, network="outward", device="cpu")  # type: ignore[arg-type]
    client = as_(alice)
    assert "Add no-such-package to its packages" in client.get(reverse("run", args=[run.pk])).content.decode()
    assert "Version 2 requires no-such-package too." in click(client, run)
    made, before = run.version.definition.newest(), run.version
    assert content(made) == {**content(before), path: expected}
    assert "no-such-package" in made.requirements
    same = ("framework", "command", "device", "distributed", "max_slots", "network", "packages")
    assert [getattr(made, name) for name in same] == [getattr(before, name) for name in same]
    assert "requires no-such-package already" in click(client, run)
    assert run.version.definition.versions.count() == 2


def test_the_name_that_is_imported_leads_to_the_package_that_has_it(project: Project, alice: User, as_: As) -> None:
    run = failed(project, alice, {"main.py": "import yaml"})
    assert "Version 2 requires pyyaml too." in click(as_(alice), run)


def test_of_a_package_whose_later_versions_lack_it_an_earlier_one_is_added(project: Project, alice: User, as_: As) -> None:
    run = failed(project, alice, {"main.py": "import pkg_resources"}, name="pkg_resources")
    assert "Version 2 requires setuptools&lt;81 too." in click(as_(alice), run)
    assert content(run.version.definition.newest())["requirements.txt"] == b"setuptools<81\n"
    assert "requires setuptools&lt;81 already" in click(as_(alice), run)


def test_packages_of_a_pyproject_are_left_to_their_author(project: Project, alice: User, as_: As) -> None:
    run = failed(project, alice, {"main.py": "", "pyproject.toml": '[project]\nname = "x"\nversion = "1"\ndependencies = ["tqdm"]\n'})
    assert "Add a line pyyaml to pyproject.toml by hand" in click(as_(alice), run)
    assert run.version.definition.versions.count() == 1


def test_nothing_is_offered_where_packages_do_not_come_from_an_upload_or_nothing_is_missing(project: Project, alice: User, as_: As) -> None:
    run, client = failed(project, alice, {"main.py": ""}), as_(alice)
    DefinitionVersion.objects.update(git_address="https://example.org/x.git")
    assert "to its packages" not in client.get(reverse("run", args=[run.pk])).content.decode()
    assert "There is no package to add" in click(client, run)
    DefinitionVersion.objects.update(git_address="", packages="studio")
    assert "There is no package to add" in click(client, run)
    DefinitionVersion.objects.update(packages="own")
    TrainingRun.objects.update(error_message="ValueError: add a line <b>x</b> to requirements.txt in the upload")
    assert "There is no package to add" in click(client, run)


def test_who_may_only_look_is_not_offered_it(project: Project, alice: User, victor: User, as_: As) -> None:
    run = failed(project, alice, {"main.py": ""})
    client = as_(victor)
    assert "to its packages" not in client.get(reverse("run", args=[run.pk])).content.decode()
    assert client.post(reverse("add_package", args=[run.pk]), {"idempotency_key": str(uuid.uuid4())}).status_code == 403


def test_the_same_form_makes_one_version(project: Project, alice: User) -> None:
    run, form = failed(project, alice, {"main.py": ""}), uuid.uuid4()
    first = services.add_package(run, by=alice, idempotency_key=form)
    assert (first[0].number, content(first[0])["requirements.txt"]) == (2, b"pyyaml\n")
    assert services.add_package(run, by=alice, idempotency_key=form) == first
    assert run.version.definition.versions.count() == 2
