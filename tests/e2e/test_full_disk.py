"""The disk of a whole studio runs full while people train, until somebody makes room: no run fails, and all come to the same weights."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests import cast
from tests.disk import SmallDisk, small_disk
from tests.e2e.studio import Studio, wait_until
from tests.engine.harness import weights
from tests.engine.scripts import SMALL

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
MIB = 1 << 20
# Slow until it is told to hurry: none of four is to be done before the last has begun.
PATIENT = SMALL.replace(
    "FabricModel(model, data, nn.functional.cross_entropy",
    """
import os, time
def loss(predicted, wanted):
    if not os.path.exists(os.environ["RESULT_DIR"] + "/hurry"):
        time.sleep(0.1)
    return nn.functional.cross_entropy(predicted, wanted)
FabricModel(model, data, loss""",
)

SUBMIT = """
from experiments.models import User
from experiments import services
from tests import cast
alice = User.objects.get(username="alice")
project = services.create_project(by=alice, name="{name}")
version = cast.definition(
    project, by=alice, files={{"main.py": open({script!r}).read()}}, command="python main.py --epochs 8 --checkpoint 0", max_slots=1
)
print([services.run_experiment(cast.experiment(project, by=alice, versions=[version], name=f"run {{n}}"), by=alice)[0].pk
       for n in range({count})])
"""


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallDisk]:
    for name, size in (("LOW", 20), ("ENOUGH", 40), ("RESERVE", 16)):
        monkeypatch.setenv(f"EDT_DISK_{name}_BYTES", str(size * MIB))
    with tempfile.TemporaryDirectory(prefix="edt-e2e-") as above:
        Path(above).chmod(0o755)
        with small_disk(Path(above, "home"), 400 * MIB) as disk:
            yield disk


@pytest.fixture
def studio(disk: SmallDisk) -> Iterator[Studio]:
    studio = Studio(home=disk.folder)
    try:
        studio.start()
        studio.account("alice")
        yield studio
    finally:
        studio.close()


def submit(studio: Studio, script: Path, *, name: str, count: int) -> list[int]:
    printed = studio.shell(SUBMIT.format(name=name, script=str(script), count=count))
    return [int(number) for number in printed.strip().splitlines()[-1].strip("[]").split(",")]


def states(studio: Studio) -> set[str]:
    return {state for (state,) in studio.rows("SELECT state FROM experiments_trainingrun")}


def test_four_runs_wait_for_room_and_go_on(studio: Studio, disk: SmallDisk, tmp_path: Path) -> None:
    script = tmp_path / "main.py"
    assert PATIENT != SMALL
    script.write_text(PATIENT)
    runs = submit(studio, script, name="Digits", count=4)

    def trains() -> bool:
        return all(step >= 10 for (step,) in studio.rows("SELECT step FROM experiments_trainingrun"))

    wait_until(trains, "all four train", deadline_s=180)
    disk.fill()
    wait_until(
        lambda: states(studio) == {"suspended"}, lambda: f"all four are suspended, not {states(studio)}:\n{studio.tail()}", deadline_s=120
    )
    for (reason,) in studio.rows("SELECT state_reason FROM experiments_trainingrun"):
        assert "The disk of node local is full" in reason
    [(problem,)] = studio.rows("SELECT storage_problem FROM experiments_node")
    assert "go on by themselves when 40 MiB are" in problem
    disk.make_room()
    for run in runs:
        (studio.folder(run) / "hurry").touch()
    wait_until(lambda: states(studio) == {"completed"}, lambda: f"all four are done:\n{studio.tail()}", deadline_s=300)
    assert studio.rows("SELECT COUNT(*) FROM experiments_runtransition WHERE new = 'failed'") == [(0,)]
    [calm] = submit(studio, script, name="Calm", count=1)
    wait_until(lambda: studio.folder(calm).is_dir(), "its folder")
    (studio.folder(calm) / "hurry").touch()
    wait_until(lambda: states(studio) == {"completed"}, "the one without any trouble is done", deadline_s=180)
    folders = {run: studio.home / "runs" / name for run, name in studio.rows("SELECT id, folder FROM experiments_trainingrun")}
    assert {weights(folders[run]) for run in runs} == {weights(folders[calm])}
    assert (studio.home / "host" / "local" / "reserve").stat().st_size == 16 * MIB


def test_people_are_told_that_the_disk_is_full_and_may_still_delete_and_nothing_ends(studio: Studio, disk: SmallDisk) -> None:
    with httpx.Client(base_url=f"{studio.url}/api/v1", auth=("alice", studio.account("alice")), timeout=60) as alice:
        token = alice.post("/tokens", json={"name": "full", "scope": "admin"}).json()["token"]
        alice.auth, alice.headers["Authorization"] = None, f"Bearer {token}"
        kept, gone = (alice.post("/projects", json={"name": name}).json()["id"] for name in ("Kept", "Gone"))
        code = {"file": ("code.zip", cast.zipped({"main.py": "x = 1", "weights.bin": os.urandom(100_000)}).getvalue())}
        definition, numbers = {"name": "lenet", "command": "main.py"}, itertools.count()

        def full() -> bool:
            disk.fill()
            return disk.free() == 0 and not (studio.home / "host" / "local" / "reserve").exists()

        def refused_upload() -> httpx.Response | None:
            """Others write and delete there too, so one may be taken."""
            more = definition | {"name": f"taken {next(numbers)}"}
            answer = alice.post(f"/projects/{kept}/definitions", data=more, files=code) if full() else None
            return answer if answer is not None and answer.status_code != 201 else None

        refused = wait_until(refused_upload, "the reserve is used up, too")
        assert (refused.status_code, refused.json()["title"]) == (507, "Insufficient Storage")
        assert refused.json()["detail"].startswith("The studio's disk is full, so this was not done")
        wait_until(lambda: full() and alice.delete(f"/projects/{gone}").status_code in (204, 404), "a project is deleted", deadline_s=60)
        disk.make_room()
        wait_until(lambda: alice.post(f"/projects/{kept}/definitions", data=definition, files=code).status_code == 201, "its code is taken")
        assert [each["name"] for each in alice.get("/projects").json()["items"]] == ["Kept"]
        assert "lenet" in [each["name"] for each in alice.get(f"/projects/{kept}/definitions").json()["items"]]
    wait_until(lambda: not list((studio.home / "tmp").iterdir()), "what was uploaded is gone, which it is behind its answer")
    assert "has ended unexpectedly" not in studio.tail(1000)
    assert "Traceback" not in studio.tail(1000)
