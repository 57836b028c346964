"""The stream of a machine that has joined: what becomes of its runs when it says that it has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from channels.testing import WebsocketCommunicator
from django.db import OperationalError
from django.utils import timezone
from websockets.sync.client import connect

from experiments import services
from experiments.cluster import joining, leases, scheduling, snapshot
from experiments.live import notify
from experiments.models import Node, RunState, TrainingRun
from tests import cast
from tests.e2e.studio import wait_until
from tests.web.test_request_limits import Server
from training_runtime.node.messages import STREAM, Departed, DesiredState, Hello, ObservedState, Welcome, decode, encode
from training_runtime.node.reporting import reported
from training_runtime.protocol import EnvironmentSeen, Observation, RunObservation, SlotSeen
from webapp.asgi import application
from webapp.studio import web

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def no_broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Celery is not part of this; the channel layer is."""
    monkeypatch.setattr(notify.app, "send_task", lambda *_, **__: None)
    yield


@pytest.fixture
def secret(transactional_db: None, home: Any) -> str:
    return services.add_node(by=cast.person("dora", staff=True), name="beta", slots=2)[1]


def begins_a_run() -> TrainingRun:
    alice = cast.person("alice")
    made = cast.run(services.create_project(by=alice, name="Digits"), by=alice, name="digits", now=timezone.now())
    scheduling.tick(timezone.now())
    made.refresh_from_db()
    assert made.head_node == Node.objects.get(name="beta")
    return made


def test_the_runs_of_a_machine_that_says_it_has_ended_go_on_at_once(secret: str) -> None:
    async def story() -> None:
        headers = [(b"authorization", f"Bearer {secret}".encode()), (b"host", b"localhost")]
        machine = WebsocketCommunicator(application, STREAM, headers=headers)
        assert (await machine.connect())[0]
        await machine.send_to(text_data=encode(Hello("id-1", "boot-1")))
        assert isinstance(decode(await machine.receive_from(5)), Welcome)
        wanted = decode(await machine.receive_from(5))
        assert isinstance(wanted, DesiredState)
        await machine.send_to(
            text_data=encode(ObservedState(Observation(revision=wanted.apply.revision, node=cast.facts("beta"), runs=())))
        )
        while not await Node.objects.filter(name="beta", last_seen_at__isnull=False).aexists():
            await asyncio.sleep(0.01)
        run = await sync_to_async(begins_a_run)()
        await machine.send_to(text_data=encode(Departed()))
        while (await machine.receive_output(10))["type"] != "websocket.close":  # the studio has taken it in
            pass
        await run.arefresh_from_db()
        assert (run.state, run.head_node_id, run.attempt) == (RunState.SUSPENDED, None, 2)
        assert run.state_reason == "beta has been ended, as it said. It goes on elsewhere from its last checkpoint."
        node = await Node.objects.aget(name="beta")
        assert snapshot.is_silent(node, timezone.now()), "although it was heard of a moment ago"
        await machine.wait()

    asyncio.run(story())
    token = joining.find(secret, now=timezone.now())
    assert token is not None, "it may come back"
    joining.take_in(token.pk, token.incarnation, Observation(revision=0, node=cast.facts("beta"), runs=()), 2, timezone.now())
    assert not snapshot.is_silent(Node.objects.get(name="beta"), timezone.now())


def test_what_a_machine_with_a_thousand_runs_sees_is_taken_in() -> None:
    slots = (SlotSeen(10_000, 86400.5, 86400.5, 86400.5, 80 << 30, 80 << 30, 7),)
    runs = [
        RunObservation(100_000 + i, 12, "running", (10_000 + i,), 10**9, None, "it trains" * 8, 86400.5, 86400.5, slots)
        for i in range(1000)
    ]
    said = encode(ObservedState(Observation(revision=1, node=cast.facts("beta"), runs=tuple(runs))))
    assert 1 << 18 < len(said) < web.config().ws_max_size


@pytest.mark.parametrize("sizes", [[4 << 20], [100 << 10] * 60])
def test_a_machine_that_has_built_large_environments_is_heard(secret: str, sizes: list[int]) -> None:
    """A lock has a hash for each file that a package may come as. Its texts are told until the studio says that it knows them."""
    built = tuple(
        EnvironmentSeen(f"{n}", 1, "ready", folder="f" * 40, lock="x" * size, log="é" * (64 << 10)) for n, size in enumerate(sizes)
    )
    seen = Observation(revision=1, node=cast.facts("beta"), runs=(), environments=built, folders=())
    with (
        Server(app=application) as server,
        connect(
            f"ws://127.0.0.1:{server.port}{STREAM}", additional_headers={"Authorization": f"Bearer {secret}"}, compression=None
        ) as stream,
    ):
        stream.send(encode(Hello("id-1", "boot-1")))
        assert isinstance(decode(stream.recv(10)), Welcome)
        stream.send(encode(ObservedState(reported(seen, copies=(), coming={}))))
        wait_until(lambda: Node.objects.filter(name="beta", last_seen_at__isnull=False).exists(), "it is heard", deadline_s=10)


def test_the_last_word_of_a_machine_is_taken_in_when_the_database_is_there_again(secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    take_leave, failures = leases.take_leave, []

    def locked_once(name: str, **said: Any) -> int:
        if not failures:
            failures.append(name)
            raise OperationalError("database is locked")
        return take_leave(name, **said)

    monkeypatch.setattr(leases, "take_leave", locked_once)
    headers = {"Authorization": f"Bearer {secret}"}
    with Server(app=application) as server, connect(f"ws://127.0.0.1:{server.port}{STREAM}", additional_headers=headers) as stream:
        stream.send(encode(Hello("id-1", "boot-1")))
        assert isinstance(decode(stream.recv(10)), Welcome)
        stream.send(encode(ObservedState(Observation(revision=1, node=cast.facts("beta"), runs=()))))
        wait_until(lambda: Node.objects.filter(name="beta", last_seen_at__isnull=False).exists(), "it is heard", deadline_s=10)
        stream.send(encode(Departed()))
        wait_until(lambda: Node.objects.get(name="beta").left_at is not None, "it has left", deadline_s=10)
    assert failures == ["beta"]
