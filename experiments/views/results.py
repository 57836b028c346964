"""A run's Results: its metrics and files, and a look into one of them, as text or as a picture, never as a page."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from functools import cache
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_safe

from experiments import access, selectors
from experiments.files import filetree
from experiments.files.filetree import Folder, Row
from experiments.selectors import RunFile, media, previews, registry, run_pages
from experiments.views.downloads import picture_response
from experiments.views.responses import later, number, page, person
from experiments.views.runs import HEAD, run_tab

MOST_LISTED = 20_000  # of a run's files, as many as its archive takes
MOST_SHOWN = 2000  # of one folder
MOST_OPEN = 200
TEXT_LIMIT = 200
PATH_LIMIT = 4096


@dataclass(frozen=True)
class FileQuery:
    """What the address says of the tree. `opened`: the open folders; None: those that are open at first. `most`: files of one folder."""

    q: str
    kind: str
    opened: frozenset[str] | None
    most: int

    @property
    def filter(self) -> str:
        """What the open folders belong to: another filter begins with those that it finds."""
        return f"{self.kind}:{self.q}" if self.q or self.kind else ""


def file_query(request: HttpRequest) -> FileQuery:
    asked = request.GET
    q, kind = asked.get("q", "").replace("\0", "")[:TEXT_LIMIT].strip(), asked.get("kind", "")
    found = FileQuery(
        q, kind if kind in filetree.KINDS else "", None, number(request, "rows", filetree.MOST_ROWS, least=1, most=MOST_SHOWN)
    )
    if asked.get("tree") is None or asked.get("of", "") != found.filter:
        return replace(found, most=filetree.MOST_ROWS)
    opened = {path[:PATH_LIMIT] for path in asked.getlist("open")[:MOST_OPEN]}
    return replace(found, opened=frozenset(opened ^ {path[:PATH_LIMIT] for path in asked.getlist("toggle")[:1]}))


@dataclass(frozen=True)
class Tree:
    """The files that are left by the filter of `count` in all, as rows. `query`: of the address that shows the same."""

    rows: list[Row]
    root: Folder
    count: int
    size_bytes: int
    opened: list[str]
    most: int
    query: str


def tree_of(found: list[RunFile], asked: FileQuery) -> Tree:
    root = filetree.tree(filetree.matching(found, q=asked.q, kind=asked.kind))
    opened = filetree.all_open(root) if asked.opened is None else asked.opened
    shown = [each.path for each in filetree.folders(root) if each.path in opened][:MOST_OPEN]
    said = [(name, value) for name, value in (("q", asked.q), ("kind", asked.kind)) if value]
    if asked.opened is not None:
        said += [("tree", "1"), ("of", asked.filter), *(("open", path) for path in shown)]
        said += [("rows", str(asked.most))] if asked.most != filetree.MOST_ROWS else []
    rows = filetree.rows(root, opened=set(shown), most=asked.most)
    return Tree(rows, root, len(found), sum(each.size_bytes for each in found), shown, asked.most, urlencode(said))


@require_safe
def results(request: HttpRequest, pk: int) -> HttpResponse:
    run, tab = run_tab(request, pk, "results")
    listed = cache(lambda: selectors.listed(run, limit=MOST_LISTED))
    found, asked = later(lambda: listed().files), file_query(request)
    context = {
        **tab,
        "missing": later(lambda: listed().missing),
        "has_files": cache(lambda: bool(listed().files)),
        "pictures": later(lambda: selectors.pictures(run, list(found))),
        "wanted": asked,
        "kinds": filetree.KINDS,
        "tree": later(lambda: tree_of(listed().files, asked)),
        "fewest_rows": filetree.MOST_ROWS,
        "more_rows": min(MOST_SHOWN, 4 * asked.most),
        "has_media": cache(lambda: media.is_there(run)),
        "registered": later(lambda: registry.of_run(run)),
        "metrics": later(lambda: run_pages.latest_metrics(run)),
        "idempotency_key": uuid.uuid4(),
    }
    parts = {**HEAD, "body": "runs/_results.html", "files": "runs/_files.html", "foot": "runs/_results_foot.html"}
    return page(request, "runs/results.html", context, parts=parts)


@require_safe
def look(request: HttpRequest, pk: int, path: str) -> HttpResponse:
    """One file of the run: the picture, the first rows of a table or an array, or the beginning of the text, which ?as=text asks for."""
    run, tab = run_tab(request, pk, "results")
    name = path.rsplit("/", 1)[-1]
    try:
        opened, size = selectors.open_file(run, path)
    except FileNotFoundError:
        raise Http404("There is no such file in this run.") from None
    with opened:
        file = previews.preview(opened, size, name=name, as_text=request.GET.get("as") == "text")
    ways = {"laid_out": request.path, "text": "?as=text"}
    links = {"download": reverse("run_file", args=[pk, path]), "picture": reverse("run_picture", args=[pk, path])}
    return page(request, "runs/look.html", {**tab, **links, "path": path, "name": name, "file": file, "ways": ways})


@require_safe
def picture(request: HttpRequest, pk: int, path: str) -> HttpResponse:
    """A picture of a kind that runs no script, by its content and not by its name; 404 for all else."""
    run = access.run(person(request), pk)
    try:
        opened, size = selectors.open_file(run, path)
    except FileNotFoundError:
        raise Http404("There is no such picture in this run.") from None
    with opened:
        return picture_response(opened, size, name=path.rsplit("/", 1)[-1])
