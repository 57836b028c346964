"""What pages say of machines whose boxes do not keep people's code apart, and who may say that people trust each other."""

from __future__ import annotations

import re

import pytest
from django.urls import reverse

from experiments.models import ClusterRules, Node
from tests.web.conftest import As
from tests.web.seed import Seeded
from tests.web.test_sharing import everything
from tests.web.text import one_line

RUN_PAGES = ("run", "run_overview", "run_logs", "run_media", "run_results")
SAID = "This studio&#x27;s people trust each other"


@pytest.fixture
def weak(studio: Seeded) -> Node:
    Node.objects.update(sandbox_level="landlock")
    return Node.objects.get()


def page(client: object, name: str, *args: object, **query: str) -> str:
    text = client.get(reverse(name, args=args), query).content.decode()  # type: ignore[attr-defined]
    return one_line(text.replace("&#39;", "&#x27;"))


def test_only_an_administrator_says_that_people_trust_each_other(studio: Seeded, as_: As, weak: Node) -> None:
    sent = everything(studio, people_trust_each_other="on", priority_ceiling="5000")
    for person in (studio.alice, studio.bob):
        assert as_(person).post(reverse("sharing"), sent).status_code == 403
    assert not ClusterRules.current().people_trust_each_other
    assert re.search(r'<input[^>]*name="people_trust_each_other"[^>]* disabled', page(as_(studio.alice), "sharing"))
    client = as_(studio.dora)
    assert client.get(reverse("preview_sharing"), sent).status_code == 200
    assert not ClusterRules.current().people_trust_each_other, "a preview writes nothing"
    assert client.post(reverse("sharing"), sent).status_code == 302
    assert ClusterRules.current().people_trust_each_other
    assert "dora said that the people here trust each other with their code" in page(as_(studio.alice), "sharing")
    client.post(reverse("sharing"), everything(studio, priority_ceiling="5000"))
    assert not ClusterRules.current().people_trust_each_other
    assert "dora no longer says that the people here trust each other" in page(as_(studio.alice), "sharing")


def test_pages_of_the_cluster_say_which_machine_refuses_and_what_to_do(studio: Seeded, as_: As, weak: Node) -> None:
    alice, node = as_(studio.alice), reverse("node", args=[weak.name])
    shown = page(alice, "cluster", part="tiles")
    assert "Nothing new is run on" in shown
    assert f'href="{node}"' in shown
    assert "ask an administrator to say under" in shown
    assert "ask an administrator" not in page(as_(studio.dora), "cluster", part="tiles")
    assert "runs nothing new: it does not keep people&#x27;s code apart" in page(alice, "cluster", part="nodes").replace("'", "&#x27;")
    assert "Runs nothing new" in page(alice, "node", weak.name)
    assert "so it runs nothing new of the 5 people here" in page(alice, "sharing")


def test_every_page_of_a_run_says_that_people_trust_each_other_where_a_box_does_not_keep_them_apart(
    studio: Seeded, as_: As, weak: Node
) -> None:
    alice, node = as_(studio.alice), reverse("node", args=[weak.name])
    run = studio.running
    assert SAID not in page(alice, "run", run.pk).replace("'", "&#x27;")
    ClusterRules.objects.update(people_trust_each_other=True)
    for name in RUN_PAGES:
        shown = page(alice, name, run.pk).replace("'", "&#x27;")
        assert SAID in shown, name
        assert f'<a href="{node}"><bdi>{weak.name}</bdi></a> (landlock) does not keep their code apart.' in shown, name
    assert "Nothing new is run on" not in page(alice, "cluster")
    assert "they trust each other" in page(alice, "cluster", part="nodes")
    assert "People trust each other" in page(alice, "node", weak.name)
    Node.objects.update(sandbox_level="user+landlock")
    assert SAID not in page(alice, "run", run.pk).replace("'", "&#x27;"), "there it does"
    assert "It keeps people&#x27;s code apart." in page(alice, "node", weak.name)
