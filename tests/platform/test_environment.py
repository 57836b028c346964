"""Secrets in files: read in place of the variables that they are called after, as the studio is started."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from webapp.environment import Env
from webapp.home import SettingUnusable

REPOSITORY = Path(__file__).resolve().parents[2]
DOCUMENT = (REPOSITORY / "docs/operations.md").read_text().partition("Secrets may stand in files")[2].partition("\n\n")[0]
SECRETS = {
    "DATABASE_URL": "postgres://edt:word@db.example.org/edt",
    "EDT_REDIS_URL": "redis://:word@redis.example.org:6379/2",
    "EDT_EMAIL_URL": "smtp+tls://user:word@mail.example.org:587",
    "EDT_OIDC_CLIENT_SECRET": "of the provider",
    "EDT_METRICS_TOKEN": "of the monitoring",
    "EDT_RAY_TOKEN": "of ray",
}
WORDS = (
    "import json; from django.conf import settings as s; d = s.DATABASES['default'];"
    "print(json.dumps([d['PASSWORD'], s.REDIS_URL, s.EMAIL_HOST_PASSWORD, s.EDT_OIDC_CLIENT_SECRET, s.EDT_METRICS_TOKEN, s.EDT_RAY_TOKEN]))"
)


def settings(tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    usual = {name: value for name, value in os.environ.items() if not name.startswith(("EDT_", "DATABASE_"))}
    return subprocess.run(
        [sys.executable, "manage.py", "shell", "--no-imports", "-c", WORDS],
        env=usual | {"EDT_HOME": str(tmp_path / "home"), "DJANGO_SETTINGS_MODULE": "webapp.settings"} | environment,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )


def test_what_stands_in_a_file_counts_and_not_the_end_of_its_line(tmp_path: Path) -> None:
    assert {f"{name}_FILE" for name in SECRETS} == set(re.findall(r"\w+_FILE", DOCUMENT))
    for name, value in SECRETS.items():
        (tmp_path / name).write_text(f"{value}\n")
    done = settings(tmp_path, EDT_METRICS_TOKEN="another", **{f"{name}_FILE": str(tmp_path / name) for name in SECRETS})
    wanted = ["word", "redis://:word@redis.example.org:6379/3", "word", "of the provider", "of the monitoring", "of ray"]
    assert json.loads(done.stdout) == wanted, done.stderr


def test_a_file_that_cannot_be_read_is_said_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "noise").write_bytes(b"\xff\xfe\x00")
    done = settings(tmp_path, EDT_METRICS_TOKEN_FILE=str(tmp_path / "noise"))
    assert (done.returncode, done.stderr) == (2, "EDT_METRICS_TOKEN_FILE names a file that is no text in UTF-8.\n")
    done = settings(tmp_path, EDT_METRICS_TOKEN_FILE="/run/secrets/nowhere")
    assert done.returncode == 2
    assert done.stderr == "EDT_METRICS_TOKEN_FILE (/run/secrets/nowhere) cannot be read: No such file or directory.\n"


def reading(monkeypatch: pytest.MonkeyPatch, said: str) -> Env:
    monkeypatch.setenv("EDT_SAID", said)
    return Env()


@pytest.mark.parametrize(
    ("read", "said", "wanted"),
    [
        (lambda env: env.int("EDT_SAID", default=7), " 12 ", 12),
        (lambda env: env.int("EDT_SAID", default=7), "", 7),
        (lambda env: env.float("EDT_SAID", default=7.0), "1e3", 1000.0),
        (lambda env: env.float("EDT_SAID", default=7.0), " ", 7.0),
        (lambda env: env.bool("EDT_SAID", default=True), "Off", False),
        (lambda env: env.bool("EDT_SAID", default=False), "yes", True),
        (lambda env: env.bool("EDT_SAID", default=False), "y", True),
        (lambda env: env.list("EDT_SAID", default=[]), "a, b,,", ["a", "b"]),
        (lambda env: env.str("EDT_SAID", default=""), "$ecret", "$ecret"),
        (lambda env: env.str("EDT_SAID", default="local"), "", "local"),
        (lambda env: env.database("EDT_SAID", default="sqlite:///a.db")["NAME"], "", "a.db"),
    ],
)
def test_a_variable_is_read_as_its_kind_and_an_empty_one_is_not_set(
    monkeypatch: pytest.MonkeyPatch, read: Callable[[Env], object], said: str, wanted: object
) -> None:
    assert read(reading(monkeypatch, said)) == wanted


@pytest.mark.parametrize(
    ("read", "said", "sentence"),
    [
        (lambda env: env.int("EDT_SAID", default=7), "2 GiB", "EDT_SAID is '2 GiB': it must be a whole number of 0 or more."),
        (lambda env: env.int("EDT_SAID", default=7), "-1", "EDT_SAID is '-1': it must be a whole number of 0 or more."),
        (lambda env: env.float("EDT_SAID", default=7.0), "10 days", "EDT_SAID is '10 days': it must be a number of 0 or more."),
        (lambda env: env.float("EDT_SAID", default=7.0), "nan", "EDT_SAID is 'nan': it must be a number of 0 or more."),
        (lambda env: env.bool("EDT_SAID", default=False), "yeah", "EDT_SAID is 'yeah': it must be true or false."),
        (lambda env: env.database("EDT_SAID", default=""), "mysql://a:hunter2@b/c", "EDT_SAID names no database that the studio can use"),
        (lambda env: env.database("EDT_SAID", default=""), "hunter2", "EDT_SAID names no database that the studio can use"),
        (lambda env: env.mail("EDT_SAID", default=""), "mail://a:hunter2@b", "EDT_SAID names no way to send e-mail"),
    ],
)
def test_what_a_variable_cannot_mean_is_said_in_a_sentence_without_a_password(
    monkeypatch: pytest.MonkeyPatch, read: Callable[[Env], object], said: str, sentence: str
) -> None:
    with pytest.raises(SettingUnusable) as refusal:
        read(reading(monkeypatch, said))
    assert str(refusal.value).startswith(sentence)
    assert "hunter2" not in str(refusal.value)


def test_a_setting_that_means_nothing_ends_the_start(tmp_path: Path) -> None:
    done = settings(tmp_path, EDT_HTTPS="maybe")
    assert (done.returncode, done.stderr) == (2, "EDT_HTTPS is 'maybe': it must be true or false.\n")
