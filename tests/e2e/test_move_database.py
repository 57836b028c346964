"""A studio moves from SQLite to PostgreSQL while a job trains, by the commands that docs/operations.md prints."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psycopg
import pytest

from tests.domain import postgres
from tests.e2e.moving import all_steps_once, completes, driver, hurry, paced_digits, straight_weights, submits, trains_on, with_digits
from tests.e2e.studio import REPOSITORY, Studio, printed_commands
from tests.engine.harness import weights

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(500)]
EPOCHS = "main.py --epochs 8"
PRINTED = "postgres://edt:PASSWORD@db.example.org/edt"


def made_as_printed(server: str) -> str:
    """The URL of the database that the documentation has an administrator make; with another name than the server's first user."""
    section = (REPOSITORY / "docs" / "operations.md").read_text().partition("## PostgreSQL\n")[2]
    with psycopg.connect(server, autocommit=True) as connection:
        for statement in section.partition("```sql\n")[2].partition("```")[0].splitlines():
            connection.execute(statement.replace("edt", "studio").encode())
    return server.replace("edt@/postgres", "studio@/studio")


@pytest.mark.skipif(postgres.programs() is None, reason="the PostgreSQL wheel is not installed")
def test_a_studio_moves_to_postgresql_while_a_job_trains(tmp_path: Path) -> None:
    with postgres.running() as server, with_digits(Studio(slots=2)) as studio:
        url = made_as_printed(server)
        code = paced_digits(tmp_path)
        straight = straight_weights(studio, code, command=EPOCHS)
        studio.account("alice")
        run = submits(studio, code, command=EPOCHS)
        trains_on(studio, run)
        began = driver(studio.home, "local", run)

        for line in printed_commands("## PostgreSQL"):
            assert PRINTED in line or "move_database" not in line
            command = line.replace(PRINTED, f"'{url}'")
            done = subprocess.run(["sh", "-c", command], cwd=studio.code, env=studio.environment, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
        assert studio.process is not None
        assert studio.process.wait(10) == 0
        trains_on(studio, run, words="while no studio is there")

        studio.settings["DATABASE_URL"] = url
        studio.start()
        trains_on(studio, run, words="with PostgreSQL")
        assert "error" not in studio.manage("doctor", "--read")
        assert driver(studio.home, "local", run) == began, "its process is the same"
        hurry(studio)
        completes(studio, run)
        assert all_steps_once(studio, run)
        assert weights(studio.folder(run)) == straight
