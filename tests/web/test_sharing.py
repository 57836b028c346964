"""The scheduling policy and what takes nodes and slots out of service: who may, what it would do, and the history everybody can read."""

from __future__ import annotations

import datetime as dt

from django.urls import reverse
from django.utils import timezone

from experiments import services
from experiments.models import ClusterChange, ClusterRules, Grant, Project, Slot, TrainingRun, User
from tests.web.conftest import As
from tests.web.seed import Seeded


def everything(studio: Seeded, **changed: str) -> dict[str, str]:
    """The form of the rules as the browser sends it."""
    sent = {"policy": "fair_share", "reason": ""}
    sent |= {f"weight-{name}": "1" for name in User.objects.values_list("username", flat=True)}
    sent |= {"new_projects_network": "on"} | {f"network-{pk}": "on" for pk in Project.objects.values_list("pk", flat=True)}
    return sent | changed


def test_an_administrator_changes_policy_weights_and_quotas_and_everybody_reads_why(studio: Seeded, as_: As) -> None:
    project = str(studio.digits.pk)
    sent = everything(studio, policy="priority", reason="the paper is due")
    sent |= {"weight-alice": "2", "quota-bob": "3", f"project-{project}": "2"}
    assert as_(studio.dora).post(reverse("sharing"), sent).status_code == 302
    rules = ClusterRules.current()
    assert (rules.policy, rules.person_quota, rules.project_quota) == ("priority", {"bob": 3}, {project: 2})
    assert User.objects.get(username="alice").weight == 2
    page = as_(studio.alice).get(reverse("sharing")).content.decode()
    assert "dora changed the policy from fair share to priority" in page
    assert "dora changed alice&#x27;s weight from 1 to 2" in page
    assert "dora changed bob&#x27;s quota from none to 3 slots" in page
    assert "the paper is due" in page
    assert "Apply" not in page
    assert "the paper is due" in as_(studio.alice).get(reverse("cluster"), {"part": "feed"}).content.decode()


def test_what_is_stored_comes_back_and_an_empty_quota_is_none(studio: Seeded, as_: As) -> None:
    client, before = as_(studio.dora), ClusterChange.objects.count()
    client.post(reverse("sharing"), everything(studio, **{"quota-bob": "3"}))
    assert 'name="quota-bob" value="3"' in client.get(reverse("sharing")).content.decode()
    client.post(reverse("sharing"), everything(studio, **{"quota-bob": ""}))
    assert ClusterRules.current().person_quota == {}
    assert ClusterChange.objects.count() == before + 2
    client.post(reverse("sharing"), everything(studio))
    assert ClusterChange.objects.count() == before + 2, "what changes nothing leaves no row"


def test_the_ceiling_of_priority_and_the_quota_of_new_projects_are_rules_too(studio: Seeded, as_: As) -> None:
    client = as_(studio.dora)
    assert 'name="priority_ceiling" value="5000"' in client.get(reverse("sharing")).content.decode()
    client.post(reverse("sharing"), everything(studio, priority_ceiling="7000", new_project_quota="2"))
    page = as_(studio.alice).get(reverse("sharing")).content.decode()
    assert "dora changed the highest priority without an administrator from 5000 to 7000" in page
    assert "dora changed the quota of new projects from none to 2 slots" in page
    made = services.create_project(by=studio.alice, name="Small")
    assert ClusterRules.current().project_quota == {str(made.pk): 2}
    client.post(reverse("sharing"), everything(studio, priority_ceiling="7000", new_project_quota=""))
    assert ClusterRules.current().new_project_quota is None
    services.create_project(by=studio.alice, name="Free")
    assert len(ClusterRules.current().project_quota) <= 1
    refused = client.post(reverse("sharing"), everything(studio, priority_ceiling="0"))
    assert "Give a whole number from 1 to" in refused.content.decode()


def test_the_time_for_leaving_a_slot_is_a_rule_and_counts_down_on_the_runs_page(studio: Seeded, as_: As) -> None:
    client = as_(studio.dora)
    client.post(reverse("sharing"), everything(studio, release_grace_s="90"))
    assert "dora changed the time for leaving a slot from 30 s to 90 s" in client.get(reverse("sharing")).content.decode()
    for wrong in ("0", "3601"):
        client.post(reverse("sharing"), everything(studio, release_grace_s=wrong))
    client.post(reverse("sharing"), everything(studio, release_grace_s=""))
    assert ClusterRules.current().release_grace_s == 90
    grant = Grant.objects.filter(run=studio.running, released_at=None).first()
    assert grant is not None
    for asked_ago, said in ((20, "within 1 min"), (95, ">now<")):
        asked = timezone.now() - dt.timedelta(seconds=asked_ago)
        Grant.objects.filter(pk=grant.pk).update(release_requested_at=asked)
        page = as_(studio.alice).get(reverse("run_overview", args=[studio.running.pk])).content.decode()
        assert f'leaving <span data-until="{asked.timestamp() + 90:.3f}">' in page
        assert said in page


def test_the_network_is_closed_to_a_project_and_to_those_to_come(studio: Seeded, as_: As) -> None:
    client, pk = as_(studio.dora), str(studio.digits.pk)
    sent = everything(studio)
    del sent[f"network-{pk}"], sent["new_projects_network"]
    client.post(reverse("sharing"), sent)
    page = as_(studio.alice).get(reverse("sharing")).content.decode()
    assert f"dora closed the network to project {pk}" in page
    assert "dora no longer allows new projects the network" in page
    made = services.create_project(by=studio.alice, name="Closed")
    assert sorted(ClusterRules.current().without_network) == sorted([pk, str(made.pk)])
    client.post(reverse("sharing"), everything(studio))
    assert not ClusterRules.current().without_network
    assert f"opened the network to project {', '.join(sorted([pk, str(made.pk)]))}" in client.get(reverse("sharing")).content.decode()


def test_the_disk_of_a_project_is_a_rule_and_its_members_read_what_it_takes(studio: Seeded, as_: As) -> None:
    client, pk = as_(studio.dora), str(studio.digits.pk)
    TrainingRun.objects.filter(pk=studio.running.pk).update(disk_bytes=3 * 10**9, disk_files=12, disk_counted_at=timezone.now())
    client.post(reverse("sharing"), everything(studio, **{f"disk-{pk}": "2", "new_project_disk": "50"}))
    assert ClusterRules.current().project_disk == {pk: 2}
    page = as_(studio.alice).get(reverse("sharing")).content.decode()
    assert f"dora changed the disk of project {pk} from no limit to 2 GB" in page
    assert "dora changed the disk of new projects from no limit to 50 GB" in page
    assert "takes 3.0 GB<" in page
    overview = as_(studio.bob).get(reverse("project", args=[pk])).content.decode()
    assert "On the disk of 2.0 GB: 3.0 GB of runs" in overview
    assert "No run begins and no data is taken until there is room" in overview
    assert "in 12 files and folders" in as_(studio.bob).get(reverse("run_overview", args=[studio.running.pk])).content.decode()
    client.post(reverse("sharing"), everything(studio))
    assert ClusterRules.current().project_disk == {}
    assert "Give a whole number from 1 to" in client.post(reverse("sharing"), everything(studio, **{f"disk-{pk}": "0"})).content.decode()


def test_the_disk_of_each_person_is_a_rule(studio: Seeded, as_: As) -> None:
    client = as_(studio.dora)
    client.post(reverse("sharing"), everything(studio, each_person_disk="40"))
    assert ClusterRules.current().each_person_disk == 40
    page = as_(studio.alice).get(reverse("sharing")).content.decode()
    assert "dora changed the disk of each person from no limit to 40 GB" in page
    client.post(reverse("sharing"), everything(studio))
    assert ClusterRules.current().each_person_disk is None


def test_runs_may_use_several_machines_once_an_administrator_says_so(studio: Seeded, as_: As) -> None:
    assert not ClusterRules.current().several_machines
    client = as_(studio.dora)
    page = client.get(reverse("sharing")).content.decode()
    assert 'name="several_machines"' in page
    assert "There is only one machine." in page
    assert client.get(reverse("preview_sharing"), everything(studio, several_machines="on")).status_code == 200
    client.post(reverse("sharing"), everything(studio, several_machines="on"))
    assert ClusterRules.current().several_machines
    assert "dora allowed runs to use several machines" in as_(studio.alice).get(reverse("sharing")).content.decode()
    client.post(reverse("sharing"), everything(studio))
    assert not ClusterRules.current().several_machines
    assert "no longer allows runs to use several machines" in client.get(reverse("sharing")).content.decode()


def test_the_quota_of_a_deleted_project_is_in_nobodys_way(studio: Seeded, as_: As) -> None:
    rules = ClusterRules.current()
    rules.project_quota = {"4711": 2}
    rules.save()
    assert as_(studio.dora).post(reverse("sharing"), everything(studio, policy="priority")).status_code == 302
    assert (ClusterRules.current().policy, ClusterRules.current().project_quota) == ("priority", {})


def test_nonsense_is_refused_beside_its_field_and_nothing_is_stored(studio: Seeded, as_: As) -> None:
    answer = as_(studio.dora).post(reverse("sharing"), everything(studio, policy="priority", **{"weight-alice": "-1"}))
    assert answer.status_code == 200
    assert "Give a number from 0.01 to 1000" in answer.content.decode()
    lottery = as_(studio.dora).post(reverse("sharing"), everything(studio, policy="lottery"))
    assert "lottery is not one of the available choices" in lottery.content.decode()
    assert ClusterRules.current().policy == "fair_share"
    preview = as_(studio.dora).get(reverse("preview_sharing"), everything(studio, **{"quota-bob": "many"})).content.decode()
    assert "Quota of bob" in preview


def test_others_may_read_but_not_change_and_see_their_own_projects_alone(studio: Seeded, stranger: User, as_: As) -> None:
    assert as_(studio.alice).post(reverse("sharing"), everything(studio, policy="priority")).status_code == 403
    assert ClusterRules.current().policy == "fair_share"
    assert studio.digits.name in as_(studio.alice).get(reverse("sharing")).content.decode()
    assert studio.digits.name not in as_(stranger).get(reverse("sharing")).content.decode()


def test_a_preview_of_the_rules_says_what_would_become_of_everybody(studio: Seeded, as_: As) -> None:
    held = list(Grant.objects.values())
    page = as_(studio.dora).get(reverse("preview_sharing"), everything(studio, **{"quota-bob": "0", "quota-alice": "0"})).content.decode()
    assert "→ 0" in page
    assert "quota is 0 slots" in page
    assert list(Grant.objects.values()) == held
    assert "Nobody&#x27;s slots" in as_(studio.dora).get(reverse("preview_sharing"), everything(studio)).content.decode().replace(
        "'", "&#x27;"
    )


def test_draining_has_a_preview_a_reason_and_a_history(studio: Seeded, as_: As) -> None:
    client, slot = as_(studio.dora), Slot.objects.get(index=3)
    assert "→" in client.get(reverse("preview_drain", args=["local"])).content.decode()
    assert client.get(reverse("preview_drain", args=["local"]), {"slot": str(slot.pk)}).status_code == 200
    for wanted in ("yes", "yes", "no"):
        client.post(reverse("slot_drain", args=["local", slot.pk]), {"draining": wanted, "reason": "a new fan"})
        client.post(reverse("node_drain", args=["local"]), {"draining": wanted})
    assert [change.text for change in ClusterChange.objects.filter(text__contains="node").order_by("id")] == [
        "dora drained slot GPU 3 of node local",
        "dora drained node local",
        "dora took back into service slot GPU 3 of node local",
        "dora took back into service node local",
    ]
    assert "a new fan" in as_(studio.alice).get(reverse("sharing")).content.decode()


def test_a_pause_and_a_stop_can_be_looked_at_first(studio: Seeded, as_: As) -> None:
    def shown(**wanted: str) -> str:
        return as_(studio.alice).get(reverse("preview_run", args=[studio.running.pk]), wanted).content.decode()

    assert "2 → 0" in shown(paused="yes")
    assert "paused: holds nothing until somebody resumes it" in shown(paused="yes")
    assert "It is stopped." in shown(stop="yes")
    assert "Nobody" in shown(paused="no")
    studio.running.refresh_from_db()
    assert (studio.running.paused, studio.running.stop_requested_at) == (False, None)


def test_a_priority_that_has_no_effect_is_said_to_have_none(studio: Seeded, as_: As) -> None:
    def shown() -> str:
        return as_(studio.alice).get(reverse("preview_run", args=[studio.running.pk]), {"priority": "9000"}).content.decode()

    assert "Under fair share priorities have no effect" in shown()
    as_(studio.dora).post(reverse("sharing"), everything(studio, policy="priority"))
    assert "have no effect" not in shown()


def test_where_a_priority_is_set_it_is_said_that_it_has_no_effect_under_fair_share(studio: Seeded, as_: As) -> None:
    client = as_(studio.alice)
    for address in ("run", "change_run"):
        page = reverse(address, args=[studio.running.pk])
        assert "priorities have no effect" in client.get(page).content.decode()
    ClusterRules.objects.update(policy="priority")
    assert "priorities have no effect" not in client.get(reverse("change_run", args=[studio.running.pk])).content.decode()


def test_people_are_a_page_at_a_time_and_who_is_not_shown_keeps_what_they_have(studio: Seeded, as_: As) -> None:
    for place in range(60):
        User.objects.create(username=f"person{place:02}", weight=3)
    services.set_policy(by=studio.dora, policy="fair_share", person_quota={"alice": 1, "person50": 7})
    client, address = as_(studio.dora), f"{reverse('sharing')}?people=50"
    first, second = client.get(reverse("sharing")).content.decode(), client.get(address).content.decode()
    assert (first.count('name="weight-'), second.count('name="weight-')) == (50, 15)
    assert "1–50 of 65" in first
    assert "51–65 of 65" in second
    assert f"{reverse('preview_sharing')}?people=50" in second
    shown = {f"weight-person{place:02}": "3" for place in range(60) if f'name="weight-person{place:02}"' in second}
    sent = {**everything(studio), **shown, "weight-victor": "5", "quota-person50": "8"}
    assert client.post(address, sent).url == address
    assert ClusterRules.current().person_quota == {"alice": 1, "person50": 8}
    weights = dict(User.objects.values_list("username", "weight"))
    assert (weights["victor"], weights["person00"], weights["alice"]) == (5, 3, 1)
