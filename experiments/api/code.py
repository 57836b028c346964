"""The code of a version: as a zip, what its scripts say of their arguments, and what is different in it."""

from __future__ import annotations

from typing import Annotated

from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from ninja import Query, Router, Schema

from experiments import access
from experiments.api.auth import person
from experiments.api.schemas import BINARY
from experiments.definitions import code_facts
from experiments.selectors import changes as differences
from experiments.selectors import code as source
from experiments.selectors.code import Change
from experiments.views.definitions import download

router = Router(tags=["definitions"])


class Argument(Schema):
    """What a script says of an argument, read from its text. `kind`: whole, number, choice, flag, text or words."""

    flags: list[str]
    kind: str
    default: str | None
    help: str
    choices: list[str]


class Script(Schema):
    path: str
    arguments: list[Argument]


class ChangedAttribute(Schema):
    name: str
    before: str
    after: str


class ChangedLine(Schema):
    """`kind`: add, del, same, or place: where in the file the next ones stand."""

    kind: str
    text: str


class ChangedFile(Schema):
    """`what`: added, removed, changed, or "not compared" (too large to read); `lines`: null where they are not shown."""

    path: str
    what: str
    lines: list[ChangedLine] | None


class Changes(Schema):
    """`since`: the number of the version that was compared; null: it is the only one."""

    since: int | None
    attributes: list[ChangedAttribute]
    files: list[ChangedFile]


class Scripts(Schema):
    """`distributed`: the type of training that the code asks for when the version's command begins it, whatever the version's own is."""

    items: list[Script]
    distributed: str


@router.get("/versions/{int:version}/code.zip", response={200: bytes}, openapi_extra=BINARY)
def code(request: HttpRequest, version: int) -> HttpResponseBase:
    """Its code as a zip."""
    return download(request, version)


@router.get("/versions/{int:version}/changes", response=Changes)
def version_changes(request: HttpRequest, version: int, since: Annotated[int | None, Query(ge=1, le=2**31)] = None) -> Changes:
    """What is different in its code and attributes, against the version of that number of its definition, or the one before it."""
    new = access.version(person(request), version)
    others = differences.others(new)
    old = differences.since(new, others, str(since or ""))
    if since is not None and (old is None or old.number != since):
        raise Http404(f"The definition has no other version {since}.")
    if old is None:
        return Changes(since=None, attributes=[], files=[])
    attributes = [ChangedAttribute(name=name, before=before, after=after) for name, before, after in differences.attributes(old, new)]
    return Changes(since=old.number, attributes=attributes, files=[_changed_file(each) for each in differences.files(old, new)])


def _changed_file(found: Change) -> ChangedFile:
    lines = None if found.lines is None else [_line(kind, text) for kind, text in found.lines]
    return ChangedFile(path=found.path, what=found.what, lines=lines)


def _line(kind: str, text: str) -> ChangedLine:
    return ChangedLine(kind=kind, text=text if kind == "place" else text[1:])  # without the sign that pages show


@router.get("/versions/{int:version}/arguments", response=Scripts)
def arguments(request: HttpRequest, version: int) -> Scripts:
    """What its scripts say of their arguments (argparse), as far as it can be read without running them."""
    found = access.version(person(request), version)
    return Scripts(
        distributed=code_facts.wanted_type(found.bundle, found.command),
        items=[
            Script(
                path=script.path,
                arguments=[
                    Argument(flags=list(each.flags), kind=each.kind, default=each.default, help=each.help, choices=list(each.choices))
                    for each in script.arguments
                ],
            )
            for script in source.scripts(found.bundle)
        ],
    )
