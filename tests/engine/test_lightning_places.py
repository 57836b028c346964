"""Where Lightning's loggers and checkpoints go on, without a training: in a process of its own, as Lightning is no package of ours."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.harness import ROOT
from tests.engine.trainer_scripts import PACKAGES

pytestmark = pytest.mark.skipif(not (PACKAGES / "lightning").is_dir(), reason="trainers are not installed: make setup-test")
SCRIPT = """
import json, sys
from pathlib import Path
from types import SimpleNamespace
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from training_runtime.elastic.trainers import lightning_places

folder = Path(sys.argv[1])

def trainer(*loggers, callbacks=()):
    epoch_loop = SimpleNamespace(_batches_that_stepped=5)
    return SimpleNamespace(loggers=loggers, callbacks=list(callbacks), fit_loop=SimpleNamespace(epoch_loop=epoch_loop))

def log(logger, step):
    logger.log_metrics({"loss": 1 / 2 ** step}, step)
    logger.save()

first = [CSVLogger(folder), TensorBoardLogger(folder, "board"), CSVLogger(folder, "named", "mine"), CSVLogger(folder, "changed")]
for step in range(8):
    log(first[0], step), log(first[2], step), log(first[3], step)
first[1].log_metrics({"loss": 1.0}, 0)
saves = ModelCheckpoint()
saves.dirpath = "models"
places = json.loads(json.dumps(lightning_places.of(trainer(*first, callbacks=[saves, object(), ModelCheckpoint("chosen")]))))
(folder / "changed/version_0/metrics.csv").write_bytes(bytes(range(256)))

again = [CSVLogger(folder), TensorBoardLogger(folder, "board"), CSVLogger(folder, "named", "mine"), CSVLogger(folder, "changed")]
callbacks = [ModelCheckpoint(), object(), ModelCheckpoint("other")]
lightning_places.go_on(trainer(*again, callbacks=callbacks), places)
for logger in (again[0], again[2]):
    log(logger, 6)
found = {"versions": [each.version for each in again[:3]], "folders": [callbacks[0].dirpath, callbacks[2].dirpath]}
print(json.dumps({"places": places, **found}))
"""


def test_a_later_process_goes_on_in_the_same_places_and_takes_back_what_is_done_again(tmp_path: Path) -> None:
    paths = f"{PACKAGES}:{ROOT}"
    command = [sys.executable, "-c", f"import sys; sys.path[:0] = {paths.split(':')}\n{SCRIPT}", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["places"] == {"versions": [0, 0, "mine", 0], "folders": ["models", str(tmp_path / "chosen")], "logged": 5}
    assert said["versions"] == [0, 0, "mine"]
    assert said["folders"] == ["models", str(tmp_path / "other")], "what the script has chosen is left as it is"
    rows = ["loss,step", *(f"{1 / 2**step},{step}" for step in range(7))]
    for table in ("lightning_logs/version_0/metrics.csv", "named/mine/metrics.csv"):
        assert (tmp_path / table).read_text().split() == rows, "those behind the step that it goes on from were to be done again"
    assert "could not be gone on with: UnicodeDecodeError" in done.stderr
