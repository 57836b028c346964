"""Machines that join with one command: who is let in, and what becomes of the runs of one that is not heard of any more."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest

from experiments import services
from experiments.cluster import desired, fleet, joining, leases, own_machine, scheduling, snapshot, version_standing
from experiments.errors import DomainError
from experiments.models import ClusterChange, Node, NodeToken, Project, RunState, TrainingRun, User
from tests import cast
from training_runtime.node import messages
from training_runtime.node.messages import Hello, Refused, Welcome
from training_runtime.protocol import Observation, RunSpec
from training_runtime.version_skew import ProtocolVersion

pytestmark = pytest.mark.django_db
NOW = dt.datetime(2026, 11, 20, 12, 0, tzinfo=dt.UTC)
SECOND = dt.timedelta(seconds=1)
HELLO = Hello("id-1", "boot-1")
SEEN = Observation(revision=1, node=cast.facts("beta"), runs=())


@pytest.fixture
def token(dora: User) -> NodeToken:
    return services.add_node(by=dora, name="beta", slots="2", now=NOW)[0]


def greet(token: NodeToken, hello: Hello = HELLO, *, now: dt.datetime = NOW) -> Welcome | Refused:
    return joining.begin(token.pk, hello, address="10.0.0.7", now=now)


def test_a_token_is_kept_as_a_hash_and_waits_a_day_for_its_machine(dora: User) -> None:
    token, secret = services.add_node(by=dora, name="beta", now=NOW)
    assert secret not in str(NodeToken.objects.values().get())
    assert joining.find(secret, now=NOW + 23 * 3600 * SECOND) == token
    assert joining.find(secret, now=NOW + 25 * 3600 * SECOND) is None
    assert joining.find("edt_" + secret[5:], now=NOW) is None
    assert ClusterChange.objects.get().text == "dora made a token for machine beta to join with"


def test_once_it_has_joined_a_machine_may_come_back_at_any_time(dora: User) -> None:
    token, secret = services.add_node(by=dora, name="beta", now=NOW)
    greet(token)
    assert joining.find(secret, now=NOW + 400 * 86400 * SECOND) == token


def test_each_joining_is_another_incarnation_and_only_the_last_counts(token: NodeToken) -> None:
    first, second = greet(token), greet(token)
    assert isinstance(first, Welcome)
    assert isinstance(second, Welcome)
    assert (first.name, first.slots, second.incarnation) == ("beta", 2, first.incarnation + 1)
    assert not joining.is_current(token.pk, first.incarnation)
    assert not joining.take_in(token.pk, first.incarnation, SEEN, 2, NOW), "what it has seen counts no more"
    assert not Node.objects.filter(name="beta", last_seen_at__isnull=False).exists()
    assert joining.is_current(token.pk, second.incarnation)


def test_another_machine_with_the_same_token_is_refused_for_good(token: NodeToken) -> None:
    greet(token)
    refused = greet(token, Hello("id-2", "boot-2"), now=NOW + 3600 * SECOND)
    assert isinstance(refused, Refused)
    assert refused.final
    assert "Another machine has joined with this token as beta" in refused.reason


def test_a_copied_home_is_refused_while_the_machine_is_at_work_and_a_rebooted_one_is_not(token: NodeToken) -> None:
    greet(token)
    copied = greet(token, Hello("id-1", "boot-2"), now=NOW + SECOND)
    assert isinstance(copied, Refused)
    assert not copied.final
    assert isinstance(greet(token, Hello("id-1", "boot-2"), now=NOW + 60 * SECOND), Welcome)


def test_machines_one_version_apart_join_and_the_page_says_so(token: NodeToken, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "SPOKEN", ProtocolVersion(7, 6))
    for spoken, state in (((6, 5), "behind"), ((6, 6), "behind"), ((7, 6), "same"), ((8, 7), "ahead")):
        assert isinstance(greet(token, Hello("id-1", "boot-1", version=spoken[0], oldest=spoken[1])), Welcome), spoken
        found = version_standing.of(Node.objects.get(name="beta"))
        assert (found.state, found.problem) == (state, "")
    behind = version_standing.of_joined(ProtocolVersion(6, 5))
    assert behind.words.startswith("Version 6; the studio speaks 7 and works with it. Upgrade it to the studio's release:")


def test_a_machine_too_far_apart_is_told_which_side_to_upgrade_and_may_ask_again(token: NodeToken, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "SPOKEN", ProtocolVersion(7, 6))
    older, newer = (greet(token, Hello("id-1", "boot-1", version=number, oldest=number - 1)) for number in (5, 9))
    assert isinstance(older, Refused)
    assert isinstance(newer, Refused)
    assert not older.final
    assert not newer.final
    assert older.reason.startswith("The studio speaks version 7, and understands 6 and newer of this stream and this machine version 5")
    assert "pip install --upgrade" in older.reason
    assert newer.reason.endswith("upgrade the studio first, or install here the release that the studio has.")
    found = version_standing.of(Node.objects.get(name="beta"))
    assert (found.state, found.problem) == ("refused", newer.reason)
    assert version_standing.UNTIL_THEN in found.words
    token.refresh_from_db()
    assert (token.incarnation, token.joined_at) == (0, None), "it has not joined, and what it has counts as what is cut off"
    assert isinstance(greet(token, Hello("id-1", "boot-1", version=7, oldest=6)), Welcome), "once it is upgraded"


@pytest.mark.parametrize("version", [-1, 2**70])
def test_a_version_that_cannot_be_is_refused_like_any_other(token: NodeToken, version: int) -> None:
    assert isinstance(greet(token, Hello("id-1", "boot-1", version=version, oldest=version)), Refused)
    assert Node.objects.get(name="beta").protocol_version in (0, joining.HIGHEST_VERSION)


def test_another_machine_changes_nothing_of_what_is_known_of_the_version(token: NodeToken) -> None:
    greet(token)
    before = Node.objects.values("protocol_version", "protocol_oldest").get(name="beta")
    assert isinstance(greet(token, Hello("id-2", "boot-2", version=99, oldest=98)), Refused)
    assert Node.objects.values("protocol_version", "protocol_oldest").get(name="beta") == before


@pytest.mark.parametrize("name", ["", "a b", "../x", "-x", "x" * 64])
def test_a_name_that_no_machine_can_have_is_refused(dora: User, name: str) -> None:
    with pytest.raises(DomainError, match="Letters, digits"):
        services.add_node(by=dora, name=name, now=NOW)


def test_a_machine_at_work_gets_no_token_and_one_that_an_earlier_release_had_an_agent_on_gets_one(dora: User, token: NodeToken) -> None:
    cast.node("gamma", now=NOW)
    with pytest.raises(DomainError, match="end edt-node there"):
        services.add_node(by=dora, name="gamma", now=NOW)
    services.add_node(by=dora, name="gamma", now=NOW + 3600 * SECOND)
    welcome = greet(token)
    assert isinstance(welcome, Welcome)
    assert joining.take_in(token.pk, welcome.incarnation, SEEN, 2, NOW)
    with pytest.raises(DomainError, match="end edt-node there"):
        services.add_node(by=dora, name="beta", now=NOW + SECOND)
    assert NodeToken.objects.get(node_name="beta").digest == token.digest


def test_a_machine_that_is_removed_is_let_in_no_more(dora: User, token: NodeToken) -> None:
    greet(token)
    services.remove_node(Node.objects.get(name="beta"), by=dora, now=NOW + 3600 * SECOND)
    assert isinstance(greet(token, now=NOW + 3600 * SECOND), Refused)


def test_paths_go_as_places_and_a_stay_has_a_term(token: NodeToken, project: Project, alice: User) -> None:
    greet(token)
    cast.node("beta", now=NOW)
    run = cast.run(project, by=alice, now=NOW)
    scheduling.tick(NOW)
    run.refresh_from_db()
    wanted = joining.state_for("beta", None, NOW).wanted
    (wish,) = wanted.apply.runs
    assert wish.spec.result_dir == f"runs/{run.folder}"
    assert wish.spec.code_dir.startswith(f"code/{run.version.bundle.sha256}")
    assert wish.spec.data_root == "data"
    assert [(each.run, each.folder, each.term) for each in wanted.folders] == [(run.pk, run.folder, run.moved_at.isoformat())]


def test_what_is_wanted_is_put_together_anew_when_something_has_changed_or_after_a_while(
    token: NodeToken, project: Project, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    greet(token)
    host, run = cast.Host(cast.node("beta", now=NOW)), cast.run(project, by=alice, now=NOW)
    scheduling.tick(NOW)
    first = joining.state_for("beta", None, NOW)
    again = joining.state_for("beta", first, NOW + SECOND)
    assert again.wanted.apply == replace(first.wanted.apply, revision=again.wanted.apply.revision)
    assert again.wanted.apply.revision > first.wanted.apply.revision
    assert Node.objects.get(name="beta").revision == again.wanted.apply.revision
    assert again.at == first.at
    assert joining.state_for("beta", first, NOW + 60 * SECOND).at == NOW + 60 * SECOND
    host.apply(NOW + 2 * SECOND)
    services.stop_run(run, by=alice, now=NOW + 2 * SECOND)
    stopped = joining.state_for("beta", again, NOW + 3 * SECOND)
    assert [wish.stop for wish in stopped.wanted.apply.runs] == [True]


def test_one_that_changes_while_it_is_put_together_is_put_together_again(
    token: NodeToken, project: Project, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    greet(token)
    cast.node("beta", now=NOW)
    run = cast.run(project, by=alice, now=NOW)
    scheduling.tick(NOW)
    spec, stops = desired._spec, iter([lambda: services.stop_run(run, by=alice, now=NOW)])

    def while_it_reads(*args: Any, **kwargs: Any) -> RunSpec:
        next(stops, lambda: None)()
        return spec(*args, **kwargs)

    monkeypatch.setattr(desired, "_spec", while_it_reads)
    assert [wish.stop for wish in joining.state_for("beta", None, NOW).wanted.apply.runs] == [True]


@pytest.fixture
def run(token: NodeToken, project: Project, alice: User) -> TrainingRun:
    """At work on the joined machine, which is heard of until NOW."""
    greet(token)
    host = cast.Host(cast.node("beta", now=NOW))
    made = cast.run(project, by=alice, now=NOW)
    scheduling.tick(NOW)
    host.apply(NOW)
    made.refresh_from_db()
    assert made.head_node == Node.objects.get(name="beta")
    return made


@pytest.fixture
def watching(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "_watching", [])


@pytest.mark.usefixtures("watching")
def test_the_runs_of_a_machine_that_is_not_heard_of_go_on_elsewhere_without_anybody_saying_so(run: TrainingRun) -> None:
    assert leases.end_overdue(NOW - 60 * SECOND, monotonic=0) == []
    assert leases.end_overdue(NOW + 59 * SECOND, monotonic=119) == []
    assert leases.end_overdue(NOW + 61 * SECOND, monotonic=121) == ["beta"]
    run.refresh_from_db()
    assert (run.head_node, run.attempt) == (None, 2)
    assert cast.slots_of(run) == set()
    assert leases.end_overdue(NOW + 62 * SECOND, monotonic=122) == [], "once"


@pytest.mark.usefixtures("watching")
def test_a_studio_that_was_away_itself_waits_before_it_concludes(run: TrainingRun) -> None:
    assert leases.end_overdue(NOW + 3600 * SECOND, monotonic=5000) == []
    assert leases.end_overdue(NOW + 3659 * SECOND, monotonic=5059) == []
    run.refresh_from_db()
    assert run.state != RunState.SUSPENDED
    assert leases.end_overdue(NOW + 3661 * SECOND, monotonic=5061) == ["beta"]


@pytest.mark.usefixtures("watching")
def test_a_clock_that_is_put_forward_makes_no_machine_silent(run: TrainingRun) -> None:
    assert leases.end_overdue(NOW, monotonic=0) == []
    assert leases.end_overdue(NOW + 3 * SECOND, monotonic=3) == []
    seen = NOW + 100 * SECOND
    Node.objects.filter(name="beta").update(last_seen_at=seen)
    assert leases.end_overdue(seen, monotonic=100) == []
    assert leases.end_overdue(seen + 3605 * SECOND, monotonic=105) == [], "five seconds ago it was heard of"
    assert leases.end_overdue(seen + 3660 * SECOND, monotonic=160) == []
    run.refresh_from_db()
    assert (run.head_node, run.attempt) == (Node.objects.get(name="beta"), 1)
    assert leases.end_overdue(seen + 3666 * SECOND, monotonic=166) == ["beta"], "it has had as long as any to be heard of again"


@pytest.mark.usefixtures("watching")
def test_a_machine_that_ends_while_the_clock_is_ahead_is_missed_when_that_is_put_right(run: TrainingRun) -> None:
    assert leases.end_overdue(NOW, monotonic=0) == []
    ahead = NOW + 365 * 86_400 * SECOND
    Node.objects.filter(name="beta").update(last_seen_at=ahead)
    assert not snapshot.is_silent(Node.objects.get(name="beta"), ahead)
    assert snapshot.is_silent(Node.objects.get(name="beta"), NOW + 100 * SECOND), "nothing is placed there"
    assert leases.end_overdue(ahead, monotonic=90) == []
    assert leases.end_overdue(NOW + 100 * SECOND, monotonic=100) == [], "it may be heard of in a moment"
    assert leases.end_overdue(NOW + 161 * SECOND, monotonic=161) == ["beta"]
    run.refresh_from_db()
    assert run.attempt == 2


def test_a_machine_that_starts_anew_as_the_clock_is_put_back_is_let_in(token: NodeToken) -> None:
    greet(token, now=NOW + 3600 * SECOND)
    assert isinstance(greet(token, replace(HELLO, boot="another"), now=NOW), Welcome)


@pytest.mark.usefixtures("watching")
def test_a_machine_without_a_lease_keeps_its_runs_however_long_it_is_silent(project: Project, alice: User) -> None:
    host = cast.Host(cast.node("local", now=NOW))
    run = cast.run(project, by=alice, now=NOW)
    scheduling.tick(NOW)
    host.apply(NOW)
    leases.end_overdue(NOW, monotonic=0)
    assert leases.end_overdue(NOW + 86400 * SECOND, monotonic=86400) == []
    assert len(cast.slots_of(run)) == 4


def test_how_many_slots_it_shares_is_said_by_its_token(token: NodeToken) -> None:
    welcome = greet(token)
    assert isinstance(welcome, Welcome)
    assert joining.take_in(token.pk, welcome.incarnation, SEEN, 2, NOW)
    assert Node.objects.get(name="beta").slots.filter(retired=False).count() == 2
    assert fleet.CPU_SLOTS == 4


@pytest.fixture
def own(db: None) -> NodeToken:
    """Of the studio's own machine."""
    own_machine.token("", now=NOW)
    return NodeToken.objects.get(node_name="local")


@pytest.mark.usefixtures("watching")
def test_the_studios_own_machine_has_no_lease_and_is_never_given_up_by_itself(own: NodeToken, project: Project, alice: User) -> None:
    welcome = greet(own)
    assert isinstance(welcome, Welcome)
    assert (welcome.name, welcome.lease_s) == ("local", 0.0)
    host = cast.Host(cast.node("local", now=NOW))
    run = cast.run(project, by=alice, now=NOW)
    scheduling.tick(NOW)
    host.apply(NOW)
    assert Node.objects.get(name="local").joined
    leases.end_overdue(NOW, monotonic=0)
    assert leases.end_overdue(NOW + 86400 * SECOND, monotonic=86400) == []
    run.refresh_from_db()
    assert run.head_node is not None


def test_its_token_is_the_one_that_it_has_for_as_long_as_that_is_good(own: NodeToken) -> None:
    secret = own_machine.token("", now=NOW)
    greet(NodeToken.objects.get(pk=own.pk))
    assert own_machine.token(secret, now=NOW + 400 * 86400 * SECOND) == secret
    _, of_beta = joining.make("beta", slots=None, by=None, now=NOW)
    assert own_machine.token(of_beta, now=NOW) not in (secret, of_beta), "that of another machine is none"
    assert joining.find(secret, now=NOW) is None


def test_no_other_machine_gets_a_token_under_its_name(dora: User) -> None:
    with pytest.raises(DomainError, match="local is the studio's own machine"):
        services.add_node(by=dora, name="local", now=NOW)
