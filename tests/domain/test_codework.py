"""Code that was written to take for ever, or all memory: the pages go on without what it would have shown."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from django.test import Client
from django.urls import reverse

from experiments import services
from experiments.definitions import codework, scriptargs
from experiments.models import Project, User
from experiments.selectors import code
from tests import cast

DEEP = "if True:\n    X = " + "1+" * 5000 + "1\n"
SUM = "X = " + "1+" * 3000 + "1\nimport argparse\nargparse.ArgumentParser().add_argument('--lr', default=" + "1+" * 3000 + "1)\n"


def as_person(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.mark.parametrize("source", [DEEP, SUM, "X = " + "(" * 3000 + ")" * 3000, "-" * 100_000 + "1", "f(" * 500 + ")" * 500])
def test_a_script_that_is_nested_too_deep_is_one_of_which_nothing_is_known(source: str) -> None:
    assert scriptargs.read(source).runnable


def test_the_pages_of_such_a_script_are_shown(project: Project, bob: User, said: object) -> None:
    version = cast.definition(project, by=bob, files={"main.py": SUM, "deep.py": DEEP})
    client = as_person(bob)
    for address in (
        reverse("definition", args=[version.definition.pk]),
        reverse("new_experiment", args=[project.pk]),
        reverse("version_row", args=[version.pk]),
        reverse("code", args=[version.pk]),
    ):
        assert client.get(address).status_code == 200, address


def test_texts_whose_comparison_would_take_for_ever_are_not_compared_line_by_line(project: Project, bob: User, said: object) -> None:
    lines = [f"{number:02x}" for number in range(150)] * 800
    texts = [random.Random(seed).sample(lines, len(lines)) for seed in (1, 2)]
    first = cast.definition(project, by=bob, files={"main.py": "a = 1\n", "z.txt": "\n".join(texts[0])})
    upload = cast.zipped({"main.py": "a = 2\n", "z.txt": "\n".join(texts[1])})
    second = services.add_version(first.definition, by=bob, upload=upload, file_name="code.zip", command="main.py")
    page = as_person(bob).get(reverse("changes", args=[second.pk])).content.decode()
    assert "a = 2" in page
    assert page.count("too much to show") == 1


def test_large_files_are_compared_by_size_first_and_read_within_a_budget(
    project: Project, bob: User, said: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = {"main.py": "", "a.bin": b"\0" * 900_000, "b.bin": b"\0" * 900_000, "c.bin": b"\0" * 500_000}
    first = cast.definition(project, by=bob, files=old)
    upload = cast.zipped({**old, "main.py": " ", "c.bin": b"\0" * 500_001})
    second = services.add_version(first.definition, by=bob, upload=upload, file_name="code.zip", command="main.py")
    monkeypatch.setattr(code, "MOST_BYTES_COMPARED", 1_000_000)
    monkeypatch.setattr(Path, "read_bytes", lambda path: pytest.fail(f"all of {path} at once"))
    assert {change.path: change.what for change in code.changes(first.bundle, second.bundle)} == {
        "main.py": "changed",
        "b.bin": "not compared",
        "c.bin": "changed",
    }


def test_new_experiment_reads_the_scripts_of_what_is_chosen_alone(
    project: Project, bob: User, said: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = [cast.definition(project, by=bob, name=f"net {n}", files={"main.py": f"x = {n}\n"}) for n in range(3)]
    read: list[str] = []
    really = code.scripts
    monkeypatch.setattr(code, "scripts", lambda bundle: [read.append(bundle.sha256), really(bundle)][1])
    client, address = as_person(bob), reverse("new_experiment", args=[project.pk])
    page = client.get(address).content.decode()
    assert page.count("data-existing=") == 3
    assert read == []
    client.post(address, {"name": "", "versions": [versions[1].pk]})
    assert read == [versions[1].bundle.sha256]
    row = client.get(reverse("version_row", args=[versions[0].pk])).content.decode()
    assert f'data-version="{versions[0].pk}"' in row


def test_what_is_too_much_ends_and_says_so_and_the_next_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    assert codework.ask("coloured", path="main.py", text="x = '<b>'").count("&lt;b&gt;") == 1
    assert codework.ask("nothing of the kind") is None
    monkeypatch.setattr(codework, "WALL_S", 0.0)
    assert codework.ask("coloured", path="main.py", text="x") is None
