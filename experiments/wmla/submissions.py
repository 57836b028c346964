"""A submission becomes what the pages make too: a training definition, an experiment and its run, in a project of the person's own.

The definition is found again by its name and its code, so who submits the same code often, with other arguments, has one definition; code
that has changed is its next version. See docs/decisions/rest-submissions.md.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from django.core.files.uploadedfile import UploadedFile
from django.db import transaction
from django.http import Http404

from experiments import access, services
from experiments.definitions import code_facts
from experiments.errors import DomainError
from experiments.files import bundles
from experiments.models import Bundle, DefinitionVersion, NamedEnvironment, Project, Slot, Submission, TrainingRun, User
from experiments.models.definitions import NAMED
from experiments.services import checks
from experiments.services.submissions import keep_submission
from experiments.wmla import answers, frameworks, sent_code
from experiments.wmla.arguments import USER_CMD, Arguments, WrongArguments, parse
from experiments.wmla.frameworks import Framework
from training_runtime import notebooks

PROJECT = "WMLA submissions"
ABOUT = "What was submitted by scripts, notebooks and command lines (REST)."
DEFAULT_SLOTS = 4
_HANDS_ON = re.compile(r"(?:exec\s+)?(?:torchrun|python3?\s+-m\s+torch\.distributed\.(?:run|launch))\s[^;|&<>`()]*\$[@*][\"']?")
_PROJECTS = uuid.UUID(
    "6d8f0f0e-6c9f-4f52-9a57-2a4c2a7f3d10"
)  # one request of each person's stands for their project, whatever it is called


def submit(
    *,
    by: User,
    args: str,
    spec: Mapping[str, Any],
    files: Sequence[UploadedFile[bytes]],
    instance_group: str,
    also: Mapping[str, str] | None = None,
    then: Callable[[TrainingRun], object] | None = None,
) -> TrainingRun:
    """A queued run. `also`: variables beside those of the args; `then` is called with it in the transaction that makes it. Raises Refused,
    DomainError or BundleRefused with what is wrong and what to do."""
    said = _parsed(args, spec)
    framework = frameworks.named(said.framework)
    folder = checks.data_folder(said.data_path)
    environment = checks.variables({**said.environment, **(also or {})})
    project = _project(by)
    with sent_code.opened(files) as code:
        bundle = bundles.store_bundle(code.file, file_name=code.name)
        command = _command(bundle, said, only=code.only)
        name = _name(said, command)
        version = _version(project, by=by, name=name, bundle=bundle, code=code, said=said, framework=framework)
    unused = f"Sent along and not used: {', '.join(code.unused)}." if code.unused else ""
    with transaction.atomic():
        experiment = services.create_and_run(
            project,
            by=by,
            name=name,
            description=unused[: checks.DESCRIPTION_LIMIT],
            source_folder=folder,
            versions=[version],
            commands=[command],
            environment=environment,
        )
        run = _prioritized(experiment.runs.select_related("experiment", "version__definition", "submitted_by").get(), said, by=by)
        keep_submission(run, args=args, framework=framework.name, instance_group=instance_group or said.instance_group)
        if then is not None:
            then(run)
    return run


def _parsed(args: str, spec: Mapping[str, Any]) -> Arguments:
    try:
        said = parse(args, spec)
    except WrongArguments as wrong:
        answers.refuse(str(wrong))
    if said.priority is not None:
        checks.whole(said.priority, field="priority", least=1, most=10_000)
    return said


def _prioritized(run: TrainingRun, said: Arguments, *, by: User) -> TrainingRun:
    if said.priority is not None:
        run.priority = services.set_priority(run, by=by, priority=said.priority).priority
    return run


def withdraw(run: TrainingRun, *, by: User) -> None:
    """Delete an ended run; with it the experiment and the training definition that a submission made, where nothing else uses them."""
    experiment, definition = run.experiment, run.version.definition
    if not Submission.objects.filter(run=run).exists() or experiment.runs.exclude(pk=run.pk).exists():
        services.delete_run(run, by=by)
        return
    services.delete_experiment(experiment, by=by)
    if not definition.project.experiments.filter(versions__definition=definition).exists():
        with contextlib.suppress(DomainError):  # somebody has just made an experiment with it: then it stays
            services.delete_definition(definition, by=by)


def _project(by: User) -> Project:
    """The person's own, made at the first submission; it may have been given another name since."""
    made = services.create_project(by=by, name=PROJECT, description=ABOUT, idempotency_key=uuid.uuid5(_PROJECTS, str(by.pk)))
    try:
        return access.project(by, made.pk, need="write")
    except Http404:
        answers.refuse(
            f"You are no member of your project {made.name} any more, where your submissions go: ask one of its admins to add you."
        )


def _check_wrapper(bundle: Bundle, path: str) -> None:
    """What else a file does than to hand its arguments to torchrun would be left out without a word."""
    where, parts = code_facts.folder(bundle) / path, PurePosixPath(path).parts
    text = code_facts.read_text(where) if not {"..", "/"} & {*parts} and where.is_file() else None
    lines = [line.strip() for line in (text or "").splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if len(lines) != 1 or not _HANDS_ON.fullmatch(lines[0]):
        answers.refuse(f"{path} is no file of the code that does nothing but hand its arguments to torchrun. {USER_CMD}")


def _command(bundle: Any, said: Arguments, *, only: str) -> str:
    if said.wrapper:
        _check_wrapper(bundle, said.wrapper)
    main = said.main.removeprefix("./") or only
    if not main:
        answers.refuse("The args name no script: say which one to run with --model-main main.py.")
    candidates = [main, f"{said.model_dir}/{main}"] if said.model_dir else [main]
    refusal: bundles.BundleRefused | None = None
    for script in candidates:
        try:
            return shlex.join(bundles.entry(bundle, shlex.join((script, *said.script))))
        except bundles.BundleRefused as refused:
            refusal = refusal or refused
    assert refusal is not None
    raise refusal


def _name(said: Arguments, command: str) -> str:
    wanted = said.model_dir or shlex.split(command)[0].rsplit("/", 1)[-1].removesuffix(".py").removesuffix(notebooks.SUFFIX)
    return "".join(c if c.isprintable() else "?" for c in wanted)[: checks.NAME_LIMIT].strip() or "submission"


def _version(
    project: Project, *, by: User, name: str, bundle: Any, code: sent_code.SentCode, said: Arguments, framework: Framework
) -> DefinitionVersion:
    slots = max(1, said.devices) if framework.one_process else said.slots or DEFAULT_SLOTS
    attributes: dict[str, Any] = {"framework": "pytorch", "device": _device(said.device_type), "distributed": framework.distributed}
    attributes |= {"max_slots": slots, "network": DefinitionVersion.Network.OUTWARD}  # as a script of WMLA has it, which cannot ask
    known = DefinitionVersion.objects.filter(definition__project=project, definition__name=name)
    environment = NamedEnvironment.objects.filter(name__iexact=said.environment_name).first()
    alike = known.filter(bundle=bundle, named=environment.newest() if environment else None, **attributes)
    if (same := alike.select_related("definition", "bundle").first()) is not None:
        return same
    upload: dict[str, Any] = {"upload": code.file, "file_name": code.name, **attributes}
    if environment is not None:
        upload["packages"] = f"{NAMED}{environment.pk}"
    newest = known.select_related("definition").order_by("-definition__pk").first()
    if newest is not None:
        return services.add_version(newest.definition, by=by, **upload)
    return services.create_definition(project, by=by, name=name, description="", **upload)


def _device(kind: str) -> str:
    """What was asked for where there are slots of that kind; else any: scripts say "gpu" by habit, also to a cluster that has none."""
    there = kind in Slot.Device.values and Slot.objects.filter(device=kind, retired=False).exists()
    return kind if there else DefinitionVersion.Device.ANY
