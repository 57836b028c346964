"""A studio with a past: two projects, jobs that run, wait, ended well, failed; lanes with a history. For tests of pages, and for a look.

What happened long ago is written as rows with its own times; curves come from journals through `ingest`, as in life.
"""

from __future__ import annotations

import base64
import datetime as dt
import io
from dataclasses import dataclass
from urllib.parse import urlencode

from experiments import services
from experiments.cluster import fleet
from experiments.files.datastore import Part
from experiments.models import (
    DataAsset,
    DataUpload,
    DefinitionVersion,
    Environment,
    Experiment,
    MetricWatch,
    Node,
    Notification,
    Project,
    RunState,
    TrainingRun,
    User,
    Webhook,
)
from experiments.notifications import rules
from experiments.services import watches
from tests import cast
from tests.web import borrowed, packages
from tests.web.seeded_runs import Runs
from training_runtime.protocol import NodeFacts

SCRIPT = '''"""Handwritten digits, elastic."""
import argparse
import os

import torch.nn.functional as F
from fabric_model import FabricModel

from net import Net


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("-l", "--lr", type=float, default=5e-4, help="learning rate (default: %(default)s)")
    parser.add_argument("--optimizer", choices=["adam", "sgd", "lion"], default="adam")
    parser.add_argument("--amp", action="store_true", help="mixed precision")
    parser.add_argument("--note", default=os.environ.get("NOTE"), help="goes into the log")
    args = parser.parse_args()
    model = Net()
    FabricModel(model, datasets, F.nll_loss, optimizer).train(args.epochs, 64, 4)


if __name__ == "__main__":
    main()
'''
NET = "import torch.nn as nn\n\n\nclass Net(nn.Module):\n    # two convolutions, two layers\n    width = 32\n"
PICTURE = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==")


@dataclass
class Seeded:
    """Handles to what was made."""

    alice: User
    bob: User
    dora: User
    digits: Project
    cifar: Project
    version: DefinitionVersion
    experiment: Experiment
    running: TrainingRun
    other: TrainingRun
    queued: TrainingRun
    completed: TrainingRun
    failed: TrainingRun
    node: Node
    data: DataAsset
    upload: DataUpload
    notification: Notification
    hook: Webhook
    stopped: TrainingRun
    watch: MetricWatch
    environment: Environment


def studio(*, now: dt.datetime, steps: int = 480) -> Seeded:
    """Fill an empty database. `steps`: points of the long curves."""
    alice, bob, _, _, dora = (cast.person(n, staff=n == "dora") for n in ("alice", "bob", "victor", "charlie", "dora"))
    digits = services.create_project(by=alice, name="Digits", description="Handwritten digits: which net, which rate.")
    services.add_member(digits, by=alice, username="bob", role="editor")
    services.add_member(digits, by=alice, username="victor", role="viewer")
    cifar = services.create_project(by=bob, name="CIFAR with residual nets", description="")
    node = fleet.register(_facts(), now=now, slots=4)
    lenet = _definition(digits, alice, "LeNet, elastic")
    _variables(digits, alice, lenet, bob, now)
    environment = packages.environment(lenet, node, now)
    resnet = _definition(cifar, bob, "ResNet-18")
    packages.offered(resnet, node, now, by=dora)
    borrowed.pilots(now)
    trial = _experiment(digits, alice, "Learning rates", lenet)
    runs = Runs(node=node, now=now)
    completed = runs.ended(trial, alice, began_s=5400, lasted_s=610, state=RunState.COMPLETED, steps=steps // 2)
    failed = runs.ended(trial, alice, began_s=3000, lasted_s=4, state=RunState.FAILED, steps=0)
    stopped = runs.ended(trial, bob, began_s=2700, lasted_s=300, state=RunState.STOPPED, steps=steps // 4)
    running = runs.live(trial, alice, began_s=480, slots=[0, 1], was=[2, 3], until_s=235, steps=steps)
    other = runs.live(_experiment(cifar, bob, "Baseline", resnet), bob, began_s=232, slots=[2, 3], was=[], until_s=0, steps=steps // 2)
    wider = _experiment(digits, bob, "Wider net", lenet)
    watches.watch_experiment(wider, by=alice, metric="train loss", above=False, threshold=0.05)
    queued = runs.waiting(wider, bob)
    watches.watch_experiment(trial, by=alice, metric="test accuracy", above=True, threshold=99)
    upload = _unfinished(digits, alice)
    held = _data(digits, alice)
    told = _told(alice, completed, failed, now)
    watch = watches.watch_metric(running, by=alice, metric="train loss", above=False, threshold=0.001)
    of_runs = (trial, running, other, queued, completed, failed, node, held, upload, *told, stopped, watch, environment)
    return Seeded(alice, bob, dora, digits, cifar, lenet, *of_runs)


def _variables(project: Project, admin: User, version: DefinitionVersion, editor: User, now: dt.datetime) -> None:
    for name, value, secret in (("HF_TOKEN", "hf_s3cret", True), ("WANDB_MODE", "offline", False), ("GREETING", "", False)):
        services.set_variable(project, by=admin, name=name, value=value, secret=secret, now=now)
    services.set_variable(version.definition, by=editor, name="AWS_SECRET_ACCESS_KEY", value="wJalrXUtnFEMI", secret=True, now=now)


def _told(alice: User, completed: TrainingRun, failed: TrainingRun, now: dt.datetime) -> tuple[Notification, Webhook]:
    """Alice has been told of two of her runs, and has a webhook."""
    for run, reason in ((completed, "It finished."), (failed, "FileNotFoundError: no file train-images.npy")):
        rules.notify_state(run, reason=reason, now=run.ended_at or now, actor=None)
    hook = Webhook.objects.create(
        person=alice, url="https://chat.example.org/hooks/edt", secret="5" * 48, kinds=["run.failed"], created_by=alice
    )
    return Notification.objects.filter(person=alice)[0], hook


def _unfinished(project: Project, by: User) -> DataUpload:
    upload = services.begin_upload(project, by=by, name="Letters, large", parts=[Part("letters.zip", 4_200_000_000)])
    services.receive(upload, number=0, offset=0, body=io.BytesIO(b"PK" * 50_000))
    return upload


def _data(project: Project, by: User) -> DataAsset:
    rows = "".join(f"{n},{n % 10},{(n * 37) % 256}\n" for n in range(400))
    files = {
        "train/labels.csv": f"image,digit,mean\n{rows}",
        "train/0.png": PICTURE,
        "train/raw.bin": b"\0" * 9000,
        "README.md": "# Digits\n",
    }
    packed = cast.zipped(files)
    size = len(packed.getvalue())
    return services.add_data(project, by=by, name="Handwritten digits", description="1,797 of them.", files=[("digits.zip", size, packed)])


def _facts() -> NodeFacts:
    notes = (
        "User code runs as uid 64001 of its own, without new privileges.",
        "Files: its run folder, code and data read-only (Landlock).",
    )
    return NodeFacts("local", 16, 128 << 30, ("NVIDIA H200",) * 4, "2.13.0", "user+landlock", notes)


def _definition(project: Project, by: User, name: str) -> DefinitionVersion:
    files = {"main.py": SCRIPT, "net.py": NET, "README.md": "# Digits\n"}
    return cast.definition(project, by=by, name=name, files=files, command="main.py --epochs 20")


def _experiment(project: Project, by: User, name: str, version: DefinitionVersion) -> Experiment:
    return cast.experiment(project, by=by, versions=[version], name=name)


LONG = "W" * 60 + "‮" + "m" * 59
RIGHT_TO_LEFT = "تجربة <script>alert(1)</script> שלום"


def oddly_named(studio: Seeded) -> dict[str, str]:
    """A project, a definition with two versions, an experiment and a run whose names are long without a space, right to left, or script."""
    project = services.create_project(by=studio.alice, name=LONG, description=LONG * 3)
    version = _definition(project, studio.alice, RIGHT_TO_LEFT)
    changed = cast.zipped({"main.py": SCRIPT.replace("64, 4", "128, 2"), "more.py": "x = 1\n"})
    second = services.add_version(
        version.definition, by=studio.alice, upload=changed, file_name=f"{LONG}.zip", command="main.py", max_slots=2
    )
    experiment = _experiment(project, studio.alice, LONG, second)
    run = services.run_experiment(experiment, by=studio.alice)[0]
    odd = {f"{LONG[:50]}/{RIGHT_TO_LEFT}.txt".replace("/script", "script"): "<script>alert(1)</script>\n", "empty.txt": ""}
    files = [(path, len(text.encode()), io.BytesIO(text.encode())) for path, text in odd.items()]
    data = services.add_data(project, by=studio.alice, name=RIGHT_TO_LEFT, description=LONG, files=files)
    return {
        "oddly named data": f"/data/{data.pk}/",
        "oddly named file": f"/data/{data.pk}/?" + urlencode({"path": next(iter(odd))}),
        "oddly named project": f"/projects/{project.pk}/",
        "oddly named assets": f"/projects/{project.pk}/assets/",
        "oddly named definition": f"/definitions/{version.definition.pk}/",
        "changes": f"/versions/{second.pk}/changes/",
        "oddly named experiment": f"/experiments/{experiment.pk}/",
        "oddly named run": f"/runs/{run.pk}/overview/",
    }
