"""Scripts with Ultralytics' trainers, which say nothing of checkpoints: started again they go on behind the last epoch that was saved."""

from __future__ import annotations

import csv
import json
import os
import signal

import pytest
from PIL import Image
from sklearn.datasets import load_digits

from tests.engine.gates import allow, move, noted
from tests.engine.harness import Run
from tests.engine.trainer_scripts import BEGIN, PACKAGES

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(not (PACKAGES / "ultralytics").is_dir(), reason="Ultralytics is not installed: make setup-test"),
]
EPOCHS = 4
# Each epoch waits until it is allowed.
ONE = (
    BEGIN
    + """
del os.environ["PYTEST_CURRENT_TEST"]  # or it writes elsewhere
os.environ["YOLO_CONFIG_DIR"] = str(RESULTS / "tmp")
from ultralytics import YOLO, settings

settings.update({"runs_dir": str(RESULTS / "runs")})
settings.update({"mlflow": False})

def begins(trainer):
    note(begun=trainer.epoch + 1)
    wait_for(trainer.epoch + 1)

def ended(trainer):
    note(saved=trainer.epoch + 1)

def train(**more):
    model = YOLO("yolo11n-cls.yaml")
    model.add_callback("on_train_epoch_start", begins)
    model.add_callback("on_model_save", ended)
    found = model.train(data=os.environ["DATA_DIR"] + "/digits", epochs=EPOCHS, imgsz=32, batch=8, plots=False, verbose=False, **more)
    note(top5=found.top5, folder=model.trainer.save_dir.name)
""".replace("EPOCHS", str(EPOCHS))
)
SAVES = """
def written(self, content, write_bytes=Path.write_bytes):
    if self.name == "last.pt" and (RESULTS / "dies").exists():
        (RESULTS / "dies").unlink()
        write_bytes(self, content[: len(content) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    return write_bytes(self, content)

Path.write_bytes = written
"""


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    """Sixteen for training and eight for validation, of two classes, each a picture in the folder of its class."""
    found, folder = load_digits(), tmp_path_factory.mktemp("data") / "digits"
    for part, which in (("train", slice(0, 8)), ("val", slice(8, 12))):
        for digit in (0, 1):
            place = folder / part / str(digit)
            place.mkdir(parents=True)
            for number, image in enumerate(found.images[found.target == digit][which]):
                Image.fromarray((image * 15).astype("uint8")).resize((32, 32)).convert("RGB").save(place / f"{number}.png")
    return folder.parent


@pytest.fixture
def begin(start, digits):
    def begin(script: str, epochs: int, **env: str) -> Run:
        run = start(script, elastic=False, max_slots=1, env={"DATA_DIR": str(digits), "YOLO_OFFLINE": "true", **env})
        allow(run, epochs)
        run.members(0)
        return run

    return begin


def until_begun(run: Run, epoch: int, times: int = 1) -> None:
    run.until(lambda: noted(run, "begun").count(epoch) == times, what=f"epoch {epoch} begins\n{run.tail()}")


def again(run: Run, epochs: int = EPOCHS) -> None:
    allow(run, epochs)
    run.again()
    run.members(0)


def table_of(run: Run, folder: str = "train") -> list[int]:
    (table,) = run.folder.rglob(f"{folder}/results.csv")
    return [int(row["epoch"]) for row in csv.DictReader(table.open())]


def test_a_training_that_is_displaced_goes_on_behind_its_last_epoch_in_the_same_folder(begin, tmp_path):
    """On another machine too, where runs lie at another path."""
    run = begin(ONE + "train()", 2)
    until_begun(run, 3)
    os.kill(run.pid, signal.SIGTERM)
    assert run.wait() == -signal.SIGTERM, run.tail()
    move(run, tmp_path / "elsewhere")
    again(run, 3)
    until_begun(run, 4)
    run.kill(0)
    run.wait()
    again(run)
    assert run.wait() == 0, run.tail()
    assert noted(run, "begun") == [1, 2, 3, 3, 4, 4]
    assert noted(run, "saved") == [1, 2, 3, 4], "each epoch once"
    assert noted(run, "folder") == ["train"]
    assert table_of(run) == [1, 2, 3, 4]
    assert {event.step for event in run.events("logged")} == {1, 2, 3, 4}
    assert [(last.done, last.total, last.label) for last in run.events("progress")[-1:]] == [(4, 4, "Epochs")]


def test_one_that_dies_as_it_saves_goes_on_from_the_checkpoint_before(begin):
    run = begin(ONE + SAVES + "train()", 2)
    until_begun(run, 3)
    (run.result_dir / "dies").touch()
    allow(run, 3)
    assert run.wait() == -signal.SIGKILL, run.tail()
    (broken,) = run.folder.rglob("weights/last.pt")
    before = broken.stat().st_size
    again(run, 3)
    until_begun(run, 4)
    assert broken.stat().st_size > before, "it is whole again"
    (table,) = run.folder.rglob("results.csv")
    table.write_bytes(b"")  # as a full disk leaves it
    run.kill(0)
    run.wait()
    again(run)
    assert run.wait() == 0, run.tail()
    assert noted(run, "begun") == [1, 2, 3, 3, 4, 4]


def test_a_training_that_has_ended_is_not_done_again_and_its_model_is_what_it_was(begin):
    script = ONE + "for fold in range(2):\n    train(name=f'fold{fold}', seed=fold)\n"
    run = begin(script, EPOCHS)
    run.until(lambda: noted(run, "begun").count(3) == 2, what=f"the second is at work\n{run.tail()}")
    run.kill(0)
    run.wait()
    again(run)
    assert run.wait() == 0, run.tail()
    begun = noted(run, "begun")
    assert begun[:4] == [1, 2, 3, 4]
    assert begun.count(1) == 2, "each training began once"
    assert noted(run, "folder") == ["fold0", "fold0", "fold1"]
    tops = noted(run, "top5")
    assert tops[0] == tops[1]
    assert [table_of(run, f"fold{fold}") for fold in range(2)] == [[1, 2, 3, 4]] * 2


def test_a_checkpoint_that_cannot_be_loaded_begins_the_training_at_its_start(begin):
    run = begin(ONE + "train()", 2)
    until_begun(run, 3)
    run.kill(0)
    run.wait()
    (last,) = run.folder.rglob("weights/last.pt")
    facts = last.stat()
    last.write_bytes(bytes(facts.st_size))
    os.utime(last, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    again(run)
    assert run.wait() == 0, run.tail()
    assert "begins at its start" in run.log.read_text()
    assert noted(run, "begun") == [1, 2, 3, 1, 2, 3, 4]
    assert json.loads((run.result_dir / "checkpoint/trainings/1.json").read_text())["saved"]
