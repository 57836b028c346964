"""The guided sample project: the digits example with its data, made and run in one click, for a person's first visit."""

from __future__ import annotations

import datetime as dt
import io
import uuid
import zipfile
from pathlib import Path

from django.db import transaction

from experiments.models import Project, TrainingRun, User
from experiments.services.data import add_data
from experiments.services.definitions import create_definition
from experiments.services.experiments import create_experiment, run_experiment
from experiments.services.projects import create_project

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits"
COMMAND = "main.py --epochs 30"  # some half a minute on four slots
DESCRIPTION = "A small net learns to read handwritten digits. Everything in here is yours to change; delete it when you are done."


def bundle() -> bytes:
    """The example as a zip, the same bytes each time."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("main.py", "README.md"):
            archive.writestr(zipfile.ZipInfo(f"digits/{name}", (2026, 1, 1, 0, 0, 0)), (EXAMPLE / name).read_bytes())
    return buffer.getvalue()


def make_sample(*, by: User, idempotency_key: uuid.UUID | None = None, now: dt.datetime | None = None) -> TrainingRun:
    """The person's sample project with a run that is queued; the newest run of the one that they have already. All of it or nothing."""
    with transaction.atomic():
        User.objects.select_for_update().get(pk=by.pk)  # of two clicks at once the second finds what the first has made
        known = TrainingRun.objects.filter(experiment__project__sample=True, experiment__project__created_by=by)
        mine = known.filter(experiment__project__memberships__user=by)
        return mine.order_by("-submitted_at", "-id").first() or _make(by, idempotency_key, now)


def _make(by: User, idempotency_key: uuid.UUID | None, now: dt.datetime | None) -> TrainingRun:
    project = _project(by, idempotency_key)
    files = [(path.name, path.stat().st_size, open(path, "rb")) for path in sorted((EXAMPLE / "data").iterdir())]  # noqa: SIM115
    try:
        data = add_data(
            project, by=by, name="Handwritten digits", description="1,797 images of 8x8 pixels, in MNIST's format.", files=files
        )
    finally:
        for _, _, file in files:
            file.close()
    version = create_definition(
        project,
        by=by,
        name="Digits",
        description="A convolutional net for 8x8 digits, with FabricModel.",
        upload=io.BytesIO(bundle()),
        file_name="digits.zip",
        command=COMMAND,
        idempotency_key=idempotency_key,
    )
    experiment = create_experiment(project, by=by, name="First run", data_asset=data, versions=[version], idempotency_key=idempotency_key)
    return run_experiment(experiment, by=by, idempotency_key=idempotency_key, now=now)[0]


def _project(by: User, idempotency_key: uuid.UUID | None) -> Project:
    project = create_project(by=by, name="Sample: handwritten digits", description=DESCRIPTION, idempotency_key=idempotency_key)
    project.sample = True
    project.save(update_fields=["sample"])
    return project
