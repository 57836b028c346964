"""A SQLite database with every migration in it, made once for each state of the migrations and copied by all who want an empty one.

Migrating takes seconds of a processor, and each process of the tests and each studio that a browser test opens would do it anew.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import django

REPOSITORY = Path(__file__).resolve().parents[1]
KEPT = REPOSITORY / ".cache" / "migrated"


def copy_to(path: Path) -> None:
    """Put an empty database at `path`, in place of what is there. What models have beside tables (permissions) is still to be made."""
    KEPT.mkdir(parents=True, exist_ok=True)
    made = KEPT / f"{_state()}.sqlite3"
    with open(KEPT / "lock", "w") as lock:  # several processes begin at once: one makes it
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            _make(made)
    shutil.copyfile(made, path)


def _state() -> str:
    files = sorted((REPOSITORY / "experiments" / "migrations").glob("*.py"))
    said = hashlib.sha256(django.__version__.encode())
    for file in files:
        said.update(file.name.encode() + file.read_bytes())
    return said.hexdigest()[:16]


def _make(path: Path) -> None:
    for old in KEPT.glob("*.sqlite3"):
        old.unlink()
    with tempfile.TemporaryDirectory(prefix="edt-migrated-") as home:
        environment = {**os.environ, "EDT_HOME": home, "DJANGO_SETTINGS_MODULE": "webapp.settings"}
        environment.pop("DATABASE_URL", None)
        command = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
        subprocess.run(command, cwd=REPOSITORY, env=environment, check=True, capture_output=True)
        assert not list(Path(home).glob("db.sqlite3-wal")), "all of it is in the file"
        shutil.copyfile(Path(home) / "db.sqlite3", f"{path}.new")
    Path(f"{path}.new").rename(path)
