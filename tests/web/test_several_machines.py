"""A run over two machines on its pages: what it has where, and where its logs are."""

from __future__ import annotations

import datetime as dt

import pytest
from django.urls import reverse
from django.utils import timezone

from experiments.cluster import scheduling
from experiments.files import runfiles
from experiments.models import ClusterRules, Node, Project, Slot, TrainingRun, User
from tests import cast
from tests.web.conftest import As
from tests.web.text import one_line


@pytest.fixture
def wide(project: Project, alice: User) -> TrainingRun:
    """Alice's run with four slots on alpha, its home, and two on beta."""
    now = timezone.now() - dt.timedelta(seconds=5)
    ClusterRules.objects.update_or_create(pk=1, defaults={"several_machines": True})
    hosts = [cast.Host(cast.node(name, now=now, address=f"{name}.lab")) for name in ("alpha", "beta")]
    run = cast.run(project, by=alice, name="wide", max_slots=6, now=now)
    TrainingRun.objects.filter(pk=run.pk).update(engines=12)
    for second in range(3):
        scheduling.tick(now + dt.timedelta(seconds=second))
        for host in hosts:
            host.apply(now + dt.timedelta(seconds=second))
    run.refresh_from_db()
    return run


def test_its_pages_say_what_it_has_on_which_machine(wide: TrainingRun, alice: User, as_: As) -> None:
    client = as_(alice)
    page = client.get(reverse("run", args=[wide.pk])).content.decode()
    assert "holds 6 of 8 slots, 4 on alpha and 2 on beta: its maximum" in page
    assert "4 on alpha, 2 on beta" in page
    assert "CPU 0 on beta" in client.get(reverse("run_overview", args=[wide.pk])).content.decode()
    cluster = client.get(reverse("cluster")).content.decode()
    assert "alpha: CPU 0, CPU 1, CPU 2, CPU 3; beta: CPU 0, CPU 1" in one_line(cluster)
    assert "beta.lab" in client.get(reverse("node", args=["beta"])).content.decode()


def test_the_logs_of_other_machines_are_named_by_them(wide: TrainingRun, alice: User, as_: As) -> None:
    there = Slot.objects.filter(node=Node.objects.get(name="beta")).first()
    assert there is not None
    for name in ("driver", "agent-beta", f"worker-{there.pk}"):
        folder = runfiles.make(wide) / "log" / name
        folder.mkdir(parents=True)
        (folder / "console.log").write_text(f"{name} speaks\n")
    assert runfiles.log_names(wide) == ["driver", "agent-beta", f"worker-{there.pk}"]
    page = as_(alice).get(reverse("run_logs", args=[wide.pk]), {"name": "agent-beta"}).content.decode()
    assert "agent-beta speaks" in page
    assert f'worker-{there.pk} <span class="quiet">on beta</span>' in page
