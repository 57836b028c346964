"""The pages of code that comes from a git repository: the form, what a version shows of it, and fetching it again."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.urls import reverse

from experiments.models import DefinitionVersion, Project, User
from tests import cast
from tests.gitserver import HOST, NEEDED, TOKEN, GitServer, serving
from tests.web.conftest import As
from tests.web.test_definitions import definition_form
from tests.web.text import one_line

pytestmark = [pytest.mark.django_db, NEEDED]


@pytest.fixture
def server(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitServer]:
    settings.EDT_GIT_ALLOW = [HOST]
    with serving(tmp_path) as server:
        monkeypatch.setenv("SSL_CERT_FILE", str(server.certificate))
        yield server


def test_code_is_fetched_shown_with_its_commit_and_fetched_again(project: Project, bob: User, as_: As, server: GitServer) -> None:
    repository, client = server.make("private"), as_(bob)
    address, new = server.address("private"), reverse("new_definition", args=[project.pk])
    first = repository.commit({"main.py": cast.MAIN_PY})
    form = client.get(new).content.decode()
    assert "Code from a git repository instead" in form
    wrong = client.post(new, definition_form(upload=None, git_address=address, git_credential="guess-of-bob")).content.decode()
    assert "give a deploy key or a token" in wrong.split('id="id_git_address_error"', 1)[1][:400]
    assert "guess-of-bob" not in wrong, "what is secret is not sent back"
    assert address in wrong
    answer = client.post(new, definition_form(upload=None, git_address=address, git_ref="main", git_credential=TOKEN))
    version = DefinitionVersion.objects.get()
    page = client.get(answer.url).content.decode()
    assert (version.git_commit, version.git_ref) == (first, "main")
    assert f"<dt>Commit</dt><dd><code>{first}</code></dd>" in page
    assert f"<code>{address}</code>, <code>main</code>" in one_line(page)
    assert "which is stored encrypted" in page
    assert TOKEN not in page + client.get(reverse("new_version", args=[version.definition.pk])).content.decode()

    again = reverse("fetch_again", args=[version.definition.pk])

    def fetch() -> str:
        sent = {"idempotency_key": str(uuid.uuid4())}
        return client.post(again, sent, follow=True).content.decode()

    assert "Nothing has changed" in fetch()
    second = repository.commit({"main.py": "print(2)\n"})
    assert f"Commit {second[:12]} is saved as version 2." in fetch()
    changes = client.get(reverse("changes", args=[version.definition.newest().pk])).content.decode()
    assert first in changes
    assert second in changes


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"git_address": "https://github.com/a/b"}, "git_address", "not both"),
        ({"upload": None, "git_ref": "main"}, "git_address", "Give an address such as"),
        ({"upload": None, "git_address": "file:///etc"}, "git_address", "Give an address such as"),
        ({"upload": None, "git_address": "https://127.0.0.1/x.git"}, "git_address", "EDT_GIT_ALLOW"),
        ({"upload": None, "git_address": "git@github.com:a/b.git"}, "git_credential", "needs a deploy key"),
        ({"upload": None}, "upload", "or give the address of a git repository"),
    ],
)
def test_what_is_wrong_with_an_address_is_said_beside_it(
    changes: dict[str, Any], field: str, said: str, project: Project, bob: User, as_: As
) -> None:
    page = as_(bob).post(reverse("new_definition", args=[project.pk]), definition_form(**changes)).content.decode()
    assert said in page.split(f'id="id_{field}_error"', 1)[1][:600]
    assert not DefinitionVersion.objects.exists()


def test_code_that_was_uploaded_is_not_fetched_again(project: Project, bob: User, as_: As) -> None:
    version, client = cast.definition(project, by=bob), as_(bob)
    page = reverse("definition", args=[version.definition.pk])
    assert b"Fetch again" not in client.get(page).content
    said = client.post(reverse("fetch_again", args=[version.definition.pk]), {"idempotency_key": str(uuid.uuid4())}, follow=True)
    assert b"was uploaded" in said.content
    assert b"not complete" in client.post(reverse("fetch_again", args=[version.definition.pk]), follow=True).content
