"""Runs as other tools have kept them in a folder, by these tools' own libraries."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from mlflow import MlflowClient
from torch.utils.tensorboard import SummaryWriter

KEPT = {"first": {"train loss": 0.5}, "a": {"train loss": 0.25}, "offline": {"train loss": 0.125}}  # the metrics of each
SCRIPT = """
import wandb
run = wandb.init(project="letters", name="offline")
wandb.log({"loss": 0.125})
run.finish()
"""


def keep_runs(folder: Path) -> None:
    """Of MLflow in mlruns, of TensorBoard in runs, of Weights & Biases in wandb."""
    with (folder / ".gitignore").open("a") as ignored:
        ignored.write("mlruns/\nruns/\nwandb/\n")
    client = MlflowClient(tracking_uri=str(folder / "mlruns"))
    run = client.create_run(client.create_experiment("letters"), run_name="first").info.run_id
    client.log_metric(run, "loss", 0.5, step=1)
    client.log_text(run, "as good as it gets", "notes.txt")
    client.set_terminated(run)
    with SummaryWriter(str(folder / "runs" / "a")) as writer:
        writer.add_scalar("loss", 0.25, 1)
    mine = {**os.environ, "WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false", "HOME": str(folder.parent)}
    subprocess.run([sys.executable, "-c", SCRIPT], cwd=folder, env=mine, check=True, timeout=120, capture_output=True)
