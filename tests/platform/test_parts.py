"""The parts of the supervisor that decide or remember something by themselves, and the set-up around it."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from django.core.management import call_command
from django.urls import reverse
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from training_runtime.host import settings as host_settings
from training_runtime.log_rotation import rotate
from webapp.studio import checks, launch, log
from webapp.studio.checks import Refusal
from webapp.studio.log import Tail, Terminal
from webapp.studio.programs import host_environment
from webapp.studio.supervisor import backoff_s

REPOSITORY = Path(__file__).resolve().parents[2]


def test_the_first_death_costs_no_wait_and_the_next_ever_more() -> None:
    waits = [backoff_s(deaths) for deaths in range(12)]
    assert waits[:5] == [0, 0, 0.5, 1, 2]
    assert waits == sorted(waits)
    assert waits[-1] == 30


def test_the_node_host_gets_what_it_needs_and_nothing_else() -> None:
    given = {
        **{
            "EDT_REDIS_URL": "x",
            "DATABASE_URL": "x",
            "POSTGRES_PASSWORD": "x",
            "HF_TOKEN": "x",
            "EDT_RAY_TOKEN": "x",
            "EDT_KUBERNETES_TOKEN": "x",
            "EDT_OIDC_CLIENT_SECRET": "x",
            "EDT_METRICS_TOKEN": "x",
            "DATABASE_URL_FILE": "x",
            "AWS_SECRET_ACCESS_KEY": "x",
        },
        **{"EDT_EMAIL_URL": "smtp+tls://u:hunter2@h:587", "SENTRY_DSN": "x", "HTTPS_PROXY": "http://u:p@proxy", "AWS_ACCESS_KEY_ID": "x"},
        **{"DJANGO_SETTINGS_MODULE": "x", "MY_API_KEY": "x", "PATH": "p", "CUDA_VISIBLE_DEVICES": "0", "EDT_SANDBOX": "required"},
    }
    # The proxy is for who builds environments, and the host gives it to nobody else.
    assert set(host_environment(given)) == {"PATH", "CUDA_VISIBLE_DEVICES", "EDT_SANDBOX", "HTTPS_PROXY"}


def test_every_setting_of_the_node_host_reaches_it() -> None:
    source = (REPOSITORY / "training_runtime" / "host" / "settings.py").read_text()
    read = set(re.findall(r'environment(?:\.get\(|\[|, )"(EDT_[A-Z_]+)"', source))
    assert len(read) >= 10
    # Where others reach the machine is said by its link, run by run, while the rule lets runs use several.
    assert set(host_environment(dict.fromkeys(read, "x"))) == read - {"EDT_NODE_ADDRESS"}


def test_runs_have_the_same_users_wherever_their_folders_are_shared(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "elsewhere" / "other"
    (one / "runs").mkdir(parents=True)
    other.mkdir(parents=True)
    base = host_settings.uid_base(one, ids=1 << 32)
    assert base >= 1_000_000
    assert host_settings.uid_base(other, ids=1 << 32) != base, "another studio's runs have other users"
    (other / "runs" / ".uid-base").unlink()
    (other / "runs").rmdir()
    (other / "runs").symlink_to(one / "runs")  # as a network file system shows them
    assert host_settings.uid_base(other, ids=1 << 32) == base
    parsed = host_settings.parse(["--home", str(other), "--node", "b"], {})
    assert parsed.policy.uid_base == base
    assert host_settings.parse(["--home", str(other), "--node", "b"], {"EDT_UID_BASE": "0"}).policy.uid_base == 0
    assert [path.name for path in (one / "runs").iterdir()] == [".uid-base"]


def test_a_log_is_shown_by_whole_lines_from_now_on(tmp_path: Path) -> None:
    path = tmp_path / "web.log"
    path.write_text("before\n")
    tail = Tail(path)
    with path.open("a") as file:
        file.write("one\ntw")
        file.flush()
        assert tail.new_lines() == ["one"]
        file.write("o\n")
        file.flush()
        assert tail.new_lines() == ["two"]
    assert tail.new_lines() == []


def test_a_log_that_is_rotated_goes_on_at_its_start(tmp_path: Path) -> None:
    path = tmp_path / "web.log"
    with path.open("a") as writer:
        writer.write("x" * 200 + "\n")
        writer.flush()
        tail = Tail(path)
        assert not rotate(path, limit_bytes=1000)
        assert rotate(path, limit_bytes=100)
        writer.write("after\n")
        writer.flush()
    assert tail.new_lines() == ["after"]
    assert path.read_text() == "after\n"
    assert (tmp_path / "web.log.1").read_text() == "x" * 200 + "\n"


def test_a_terminal_that_has_not_all_characters_shows_the_line_all_the_same(tmp_path: Path) -> None:
    """Of a locale such as pl_PL.ISO-8859-2; the studio's own loop shows it, and would end."""
    (tmp_path / "log").mkdir()
    shown = io.BytesIO()
    terminal = Terminal(tmp_path, ("web",), out=io.TextIOWrapper(shown, "latin-1"))
    log.path_of(tmp_path, "web").write_text("\N{SNOWMAN} of Łukasz\n")
    terminal.show_new()
    terminal.say("\udce9 cannot be read")
    assert shown.getvalue().decode("latin-1").splitlines() == [
        "web     | \\u2603 of \\u0141ukasz",
        "studio  | \\udce9 cannot be read",
    ]
    assert log.last_lines(tmp_path, "studio")[0].endswith("\\udce9 cannot be read")


def test_control_characters_in_a_log_do_not_reach_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log").mkdir()
    terminal = Terminal(tmp_path, ("web",))
    (tmp_path / "log" / "web.log").write_text("name \x1b[2Jevil\n")
    terminal.show_new()
    assert capsys.readouterr().out == "web     | name �[2Jevil\n"


def test_a_full_disk_is_refused(tmp_path: Path) -> None:
    checks.room(tmp_path)
    with pytest.raises(Refusal, match=r"has \d+ MiB left and the studio needs 1099511627776"):
        checks.room(tmp_path, needed_bytes=1 << 60)


@pytest.mark.parametrize("port", [-1, 65536, 10**9])
def test_a_port_that_is_none_is_refused(port: int) -> None:
    with pytest.raises(Refusal, match="is no port"):
        checks.listen("127.0.0.1", port)


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(Refusal, match="cannot listen on 192"):
        checks.listen("192.0.2.1", 0)


@pytest.mark.django_db(transaction=True)
def test_the_models_and_the_migrations_say_the_same() -> None:
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)


def test_django_finds_nothing_to_complain_of() -> None:
    call_command("check", fail_level="WARNING", verbosity=0)


def test_a_celery_worker_loads_neither_pages_nor_the_api() -> None:
    """It takes a second of a processor and 30 MB, three times in each studio."""
    code = "from webapp.celery import app; app.loader.import_default_modules(); import sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.split()
    assert "experiments.tasks" in loaded
    assert not {"experiments.api", "experiments.views", "ninja"}.intersection(loaded)


def test_the_supervisor_loads_neither_pages_nor_the_api_before_it_forks_the_web_process() -> None:
    """Else whoever starts a studio that is refused, or whose broker and node host could start meanwhile, waits for them."""
    code = "import django, sys; django.setup(); import experiments.management.commands.studio; print(*sys.modules)"
    environment, command = os.environ | {"DJANGO_SETTINGS_MODULE": "webapp.settings_test"}, [sys.executable, "-c", code]
    loaded = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=True).stdout
    assert not {"experiments.api", "experiments.views", "ninja"}.intersection(loaded.split())
    assert reverse("login") == launch.FIRST_PAGE, "which is not asked for by its name, since that would load them"


# The set-up


def test_make_alone_lists_every_target() -> None:
    listed = subprocess.run(["make"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"^  make (\S+)", listed, flags=re.M)) == {
        "help",
        "demo",
        "up",
        "node",
        "check",
        "test",
        "lint",
        "bench",
        "gpu-check",
        "packages",
        "tensorflow",
        "clean",
    }


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A clone with the set-up's files, on a machine that has its tools (in `bin`) but no Python."""
    shutil.copytree(REPOSITORY / "tools", tmp_path / "tools")
    for name in ("requirements.txt", "requirements-test.txt", "requirements-packages.txt"):
        shutil.copy(REPOSITORY / name, tmp_path)
    (tmp_path / "bin").mkdir()
    for tool in ("sh", "awk", "cat", "cksum", "df", "dirname", "grep"):
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool) or "")
    return tmp_path


def set_up(clone: Path) -> tuple[int, list[str]]:
    done = subprocess.run(
        [clone / "tools" / "setup.sh"], env={"PATH": str(clone / "bin")}, cwd="/", capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, done.stderr.splitlines()


def test_without_python_the_set_up_says_so_in_one_sentence(bare: Path) -> None:
    status, said = set_up(bare)
    assert status == 2
    assert said == ["EDT Studio needs Python 3.11 or newer: install it, or name it with make PYTHON=/path/to/python3."]


def test_an_old_python_is_none(bare: Path) -> None:
    old = bare / "bin" / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")  # what it answers to "are you 3.11 or newer?"
    old.chmod(0o755)
    assert set_up(bare)[1][0].startswith("EDT Studio needs Python 3.11 or newer")


def test_without_room_the_set_up_says_so_before_it_begins(bare: Path) -> None:
    (bare / "bin" / "python3").symlink_to(sys.executable)
    (bare / "bin" / "df").unlink()
    (bare / "bin" / "df").write_text("#!/bin/sh\necho 'Filesystem 1M-blocks Used Available'\necho '/dev/sda 9999 9000 700 93% /'\n")
    (bare / "bin" / "df").chmod(0o755)
    status, said = set_up(bare)
    assert (status, len(said)) == (2, 1)
    assert "EDT Studio needs 3 GiB for its set-up and this disk has 700 MiB left" in said[0]
    assert not (bare / ".venv").exists()


def locked(name: str) -> dict[str, str]:
    lines = (REPOSITORY / name).read_text().splitlines()
    found = {}
    for line in lines:
        if line and not line.startswith(("#", "-r")):
            requirement = Requirement(line)
            (specifier,) = requirement.specifier
            assert specifier.operator == "==", f"{line} is not exact"
            found[canonicalize_name(requirement.name)] = specifier.version
    return found


def test_the_locks_hold_every_requirement_within_its_range() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    studio, tests = locked("requirements.txt"), locked("requirements-test.txt")
    for lines, lock in ((project["dependencies"] + extras["studio"] + extras["torch"], studio), (extras["test"], {**studio, **tests})):
        for line in lines:
            requirement = Requirement(line)
            version = lock[canonicalize_name(requirement.name)]
            assert requirement.specifier.contains(version), f"{line} but {version} is locked"


def test_torch_comes_first_in_the_lock() -> None:
    lines = [line for line in (REPOSITORY / "requirements.txt").read_text().splitlines() if not line.startswith("#")]
    assert lines[0] == f"torch=={metadata.version('torch').split('+')[0]}"


def test_a_user_script_finds_fabric_model_in_this_environment() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    found = subprocess.run(
        [sys.executable, "-c", "from fabric_model import FabricModel; print(FabricModel.__name__)"],
        cwd="/",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.stdout == "FabricModel\n", found.stderr
