"""Messages that somebody has put into the broker who knows its password, as no user code does: none of them starts code."""

from __future__ import annotations

import base64
import json
import pickle
import uuid
from pathlib import Path

import kombu
import pytest
import redis

from tests.attack.scene import Scene
from tests.e2e.studio import wait_until
from webapp import home as homes

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


class Calls:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return exec, (f"open({str(self.path)!r}, 'w')",)


def message(task: str, *, body: bytes, kind: str, encoding: str) -> bytes:
    """As Celery puts it into a list of Redis."""
    number = str(uuid.uuid4())
    headers = {
        "lang": "py",
        "task": task,
        "id": number,
        "root_id": number,
        "parent_id": None,
        "group": None,
        "argsrepr": "",
        "kwargsrepr": "",
    }
    properties = {"correlation_id": number, "delivery_mode": 2, "delivery_info": {"exchange": "", "routing_key": "control"}, "priority": 0}
    properties |= {"body_encoding": "base64", "delivery_tag": number, "reply_to": number}
    raw = base64.b64encode(body).decode()
    return json.dumps(
        {"body": raw, "content-type": kind, "content-encoding": encoding, "headers": headers, "properties": properties}
    ).encode()


def asked(task: str, *arguments: object, **named: object) -> bytes:
    body = json.dumps([list(arguments), named, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]).encode()
    return message(task, body=body, kind="application/json", encoding="utf-8")


def test_no_forged_message_starts_code_and_the_studio_goes_on(strongest: Scene, tmp_path: Path) -> None:
    studio, touched = strongest.studio, tmp_path / "touched"
    queues, rest = homes.broker_urls(studio.home, "")
    server = redis.Redis(unix_socket_path=str(homes.broker_socket(studio.home)), password=homes.secret(studio.home, "broker_password"))
    poison = pickle.dumps([[Calls(touched)], {}, {}])
    outside = tmp_path / "host" / "evil"
    outside.mkdir(parents=True)
    hostile = [
        *(
            message("experiments.tasks.schedule", body=poison, kind=kind, encoding="binary")
            for kind in ("application/x-python-serialize", "pickle")
        ),
        message(
            "experiments.tasks.schedule", body=b"!!python/object/apply:os.system ['true']", kind="application/x-yaml", encoding="utf-8"
        ),
        *(
            asked(name, f"touch {touched}")
            for name in ("os.system", "builtins.eval", "subprocess.run", "experiments.definitions.gitcode.fetch", "celery.ping")
        ),
        asked("celery.map", {"task": "os.system", "args": [], "kwargs": {}, "options": {}}, [f"touch {touched}"]),
        asked("experiments.tasks.ingest_run", "../../etc/passwd"),
        asked("experiments.tasks.ingest_run", 1 << 100),
        b"not a message at all",
    ]
    before = studio.rows("SELECT name FROM experiments_node")
    for each in hostile:
        for queue in ("control", "ingest"):
            server.lpush(queue, each)
    cache = redis.Redis.from_url(rest)
    for key in cache.scan_iter("*"):
        if cache.type(key) == b"string":
            cache.set(key, pickle.dumps(Calls(touched)))
    with kombu.Connection(queues) as connection:  # what a forger would ask of all workers at once
        connection.Producer(serializer="json").publish(
            {"method": "pool_restart", "arguments": {"modules": ["antigravity"], "reload": True}}, exchange="celery.pidbox", routing_key=""
        )
    wait_until(lambda: all(server.llen(queue) == 0 for queue in ("control", "ingest")), "every message was taken", deadline_s=60)
    step = strongest.step(strongest.hers)
    wait_until(lambda: strongest.step(strongest.hers) > step, lambda: f"Alice's job is followed\n{studio.tail()}")
    assert not touched.exists()
    assert studio.rows("SELECT name FROM experiments_node") == before
    assert list(outside.iterdir()) == []
    for made in (server, cache):
        made.close()
