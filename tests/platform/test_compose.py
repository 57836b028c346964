"""The Compose file and the Dockerfile, checked without an engine: their schemas, and that everything they name exists."""

from __future__ import annotations

import fcntl
import importlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from django.core.management import get_commands
from django.test import Client

from training_runtime.node import settings as node_settings
from webapp.home import allowed_hosts
from webapp.studio import own_machine

REPOSITORY = Path(__file__).resolve().parents[2]
COMPOSE = REPOSITORY / "docker-compose.yml"
TOOLS = Path(sys.executable).parent
VARIABLE = re.compile(r"(?<!\$)\$\{([A-Z_]+)")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return yaml.safe_load(COMPOSE.read_text())


def services(compose: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    assert compose["services"]
    return list(compose["services"].items())


def stages() -> set[str]:
    return set(re.findall(r"^FROM \S+ AS (\S+)", (REPOSITORY / "Dockerfile").read_text(), flags=re.M))


def test_the_compose_file_follows_the_compose_specification() -> None:
    checked = subprocess.run(
        [TOOLS / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_hadolint_has_nothing_to_say_about_the_dockerfile() -> None:
    checked = subprocess.run([TOOLS / "hadolint", REPOSITORY / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout) == (0, "")


def test_everything_that_a_service_names_is_defined(compose: dict[str, Any]) -> None:
    for name, service in services(compose):
        for other in service.get("depends_on", {}):
            assert other in compose["services"], f"{name} depends on {other}"
            assert "healthcheck" in compose["services"][other], f"{name} waits for the health of {other}"
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in compose["volumes"] or source.startswith((".", "/")), f"{name} mounts {source}"
        for network in service.get("networks", []):
            assert network in compose["networks"], f"{name} joins {network}"


def test_no_volume_or_network_is_defined_for_nothing(compose: dict[str, Any]) -> None:
    used = {volume.split(":")[0] for _, service in services(compose) for volume in service.get("volumes", [])}
    joined = {network for _, service in services(compose) for network in service.get("networks", [])}
    assert set(compose["volumes"]) == used
    assert set(compose["networks"]) == joined


def test_what_is_built_is_there(compose: dict[str, Any]) -> None:
    built = [service["build"] for _, service in services(compose) if "build" in service]
    assert built
    for build in built:
        assert (REPOSITORY / build["context"] / build["dockerfile"]).is_file()
        assert build["target"] in stages()


def test_every_file_that_the_dockerfile_copies_exists() -> None:
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", (REPOSITORY / "Dockerfile").read_text(), flags=re.M)
    assert copies
    for source in " ".join(copies).split():
        assert (REPOSITORY / source).exists(), source


def test_every_variable_stands_in_the_example_and_none_is_there_for_nothing() -> None:
    example = set(re.findall(r"^([A-Z_]+)=", (REPOSITORY / ".env.example").read_text(), flags=re.M))
    assert set(VARIABLE.findall(COMPOSE.read_text())) == example


def test_what_says_where_machines_are_lent_reaches_the_studio_and_has_the_same_defaults(compose: dict[str, Any]) -> None:
    named = re.findall(r'(?i:env\W*)\.str\("(EDT_(?:PILOT|RAY|KUBERNETES)_[A-Z_]+)"', (REPOSITORY / "webapp" / "settings.py").read_text())
    assert len(named) == 13
    example = dict(re.findall(r"^([A-Z_]+)=(.*)$", (REPOSITORY / ".env.example").read_text(), flags=re.M))
    for service in ("web", "control"):
        told = compose["services"][service]["environment"]
        assert {name: told[name] for name in named} == {name: f"${{{name}:-{example[name]}}}" for name in named}
        assert "outside" in compose["services"][service]["networks"], "where they are"


def test_nothing_is_published_beyond_this_machine(compose: dict[str, Any]) -> None:
    ports = [port for _, service in services(compose) for port in service.get("ports", [])]
    assert len(ports) == 1
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_every_service_is_pinned_checked_and_restarted(compose: dict[str, Any]) -> None:
    for name, service in services(compose):
        assert re.search(r":\d+\.\d+\.\d+|:\d+\.\d+-", service["image"]), f"{name}: {service['image']}"
        assert service["healthcheck"]["test"], name
        assert service["restart"] == "unless-stopped", name


def test_no_password_is_written_down(compose: dict[str, Any]) -> None:
    for name, service in services(compose):
        for key, value in service.get("environment", {}).items():
            if "PASSWORD" in key:
                assert value.startswith("${"), f"{name}: {key}"
    assert "password" not in (REPOSITORY / "Dockerfile").read_text().lower()


def test_user_code_gets_no_network_no_password_and_no_secret(compose: dict[str, Any]) -> None:
    host = compose["services"]["host"]
    assert host["network_mode"] == "none"
    assert "environment" not in host
    assert {volume.split(":")[0] for volume in host["volumes"]} == {"code", "runs", "data", "assets", "host"}
    assert "private:/var/lib/edt" in compose["services"]["web"]["volumes"]


def words(command: Any) -> list[str]:
    text = command if isinstance(command, str) else " ".join(command)
    return text.split()


def test_commands_and_health_checks_name_real_entry_points(compose: dict[str, Any]) -> None:
    named: set[str] = set()
    for _, service in services(compose):
        for said in (words(service.get("command", "")), words(service["healthcheck"]["test"])):
            named |= {f"module {said[at + 1]}" for at, word in enumerate(said) if word == "-m"}
            named |= {f"manage {said[at + 1]}" for at, word in enumerate(said) if word == "manage.py"}
            named |= {f"app {said[at + 1]}" for at, word in enumerate(said) if word == "--app"}
            named |= {f"queue {said[at + 1]}" for at, word in enumerate(said) if word == "--queues"}
    assert named == {
        "module training_runtime.host",
        "manage prepare",
        "module webapp.studio.web",
        "app webapp",
        "queue control",
        "queue ingest",
        "module training_runtime.node",
    }
    assert "prepare" in get_commands()
    assert importlib.util.find_spec("training_runtime.host.__main__") is not None
    assert callable(importlib.import_module("webapp.asgi").application)
    assert importlib.import_module("webapp").celery_app.main == "edt"


@pytest.mark.django_db
def test_the_health_of_the_web_process_does_not_hang_on_the_name_that_browsers_use(compose: dict[str, Any], settings: Any) -> None:
    """The engine asks from inside the container, by the loopback address; the studio is reached under another name."""
    settings.ALLOWED_HOSTS = allowed_hosts(["studio.example.org"])
    address = urlsplit(re.search(r"http://[^']+", " ".join(compose["services"]["web"]["healthcheck"]["test"]))[0])  # type: ignore[index]
    answer = Client().get(address.path, headers={"Host": address.netloc})
    assert answer.status_code == 200, answer.content
    assert Client().get(address.path, headers={"Host": "elsewhere.example"}).status_code == 400


def test_the_link_is_of_the_node_of_the_host_and_reads_the_token_that_the_pages_have_made(compose: dict[str, Any]) -> None:
    node = compose["services"]["web"]["environment"]["EDT_NODE"]
    host = compose["services"]["host"]["command"]
    assert host[host.index("--node") + 1] == node, "as which the studio makes the token"
    link = compose["services"]["link"]
    line = link["command"][-1]
    assert str(own_machine.token_file(Path("/var/lib/edt"))) in line
    typed = line.split("training_runtime.node ", 1)[1].split(" < ")[0].replace("${EDT_SLOTS:-4}", "4")
    told = node_settings.parser({}).parse_args(shlex.split(typed))
    assert (told.shares, str(told.home), told.host) == ("/var/lib/edt", "/var/lib/edt/node", False)
    assert "environment" not in link, "no password"


def test_the_link_is_healthy_while_a_process_has_its_lock(compose: dict[str, Any], tmp_path: Path) -> None:
    _, python, *rest = compose["services"]["link"]["healthcheck"]["test"]
    assert python == "python"
    check = [sys.executable, *(word.replace("/var/lib/edt/node", str(tmp_path)) for word in rest)]
    assert subprocess.run(check, cwd=REPOSITORY, check=False, timeout=60).returncode == 1
    with open(tmp_path / "node.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        assert subprocess.run(check, cwd=REPOSITORY, check=False, timeout=60).returncode == 0
