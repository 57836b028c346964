"""The command line of `edt-node join`."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from training_runtime.node.__main__ import _own_hosts
from training_runtime.node.settings import address_of, parse


def test_what_is_said_once_is_known_the_next_time_and_to_this_user_alone(tmp_path: Path):
    parse(["join", "https://studio.example.org/", "--token", "edtn_x", "--slots", "3", "--home", str(tmp_path)], {}).write_down("beta")
    again = parse(["join", "--home", str(tmp_path)], {})
    assert (again.studio, again.token, again.slots, again.name) == ("https://studio.example.org", "edtn_x", 3, "beta")
    assert stat.S_IMODE((tmp_path / "node.json").stat().st_mode) == 0o600
    assert parse(["join", "--token", "edtn_y", "--home", str(tmp_path)], {}).name == "", "another token is another name"


def test_whom_it_trusts_is_known_the_next_time_but_not_of_another_studio(tmp_path: Path):
    """As a service that starts with the machine does, which says nothing."""
    parse(["join", "https://a.example.org", "--token", "x", "--ca", "/etc/ssl/site.pem", "--home", str(tmp_path)], {}).write_down("beta")
    assert parse(["join", "--home", str(tmp_path)], {}).verify == "/etc/ssl/site.pem"
    parse(["join", "http://a.example.org", "--token", "x", "--insecure", "--home", str(tmp_path)], {}).write_down("beta")
    assert parse(["join", "--home", str(tmp_path)], {}).studio == "http://a.example.org"
    with pytest.raises(SystemExit):
        parse(["join", "http://b.example.org", "--home", str(tmp_path)], {})


def test_the_token_is_not_in_what_is_printed_of_settings(tmp_path: Path):
    assert "edtn_x" not in repr(parse(["join", "http://127.0.0.1:8000", "--home", str(tmp_path)], {"EDT_NODE_TOKEN": "edtn_x"}))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["join", "--token", "x"], "the studio's address is needed"),
        (["join", "studio.example.org", "--token", "x"], "write it as https://studio.example.org"),
        (["join", "http://studio.example.org", "--token", "x"], "has no TLS"),
        (["join", "https://studio.example.org"], "a token is needed"),
        (["join", "https://studio.example.org", "--token", "x", "--slots", "0"], "from 1 to 10000"),
        (["join", "https://studio.example.org", "--token", "x", "--address", "10.0.0.7:80"], "without a port"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(arguments: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        parse([*arguments, "--home", str(tmp_path)], {})
    assert sentence in " ".join(capsys.readouterr().err.split())


def test_a_note_that_is_no_json_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "node.json").write_text("{")
    with pytest.raises(SystemExit):
        parse(["join", "https://studio.example.org", "--token", "x", "--home", str(tmp_path)], {})
    assert str(tmp_path) in capsys.readouterr().err


@pytest.mark.parametrize(
    ("said", "own", "address"),
    [
        ("", "10.0.0.7", "10.0.0.7"),
        ("", "fd00::7", "fd00::7"),
        ("", "127.0.0.1", ""),
        ("", "::1", ""),
        ("", "fe80::7%eth0", ""),
        ("gpu-1.lab", "10.0.0.7", "gpu-1.lab"),
        ("127.0.0.1", "10.0.0.7", "127.0.0.1"),
        ("none", "10.0.0.7", ""),
    ],
)
def test_other_machines_reach_it_where_it_says_or_at_the_card_towards_the_studio(said: str, own: str, address: str, tmp_path: Path):
    given = ["--address", said] if said else []
    parse(["join", "https://studio.example.org", "--token", "x", "--home", str(tmp_path), *given], {}).write_down("beta")
    assert address_of(parse(["join", "--home", str(tmp_path)], {}), own) == address


def test_a_home_that_is_deleted_at_the_end_is_a_new_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    line = ["join", "https://studio.example.org", "--token", "x", "--temporary", "--home"]
    assert parse([*line, str(tmp_path / "new")], {}).temporary
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(SystemExit):
        parse([*line, str(tmp_path)], {})
    assert "is not empty; name a folder that is not there yet" in capsys.readouterr().err


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A studio's home, as a machine sees it that shares it, with hosts of two machines."""
    for name in ("runs", "host/beta", "host/gamma"):
        (tmp_path / "studio" / name).mkdir(parents=True)
    (tmp_path / "studio" / "installation").write_text("a key\n")
    for name in ("beta", "gamma"):
        (tmp_path / "studio" / "host" / name / "host.lock").touch()
    return tmp_path / "studio"


def test_folders_that_are_shared_are_known_the_next_time_and_no_host_of_another_machine_is_ended(shared: Path, tmp_path: Path):
    own = tmp_path / "own"
    given = parse(["join", "https://studio.example.org", "--token", "edtn_x", "--home", str(own), "--shares", str(shared)], {})
    assert (given.work, given.has_host, _own_hosts(given)) == (shared, True, [])
    given.write_down("beta")
    again = parse(["join", "--home", str(own)], {})
    assert (again.home, again.work) == (own, shared)
    assert _own_hosts(again) == [shared / "host" / "beta" / "host.lock"]
    assert _own_hosts(parse(["join", "--home", str(own), "--no-host"], {})) == []


def test_a_folder_that_is_no_studios_is_not_taken_for_one(shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    line = ["join", "https://studio.example.org", "--token", "edtn_x", "--home", str(tmp_path / "own"), "--shares"]
    (tmp_path / "empty").mkdir()
    for folder, words in ((tmp_path / "empty", "is the file system mounted?"), (tmp_path / "own", "is the file system mounted?")):
        with pytest.raises(SystemExit):
            parse([*line, str(folder)], {})
        assert words in capsys.readouterr().err
    with pytest.raises(SystemExit):
        parse(["join", "https://studio.example.org", "--token", "edtn_x", "--home", str(shared), "--shares", str(shared)], {})
    assert "needs another folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("number", "sentence"), [(os.getpid(), "take over from this one (--replace)"), (1, "in another container")], ids=["here", "elsewhere"]
)
def test_a_home_that_is_in_use_is_refused_by_where_it_is(tmp_path: Path, number: int, sentence: str):
    with open(tmp_path / "node.lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        held.write(f"{number}\n")
        held.flush()
        command = [sys.executable, "-m", "training_runtime.node", "join", "http://127.0.0.1:1", "--token", "x", "--home", str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"edt-node already runs in {tmp_path}" in done.stderr
    assert sentence in done.stderr
