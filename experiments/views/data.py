"""Data assets: adding one, looking into it, renaming and deleting; and a look into the shared data root.

What a person uploaded is shown as text or as a picture of a known kind, never as a page of its own.
"""

from __future__ import annotations

import contextlib
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from experiments import access, services
from experiments.forms import DataForm, DataSettingsForm, attempt
from experiments.models import DataAsset, Project, User
from experiments.selectors import data
from experiments.views import arrived
from experiments.views.downloads import attachment, picture_response
from experiments.views.shown import Crumbs, act, begun, done, later, page, person, project_crumbs, refused

LONGEST_PATH = 1000


@require_http_methods(["GET", "HEAD", "POST"])
def new(request: HttpRequest, pk: int) -> HttpResponse:
    """With script the files go through `uploads`, piece by piece; this form is the way without."""
    user = person(request)
    project = access.project(user, pk, need="write")
    form = DataForm(request.POST or None, request.FILES or None)
    if request.method == "POST" and form.is_valid():
        asset = attempt(form, lambda: _make(project, user, form))
        if asset:
            return done(request, f"{asset.name} is there: experiments of this project can read it.", to=reverse("data", args=[asset.pk]))
    kept = arrived.keep_data_of(form, user, project)
    begun(form, check=reverse("check_data", args=[pk]))
    context = {"section": "projects", "project": project, "form": form, "arrived": kept, "crumbs": project_crumbs(project)}
    return page(request, "data/new.html", context)


def _make(project: Project, user: User, form: DataForm) -> DataAsset:
    """Of the files that came with the form, or of those that came with it before and were kept."""
    said = form.cleaned_data
    named = {"name": said["name"], "description": said["description"]}
    if not said["upload"]:
        if (upload := arrived.find(user, project, said["kept"], for_code=False)) is not None:
            return services.finish_kept(upload, by=user, **named)
        with contextlib.suppress(Http404):  # the form is sent again
            return access.finished_upload(user, said["kept"])
    files = [(file.name or "", file.size or 0, file) for file in said["upload"]]
    asset = services.add_data(project, by=user, files=files, **named)
    arrived.spent(form, user, project, for_code=False)
    return asset


@require_safe
def detail(request: HttpRequest, pk: int) -> HttpResponse:
    """A folder of the data asset, or one of its files: ?path=."""
    asset = access.data_asset(person(request), pk)
    context = {
        "asset": asset,
        "here": reverse("data", args=[pk]),
        "to_download": reverse("data_download", args=[pk]),
        "to_picture": reverse("data_image", args=[pk]),
        "crumbs": project_crumbs(asset.project),
        "may_write": access.may(asset.project, "write"),
        "used_by": later(lambda: list(asset.experiments.all()[:50])),
        "settings_form": DataSettingsForm(initial={"name": asset.name, "description": asset.description}),
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
    form = DataSettingsForm(request.POST)
    to = reverse("data", args=[pk])
    if not form.is_valid():
        return refused(request, " ".join(f"{name.title()}: {errors[0]}" for name, errors in form.errors.items()), to=to)
    return act(request, lambda: services.update_asset(asset, by=user, **form.cleaned_data), said="Saved.", to=to)


@require_POST
def delete(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    asset = access.data_asset(user, pk, need="write")
    to = reverse("assets", args=[asset.project.pk])
    said = f"{asset.name} is deleted with its files."
    return act(request, lambda: services.delete_asset(asset, by=user), said=said, to=to, back=reverse("data", args=[pk]))


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
