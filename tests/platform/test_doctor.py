"""`manage.py doctor` says what is wrong with a studio and what to do, and changes nothing."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from tests.platform.test_backup import done, manage, seeded
from webapp.doctor import of_folder, of_settings
from webapp.doctor.of_folder import FolderFacts
from webapp.doctor.of_settings import SettingFacts

pytestmark = pytest.mark.timeout(300)
BEHIND_A_PROXY = {"public_url": "https://studio.example.org", "hosts": ("studio.example.org",), "https": True, "proxies": ("10.0.0.2",)}
HERE = Path("/srv/edt")


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (SettingFacts(), []),
        (SettingFacts(names=["EDT_HOME", "EDT_METRICS_TOKEN_FILE", "PATH"]), []),
        (SettingFacts(names=["EDT_HTPS"]), ["did you mean EDT_HTTPS?"]),
        (SettingFacts(names=["EDT_WHATEVER"]), ["EDT_WHATEVER is no setting"]),
        (SettingFacts(**BEHIND_A_PROXY), []),
        (SettingFacts(**BEHIND_A_PROXY | {"proxies": (), "origins": ("https://studio.example.org",)}), []),
        (SettingFacts(**BEHIND_A_PROXY | {"proxies": ()}), ["forms are refused"]),
        (SettingFacts(**BEHIND_A_PROXY | {"https": False}), ["as plain text", "also sent over http"]),
        (SettingFacts(**BEHIND_A_PROXY | {"hosts": ("studio",)}), ["answered 400"]),
        (SettingFacts(**BEHIND_A_PROXY | {"hosts": (".example.org",)}), []),
        (SettingFacts(public_url="studio.example.org"), ["must be like https://"]),
        (SettingFacts(origins=("studio.example.org",)), ["https:// in front"]),
        (SettingFacts(proxies=("proxy",)), ["no address or network"]),
        (SettingFacts(sends_mail=True), ["e-mails have no links"]),
        (SettingFacts(debug=True), ["EDT_DEBUG is on"]),
    ],
)
def test_settings_that_do_not_fit_together_are_named(facts: SettingFacts, said: list[str]) -> None:
    found = [each.words for each in of_settings.check(facts)]
    assert len(found) == len(said), found
    assert all(part in words for part, words in zip(said, found, strict=True)), found


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (FolderFacts(HERE), ""),
        (FolderFacts(HERE, file_system="nfs4"), "network file system"),
        (FolderFacts(HERE, free=1 << 20), "1 MiB left"),
        (FolderFacts(HERE, free=1 << 36), "64 of 1024 GiB left"),
        (FolderFacts(HERE, files_free=5, files_size=1000), "5 more files"),
        (FolderFacts(HERE, open_to_others=("/srv/edt/secrets",)), "chmod go= /srv/edt/secrets"),
        (FolderFacts(HERE, user="root"), "belongs to edt"),
    ],
)
def test_a_folder_that_is_not_as_it_should_be_is_said(facts: FolderFacts, said: str) -> None:
    found = [each.words for each in of_folder.check(facts)]
    assert len(found) == bool(said), found
    assert all(said in words for words in found), found


def everything(home: Path) -> dict[str, tuple[int, int]]:
    kept = (path for path in home.rglob("*") if path.name.partition("-")[0] != "db.sqlite3" or path.suffix == ".sqlite3")
    return {str(path): (path.lstat().st_mtime_ns, path.lstat().st_size) for path in kept if path.name != "home"}


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return seeded(tmp_path_factory.mktemp("past") / "home")


@pytest.fixture
def home(past: Path, tmp_path: Path) -> Path:
    """A studio with a little in it, as it was left."""
    shutil.copytree(past, tmp_path / "home", symlinks=True, ignore=lambda _, names: {"pipe"} & set(names))
    return tmp_path / "home"


def test_a_studio_that_is_well_is_said_to_be_and_nothing_is_changed(home: Path) -> None:
    with sqlite3.connect(home / "db.sqlite3") as database:
        database.execute("UPDATE experiments_user SET is_staff = 1")
    before = everything(home)
    said = done(manage(home, "doctor", "--read"))
    assert [line for line in said.splitlines() if not line.startswith("ok ")] == [
        "warning  cluster: The studio does not run: nothing is planned or sent, and the broker was not asked.",
        "1 things are worth a look.",
    ]
    assert everything(home) == before


def test_what_is_missing_damaged_or_open_is_named(home: Path, tmp_path: Path) -> None:
    (bundle,) = (home / "bundles").glob("*.zip")
    bundle.unlink()
    (asset,) = (path for path in (home / "assets").iterdir() if len(path.name) == 32)
    asset.rename(tmp_path / "asset")
    (model,) = (path for path in (home / "models").iterdir() if len(path.name) == 64)
    model.chmod(0o600)
    model.write_bytes(b"other")
    (home / "secrets" / "secret_key").chmod(0o644)
    with sqlite3.connect(home / "db.sqlite3") as database:
        database.execute("PRAGMA foreign_keys = OFF")
        database.execute("UPDATE experiments_experiment SET project_id = 999")
    stray = home / "runs" / "0123"
    stray.mkdir()
    os.utime(stray, (0, 0))

    found = manage(home, "doctor", "--read")
    lines = found.stdout.splitlines()
    wanted = [
        ("error", "folder", f"chmod go= {home / 'secrets' / 'secret_key'}"),
        ("error", "database", "of experiments_experiment refers to a row of experiments_project that is not there"),
    ]
    assert found.returncode == 1
    for level, part, words in wanted:
        assert any(line.startswith(level) and f" {part}: " in line and words in line for line in lines), (words, lines)
    with sqlite3.connect(home / "db.sqlite3") as database:
        database.execute("UPDATE experiments_experiment SET project_id = 1")
    lines = manage(home, "doctor", "--read").stdout.splitlines()
    wanted = [
        ("error", "cluster", "Nobody administers"),
        ("error", "files", f"Code without files: {bundle.stem}. Put them back from a backup"),
        ("error", "files", f"Data assets without files: {asset.name}."),
        ("error", "files", f"{model} is not what was stored there."),
        ("warning", "files", "1 things in EDT_HOME belong to nothing"),
    ]
    for level, part, words in wanted:
        assert any(line.startswith(level) and f" {part}: " in line and words in line for line in lines), (words, lines)


def test_a_database_that_is_not_there_is_said_and_not_made(tmp_path: Path) -> None:
    home = tmp_path / "home"
    found = manage(home, "doctor")
    assert (found.returncode, "Traceback" in found.stderr) == (1, False), found.stderr
    assert f"error    database: {home / 'db.sqlite3'} is not there" in found.stdout
    assert not (home / "db.sqlite3").exists()


def test_a_database_that_is_damaged_or_away_is_a_sentence(home: Path) -> None:
    with open(home / "db.sqlite3", "r+b") as file:
        file.seek(4096 * 8)
        file.write(b"\xff" * 4096 * 40)
    found = manage(home, "doctor")
    assert (found.returncode, "Traceback" in found.stderr) == (1, False), found.stderr
    assert "is damaged" in found.stdout or "cannot be used" in found.stdout
    found = manage(home, "doctor", database="postgres://edt@127.0.0.1:1/edt")
    assert (found.returncode, "Traceback" in found.stderr) == (1, False), found.stderr
    assert "error    database: The database cannot be used" in found.stdout
