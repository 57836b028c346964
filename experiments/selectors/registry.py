"""Reads of registered models: lists, one version by its number or an alias, its files, and what is known of how it came about."""

from __future__ import annotations

from typing import Any, BinaryIO

from django.db.models import Count, Max, Prefetch, QuerySet
from django.http import Http404
from markdown_it import MarkdownIt

from experiments import access
from experiments.access import AnyUser
from experiments.files import bundles, modelnames, modelstore, registrable, runfiles
from experiments.files.registrable import Candidate
from experiments.files.store import copies
from experiments.models import MetricSeries, ModelAlias, ModelFile, ModelVersion, Project, RegisteredModel, StateDigest, TrainingRun
from experiments.selectors import receipts

MOST_LISTED = 20_000  # of a run's files
MOST_METRICS = 200
MOST_VERSIONS = 1000  # that a page shows
NO_VERSION = "The model has no such version, and no alias of that name."


def models_for(user: AnyUser) -> QuerySet[RegisteredModel]:
    """Those of the person's projects, with their number of versions, when the last was registered, and their aliases."""
    return _with_counts(RegisteredModel.objects.filter(project__in=access.projects_for(user).values("pk")))


def models_of(project: Project) -> QuerySet[RegisteredModel]:
    return _with_counts(project.registered_models.all())


def _with_counts(found: QuerySet[RegisteredModel]) -> QuerySet[RegisteredModel]:
    aliases = Prefetch("aliases", ModelAlias.objects.select_related("version"))
    counted = found.annotate(count=Count("versions"), newest_at=Max("versions__created_at"), newest=Max("versions__number"))
    return counted.select_related("project", "created_by").prefetch_related(aliases)


def versions_of(model: RegisteredModel) -> QuerySet[ModelVersion]:
    """The newest first."""
    return model.versions.select_related("created_by", "model").prefetch_related("aliases", "files")


def version_of(model: RegisteredModel, which: str) -> ModelVersion:
    """By its number, an alias, or "latest". Raises Http404."""
    found = versions_of(model)
    if which == modelnames.LATEST:
        version = found.first()
    elif (number := modelnames.number(which)) is not None:
        version = found.filter(number=number).first()
    else:
        version = found.filter(aliases__name=which).first() if not modelnames.refused_alias(which) else None
    if version is None:
        raise Http404(NO_VERSION)
    return version


def of_run(run: TrainingRun) -> list[ModelVersion]:
    """Which versions were made of it, the newest first."""
    found = ModelVersion.objects.filter(run=run.pk, model__project=run.experiment.project_id)
    return list(found.select_related("model").prefetch_related("aliases").order_by("-pk")[:MOST_VERSIONS])


def run_of(user: AnyUser, version: ModelVersion) -> TrainingRun | None:
    """Its run, where that is still there and the person may see it."""
    found, _ = access.runs(user, [version.run] if version.run is not None else [])
    return found[0] if found else None


def candidates(run: TrainingRun) -> list[Candidate]:
    """What of the run's files can be registered, what is proposed first at first."""
    return registrable.candidates((each.path, each.size_bytes, each.modified) for each in runfiles.walk(run, limit=MOST_LISTED).files)


def file_of(version: ModelVersion, path: str) -> tuple[ModelFile, BinaryIO]:
    """Raises Http404."""
    found = next((each for each in version.files.all() if each.path == path), None)
    if found is None:
        raise Http404("The version has no such file.")
    return found, opened(found)


def opened(file: ModelFile) -> BinaryIO:
    """Raises Http404 where somebody has taken it out of the studio's folder."""
    try:
        return modelstore.opened(file.sha256)
    except copies.NotHere as error:
        raise Http404(f"{file.path}: {error} Try again in a minute.") from None
    except FileNotFoundError:
        raise Http404(f"{file.path} is not in the studio's folder models: ask an administrator to put it back from a backup.") from None


def code_of(version: ModelVersion) -> BinaryIO:
    """The zip of its code. Raises Http404."""
    try:
        if version.code is not None:
            return open(bundles.zip_path(version.code.sha256), "rb")
    except FileNotFoundError:
        pass
    raise Http404("The code of this version is not known to the studio.")


def lineage(run: TrainingRun) -> dict[str, Any]:
    """What is known of how the run's files came about, as its receipt has it, and its last figures. Secrets are not in it."""
    inputs = receipts.inputs(run)
    if run.outside:
        inputs["code"] = {**inputs["code"], "sha256": None}  # nobody has sent it
    digest = StateDigest.objects.filter(run=run).order_by("-epoch").first()
    return {
        "run": {**receipts.about(run), "epoch": run.epoch, "of_version": str(run.version)},
        **inputs,
        "exact": {"promised": run.exact, "checked": run.exact_checked, "reasons": run.exact_reasons},
        "digest": {"epoch": digest.epoch, "step": digest.step, "digest": digest.digest} if digest is not None else None,
        "metrics": _metrics(run),
    }


def card(version: ModelVersion) -> dict[str, Any]:
    """What the receipt of a version seals: its files by their hashes, and its lineage."""
    files = [{"path": each.path, "sha256": each.sha256, "bytes": each.size_bytes, "made": each.made} for each in version.files.all()]
    return {
        "model": {"project": version.model.project.name, "name": version.model.name, "version": version.number, "path": version.path},
        "registered_by": version.created_by.username,
        "registered_at": version.created_at.isoformat(),
        "files": files,
        "lineage": version.lineage,
    }


def rendered(note: str) -> str:
    """Markdown as HTML, its headings below those of a page's sections. What is HTML in it is shown as text, links lead to nothing that
    runs (markdown-it's "js-default"), and pictures of elsewhere are not fetched."""
    markdown = MarkdownIt("js-default", {"linkify": False}).disable("image")
    tokens = markdown.parse(note)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + 2)}"
    html: str = markdown.renderer.render(tokens, markdown.options, {})
    return html


def _metrics(run: TrainingRun) -> dict[str, float | None]:
    if run.final_metrics:
        return dict(list(run.final_metrics.items())[:MOST_METRICS])
    found = MetricSeries.objects.filter(run=run, points__gt=0)[:MOST_METRICS]
    return {f"{each.group} {each.name}": each.last_value for each in found}
