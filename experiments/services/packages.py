"""Verb on a run that failed for want of a package: the next version of its training definition, which requires that as well."""

from __future__ import annotations

import re
import tempfile
import uuid
from typing import BinaryIO, cast

from django.conf import settings

from experiments.boxed import folders
from experiments.definitions import required_packages
from experiments.errors import DomainError
from experiments.files import bundles
from experiments.models import DefinitionVersion, TrainingRun, User
from experiments.services import checks
from experiments.services.definitions import add_version
from training_runtime.environments import requirements

_ADVICE = re.compile(
    r"add a line ([A-Za-z0-9][A-Za-z0-9._-]{0,99}(?:<[0-9]{1,4})?) to requirements\.txt in the upload"
)  # of training_runtime.elastic.driver.advice
TRY_BY_HAND = "Add a line {} to {} by hand, and save it as a new version."


def missing_package(run: TrainingRun) -> str:
    """What a click may add: the package that the run failed for the want of; empty where there is none, or its packages come from somewhere
    else than an upload."""
    version = run.version
    if version.packages != DefinitionVersion.Packages.OWN or version.git_address:
        return ""
    found = _ADVICE.search(run.error_message)
    return found.group(1) if found else ""


def add_package(run: TrainingRun, *, by: User, idempotency_key: uuid.UUID | None = None) -> tuple[DefinitionVersion, str]:
    """The next version of the run's training definition: as the newest, but its requirements.txt names the missing package too; and that
    package. Refused where there is none to add, and where the packages are in a pyproject.toml, which is a person's to change."""
    package, newest = missing_package(run), run.version.definition.newest()
    if not package or newest.packages != DefinitionVersion.Packages.OWN or newest.git_address:
        raise DomainError("There is no package to add: this training definition does not take its packages from an upload.")
    if (before := checks.same_request(newest.definition.versions.filter(created_by=by), idempotency_key)) is not None:
        return before, package
    path = required_packages.file_of(newest.bundle, newest.command)
    if path and not path.endswith(requirements.FILE):
        raise DomainError(TRY_BY_HAND.format(package, path))
    if _normal(package.split("<")[0]) in {_normal(line.name) for line in requirements.from_text(newest.requirements)}:
        raise DomainError(f"Version {newest.number} requires {package} already: run the experiment with that version.")
    same = {name: getattr(newest, name) for name in ("framework", "command", "device", "distributed", "max_slots", "network")}
    with tempfile.TemporaryFile(dir=settings.EDT_HOME / "tmp") as file:
        upload = cast(BinaryIO, file)
        _with_line(newest, path or requirements.FILE, package, upload)
        version = add_version(
            newest.definition,
            by=by,
            upload=upload,
            file_name=f"{newest.file_name.rsplit('.', 1)[0]}.zip",
            idempotency_key=idempotency_key,
            **same,
        )
    return version, package


def _normal(name: str) -> str:
    """The spelling by which the index knows it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _with_line(version: DefinitionVersion, path: str, package: str, to: BinaryIO) -> None:
    """The code as a zip, with a line more in that file."""
    bundle = version.bundle
    wanted = f"{bundle.root}/{path}" if bundle.root else path
    try:
        folders.with_line(bundles.zip_path(bundle.sha256), wanted, package, into=to, most_bytes=settings.EDT_MAX_UNPACKED_BYTES)
    except bundles.BundleRefused as refusal:
        raise DomainError(f"{refusal} {TRY_BY_HAND.format(package, path)}") from None
    to.seek(0)
