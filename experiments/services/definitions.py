"""Verbs on training definitions and their versions."""

from __future__ import annotations

import unicodedata
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from django.db import IntegrityError, transaction
from django.db.models import Max

from experiments.definitions import required_packages
from experiments.errors import DomainError
from experiments.files import bundles
from experiments.live import notify
from experiments.models import Bundle, DefinitionVersion, Experiment, Project, TrainingDefinition, TrainingRun, User
from experiments.services import checks, named_environments, variables, version_attributes
from experiments.services.version_attributes import VersionAttributes

V = DefinitionVersion


@dataclass(frozen=True)
class Origin:
    """Where code was fetched from by git: the fields of a version. Empty: it was uploaded."""

    git_address: str = ""
    git_ref: str = ""
    git_folder: str = ""
    git_commit: str = ""


UPLOADED = Origin()


def origin_of(version: DefinitionVersion) -> Origin:
    return Origin(version.git_address, version.git_ref, version.git_folder, version.git_commit)


@dataclass(frozen=True)
class _Code:
    """A bundle, what it requires (its text and its key), and where it came from."""

    bundle: Bundle
    requirements: str
    key: str
    origin: Origin


def create_definition(
    project: Project,
    *,
    by: User,
    name: str,
    description: str = "",
    upload: BinaryIO,
    file_name: str,
    framework: str = "pytorch",
    command: str = "",
    device: str = "any",
    distributed: str = "elastic",
    max_slots: int | None = None,
    packages: str = V.Packages.OWN,
    network: str = V.Network.NONE,
    idempotency_key: uuid.UUID | None = None,
    origin: Origin = UPLOADED,
) -> DefinitionVersion:
    """A training definition with its version 1. Fields: name, description, upload, framework, command, device, distributed (or BY_CODE),
    max_slots (None: as usual for its type), packages ("own", "studio", or "named:12" for the environment of that number), network ("none"
    or "outward")."""
    if (before := _sent_before(by, idempotency_key)) is not None:
        return before
    errors: list[DomainError] = []
    clean_name = checks.each(errors, lambda: checks.name(name)) or ""
    clean_text = checks.each(errors, lambda: checks.text(description)) or ""
    kinds = {"framework": framework, "device": device, "distributed": distributed, "packages": packages, "network": network}
    attributes = version_attributes.checked(errors, command=command, max_slots=max_slots, before=None, **kinds)
    checks.each(errors, lambda: checks.room(project, by=by, field="upload"))
    checks.collected(errors)
    assert attributes is not None
    attributes, code = _store_upload(upload, file_name, attributes, origin)

    def make() -> DefinitionVersion:
        definition = TrainingDefinition.objects.create(project=project, name=clean_name, description=clean_text, created_by=by)
        version = _store(definition, by, code, _printable_name(file_name), attributes, number=1, idempotency_key=idempotency_key)
        notify.changed(f"project-{project.pk}", "definitions")
        return version

    return _once(by, idempotency_key, make)


def add_version(
    definition: TrainingDefinition,
    *,
    by: User,
    upload: BinaryIO | None = None,
    file_name: str = "",
    framework: str = "pytorch",
    command: str = "",
    device: str = "any",
    distributed: str = "elastic",
    max_slots: int | None = None,
    packages: str = V.Packages.OWN,
    network: str = V.Network.NONE,
    idempotency_key: uuid.UUID | None = None,
    origin: Origin = UPLOADED,
) -> DefinitionVersion:
    """The next version; without an upload it keeps the newest one's code. Fields as in `create_definition`."""
    if (before := _sent_before(by, idempotency_key)) is not None:
        return before
    errors: list[DomainError] = []
    kinds = {"framework": framework, "device": device, "distributed": distributed, "packages": packages, "network": network}
    newest = definition.newest()
    attributes = version_attributes.checked(errors, command=command, max_slots=max_slots, before=newest, **kinds)
    if upload is not None:
        checks.each(errors, lambda: checks.room(definition.project, by=by, field="upload"))
    checks.collected(errors)
    assert attributes is not None
    if upload is None:
        (attributes, code), shown = _checked(newest.bundle, attributes, origin_of(newest)), newest.file_name
    else:
        (attributes, code), shown = _store_upload(upload, file_name, attributes, origin), _printable_name(file_name)

    def make() -> DefinitionVersion:
        TrainingDefinition.objects.select_for_update().get(pk=definition.pk)  # numbers are given one after the other
        number = (definition.versions.aggregate(highest=Max("number"))["highest"] or 0) + 1
        version = _store(definition, by, code, shown, attributes, number=number, idempotency_key=idempotency_key)
        notify.changed(f"project-{definition.project_id}", "definitions")
        return version

    return _once(by, idempotency_key, make)


def copy_definition(version: DefinitionVersion, *, to: Project, by: User, idempotency_key: uuid.UUID | None = None) -> DefinitionVersion:
    """The version as version 1 of a new training definition of another project: the same code, stored once. Its plain
    variables go with it, its secrets do not."""
    if (before := _sent_before(by, idempotency_key)) is not None:
        return before
    source = version.definition
    kinds = (version.framework, version.command, version.device, version.distributed)
    attributes = VersionAttributes(*kinds, version.max_slots, version.packages, version.named, version.network)

    def make() -> DefinitionVersion:
        made = TrainingDefinition.objects.create(project=to, name=source.name, description=source.description, created_by=by)
        code = _Code(version.bundle, version.requirements, version.requirements_key, origin_of(version))
        copy = _store(made, by, code, version.file_name, attributes, number=1, idempotency_key=idempotency_key)
        variables.copy(source, made)
        checks.audit(by, "copies training definition %s to project %s", source.pk, to.pk)
        notify.changed(f"project-{to.pk}", "definitions")
        return copy

    return _once(by, idempotency_key, make)


def _once(by: User, idempotency_key: uuid.UUID | None, make: Callable[[], DefinitionVersion]) -> DefinitionVersion:
    """What `make` stores, all of it or nothing. Where the same form was sent at the same moment and the other was faster: that one's."""
    try:
        with transaction.atomic():
            return make()
    except IntegrityError:
        if (before := _sent_before(by, idempotency_key)) is None:
            raise
        return before


def check_definition(
    project: Project,
    *,
    by: User,
    name: str | None,
    description: str = "",
    command: str = "",
    max_slots: int | None = None,
    scripts: Sequence[str] | None = None,
    newest: DefinitionVersion | None = None,
    **kinds: str,
) -> None:
    """What `create_definition` would refuse of these facts, all at once; of a version (`newest`: the one before it, `name`: None)
    `add_version`. `scripts`: the Python files of code that is still to be sent, where they are known. Fields as there."""
    errors: list[DomainError] = []
    if name is not None:
        checks.each(errors, lambda: checks.name(name))
        checks.each(errors, lambda: checks.text(description))
    found = version_attributes.checked(errors, command=command, max_slots=max_slots, before=newest, **kinds)
    checks.each(errors, lambda: checks.room(project, by=by, field="upload"))
    there = scripts if scripts is not None else newest.bundle.scripts if newest is not None else None
    if found is not None and found.command and there is not None:
        root = newest.bundle.root if newest is not None and scripts is None else ""
        checks.each(errors, lambda: _script_in(there, found.command, root=root))
    checks.collected(errors)


def update_definition(definition: TrainingDefinition, *, by: User, name: str, description: str) -> TrainingDefinition:
    """Fields: name, description. Code and attributes never change: they get a new version."""
    definition.name, definition.description = checks.name(name), checks.text(description)
    definition.save(update_fields=["name", "description"])
    checks.audit(by, "updated training definition %s", definition.pk)
    notify.changed(f"project-{definition.project_id}", "definitions")
    return definition


def delete_definition(definition: TrainingDefinition, *, by: User) -> None:
    """Refused while an experiment uses one of its versions, or a run belongs to one."""
    with transaction.atomic():
        TrainingDefinition.objects.select_for_update().get(pk=definition.pk)
        used = Experiment.objects.filter(versions__definition=definition).first()
        if used is not None:
            raise DomainError(f"The experiment {used.name} uses it: delete the experiment first.")
        run = TrainingRun.objects.filter(version__definition=definition).select_related("experiment").first()  # logged from outside
        if run is not None:
            raise DomainError(f"Runs of {run.experiment.name} belong to it: delete them first.")
        checks.audit(by, "deletes training definition %s (%s)", definition.pk, definition.name)
        definition.delete()
        notify.changed(f"project-{definition.project_id}", "definitions")


def _script_in(scripts: Sequence[str], command: str, *, root: str) -> None:
    try:
        bundles.entry_among(scripts, command, root=root)
    except bundles.BundleRefused as refusal:
        checks.refuse("command", str(refusal))


def _check_type(bundle: Bundle, attributes: VersionAttributes) -> None:
    if not attributes.command:
        return
    try:
        bundles.check_type(attributes.command, attributes.distributed, begins=bundles.entry(bundle, attributes.command)[0])
    except bundles.BundleRefused as refusal:
        checks.refuse("command", str(refusal))


def _checked(bundle: Bundle, attributes: VersionAttributes, origin: Origin) -> tuple[VersionAttributes, _Code]:
    """The attributes with the type that the code asks for, where it is to say, and the code, with which the command can be run."""
    if attributes.command:
        _script_in(bundle.scripts, attributes.command, root=bundle.root)
    attributes = version_attributes.typed(attributes, bundle)
    _check_type(bundle, attributes)
    if attributes.named is not None:
        return attributes, _Code(bundle, attributes.named.requirements, attributes.named.requirements_key, origin)
    if attributes.packages == V.Packages.STUDIO:
        return attributes, _Code(bundle, "", "", origin)
    try:
        return attributes, _Code(bundle, *required_packages.of_bundle(bundle, attributes.command), origin)
    except bundles.BundleRefused as refusal:
        checks.refuse("upload", str(refusal))


def _store_upload(upload: BinaryIO, file_name: str, attributes: VersionAttributes, origin: Origin) -> tuple[VersionAttributes, _Code]:
    try:
        bundle = bundles.store_bundle(upload, file_name=file_name, needs_script=bundles.needs_script(attributes.command))
    except bundles.BundleRefused as refusal:
        checks.refuse("upload", str(refusal))
    return _checked(bundle, attributes, origin)


def _store(
    definition: TrainingDefinition,
    by: User,
    code: _Code,
    file_name: str,
    attributes: VersionAttributes,
    *,
    number: int,
    idempotency_key: uuid.UUID | None,
) -> DefinitionVersion:
    if attributes.named is not None:
        named_environments.hold(attributes.named)
    return DefinitionVersion.objects.create(
        definition=definition,
        number=number,
        bundle=code.bundle,
        requirements=code.requirements,
        requirements_key=code.key,
        file_name=file_name,
        framework=attributes.framework,
        command=attributes.command,
        device=attributes.device,
        distributed=attributes.distributed,
        max_slots=attributes.slots,
        packages=attributes.packages,
        named=attributes.named,
        network=attributes.network,
        created_by=by,
        idempotency_key=idempotency_key,
        **vars(code.origin),
    )


def _sent_before(by: User, idempotency_key: uuid.UUID | None) -> DefinitionVersion | None:
    return checks.same_request(DefinitionVersion.objects.filter(created_by=by).select_related("definition", "bundle"), idempotency_key)


def _printable_name(file_name: str) -> str:
    """The upload's name for people, never used as a path."""
    base = file_name.replace("\\", "/").rsplit("/", 1)[-1]
    return "".join(c for c in base if unicodedata.category(c) not in ("Cc", "Cs"))[:255] or "code.zip"
