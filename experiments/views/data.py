"""Data assets: adding one or its next version, looking into it, renaming and deleting; and a look into the shared data root.

What a person uploaded is shown as text or as a picture of a known kind, never as a page of its own.
"""

from __future__ import annotations

import contextlib
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from experiments import access, services
from experiments.forms.common import attempt
from experiments.forms.data import DataFilesForm, DataForm, DataSettingsForm, DataVersionForm
from experiments.models import DataAsset, Project, User
from experiments.selectors import data
from experiments.views import uploaded_code
from experiments.views.downloads import attachment, picture_response
from experiments.views.responses import Crumbs, act, begun, change, done, later, page, person, project_crumbs

LONGEST_PATH = 1000


@require_http_methods(["GET", "HEAD", "POST"])
def new(request: HttpRequest, pk: int) -> HttpResponse:
    """With script the files go through `uploads`, piece by piece; this form is the way without."""
    user = person(request)
    project = access.project(user, pk, need="write")
    form = DataForm(request.POST or None, request.FILES or None)
    if request.method == "POST" and form.is_valid():
        named = {name: form.cleaned_data[name] for name in ("name", "description")}
        asset = attempt(form, lambda: _make(project, user, form, **named))
        if asset:
            return done(request, f"{asset.name} is there: experiments of this project can read it.", to=reverse("data", args=[asset.pk]))
    kept = uploaded_code.keep_data_of(form, user, project, name=str(form["name"].value() or ""))
    begun(form, check=reverse("check_data", args=[pk]))
    context = {"section": "projects", "project": project, "form": form, "arrived": kept, "crumbs": project_crumbs(project)}
    return page(request, "data/new.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
def new_version(request: HttpRequest, pk: int) -> HttpResponse:
    """The next version of a data set, of which `pk` is any version; as `new`."""
    user = person(request)
    asset = access.data_asset(user, pk, need="write")
    form = DataVersionForm(request.POST or None, request.FILES or None)
    if request.method == "POST" and form.is_valid():
        made = attempt(form, lambda: _make(asset.project, user, form, next_of=asset, note=form.cleaned_data["note"]))
        if made:
            said = f"{made} is there: experiments of this project can read it. What reads an older version goes on reading that."
            return done(request, said, to=reverse("data", args=[made.pk]))
    kept = uploaded_code.keep_data_of(form, user, asset.project, name=asset.name)
    begun(form, check=reverse("check_data_version", args=[pk]))
    context = {
        "section": "projects",
        "asset": asset,
        "newest": data.newer_than(asset) or asset,
        "form": form,
        "arrived": kept,
        "crumbs": [*project_crumbs(asset.project), (asset.name, reverse("data", args=[pk]))],
    }
    return page(request, "data/new_version.html", context)


def _make(project: Project, user: User, form: DataFilesForm, **said: Any) -> DataAsset:
    """Of the files that came with the form, or of those that came with it before and were kept. `said`: beside the files."""
    sent = form.cleaned_data
    if not sent["upload"]:
        if (upload := uploaded_code.find(user, project, sent["kept"], for_code=False)) is not None:
            return services.finish_kept(upload, by=user, **said)
        with contextlib.suppress(Http404):  # the form is sent again
            return access.finished_upload(user, sent["kept"])
    files = [(file.name or "", file.size or 0, file) for file in sent["upload"]]
    asset = services.add_data(project, by=user, files=files, **said)
    uploaded_code.spent(form, user, project, for_code=False)
    return asset


@require_safe
def detail(request: HttpRequest, pk: int) -> HttpResponse:
    """A folder of the data asset, or one of its files: ?path=."""
    asset = access.data_asset(person(request), pk)
    context: dict[str, object] = {
        "asset": asset,
        "newer": later(lambda: data.newer_than(asset)),
        "versions": later(lambda: list(data.versions(asset)[:500])),
        "here": reverse("data", args=[pk]),
        "to_download": reverse("data_download", args=[pk]),
        "to_picture": reverse("data_image", args=[pk]),
        "crumbs": project_crumbs(asset.project),
        "may_write": access.may(asset.project, "write"),
        "used_by": later(lambda: list(asset.experiments.all()[:50])),
        "settings_form": _settings(asset),
    }
    return _browse(request, asset, context)


@require_safe
def shared(request: HttpRequest) -> HttpResponse:
    """The shared data root, which everybody who is logged in may read."""
    context: dict[str, object] = {
        "asset": None,
        "here": reverse("shared_data"),
        "to_download": reverse("shared_data_download"),
        "to_picture": reverse("shared_data_image"),
        "crumbs": [("Projects", reverse("projects"))],
    }
    return _browse(request, None, context)


@require_safe
def download(request: HttpRequest, pk: int) -> HttpResponseBase:
    return _download(request, access.data_asset(person(request), pk))


@require_safe
def shared_download(request: HttpRequest) -> HttpResponseBase:
    return _download(request, None)


@require_safe
def image(request: HttpRequest, pk: int) -> HttpResponse:
    return _image(request, access.data_asset(person(request), pk))


@require_safe
def shared_image(request: HttpRequest) -> HttpResponse:
    return _image(request, None)


@require_POST
def update(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    asset = access.data_asset(user, pk, need="write")
    form, to = _settings(asset, request.POST), reverse("data", args=[pk])
    crumbs = [*project_crumbs(asset.project), (asset.name, to)]
    return change(
        request,
        form,
        lambda: services.update_asset(asset, by=user, **form.cleaned_data),
        to=to,
        title=f"Rename {asset.name}",
        crumbs=crumbs,
    )


def _settings(asset: DataAsset, sent: QueryDict | None = None) -> DataSettingsForm:
    return DataSettingsForm(sent, initial={"name": asset.name, "description": asset.description})


@require_POST
def delete(request: HttpRequest, pk: int) -> HttpResponse:
    """This version alone."""
    user = person(request)
    asset = access.data_asset(user, pk, need="write")
    newest = data.versions(asset).exclude(pk=pk).first()
    to = reverse("data", args=[newest.pk]) if newest is not None else reverse("assets", args=[asset.project.pk])
    said = f"{asset} is deleted with its files."
    return act(request, lambda: services.delete_asset(asset, by=user), said=said, to=to, back=reverse("data", args=[pk]))


@require_POST
def delete_all(request: HttpRequest, pk: int) -> HttpResponse:
    """All versions of the data set."""
    user = person(request)
    asset = access.data_asset(user, pk, need="write")
    to = reverse("assets", args=[asset.project.pk])
    said = f"{asset.name} is deleted with all its versions and their files."
    return act(request, lambda: services.delete_versions(asset, by=user), said=said, to=to, back=reverse("data", args=[pk]))


def _browse(request: HttpRequest, asset: DataAsset | None, context: dict[str, object]) -> HttpResponse:
    path = _path(request)
    folder, _, name = path.rpartition("/")
    try:
        listing, file = data.listing(asset, path), None
    except FileNotFoundError:
        try:
            listing, file = None, data.preview(asset, path, as_text=request.GET.get("as") == "text")
        except FileNotFoundError:
            raise Http404("There is no such file or folder in this data.") from None
    steps = [part for part in path.split("/") if part]
    within: Crumbs = [(part, "/".join(steps[: place + 1])) for place, part in enumerate(steps)]
    shown: dict[str, object] = {
        "section": "projects",
        "path": path,
        "folder": folder,
        "name": name,
        "listing": listing,
        "file": file,
        "within": within,
    }
    shown |= {link: f"{context[f'to_{link}']}?{urlencode({'path': path})}" for link in ("download", "picture")}
    shown["ways"] = {way: f"?{urlencode({'path': path, **asked})}" for way, asked in (("laid_out", {}), ("text", {"as": "text"}))}
    shown["back"] = f"{context['here']}?{urlencode({'path': folder})}"
    return page(request, "data/detail.html", {**context, **shown})


def _path(request: HttpRequest) -> str:
    path = request.GET.get("path", "").strip("/")
    if len(path) > LONGEST_PATH:
        raise Http404("There is no such file or folder in this data.")
    return path


def _download(request: HttpRequest, asset: DataAsset | None) -> HttpResponseBase:
    path = _path(request)
    try:
        file = data.open_file(asset, path)
    except FileNotFoundError:
        raise Http404("There is no such file in this data.") from None
    return attachment(request, file, name=path.rsplit("/", 1)[-1])


def _image(request: HttpRequest, asset: DataAsset | None) -> HttpResponse:
    path = _path(request)
    try:
        with data.opened(asset, path) as (file, size):
            return picture_response(file, size, name=path.rsplit("/", 1)[-1])
    except FileNotFoundError:
        raise Http404("There is no such picture in this data.") from None
