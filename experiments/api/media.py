"""What a run's script has shown: pictures, texts and histograms, by tag and step."""

from __future__ import annotations

import datetime as dt
import io
import math
from typing import Annotated

from django.http import Http404, HttpRequest, HttpResponse
from ninja import Field, Query, Router, Schema

from experiments import access
from experiments.api.auth import person
from experiments.api.paging import Page, whole
from experiments.models import TrainingRun
from experiments.selectors import media as selector
from experiments.views.downloads import picture_response
from training_runtime.media import MOST_PIECE_BYTES, Entry, Kind, Tag

router = Router(tags=["metrics"])
PICTURE = {
    "responses": {200: {"description": "A PNG, JPEG or GIF.", "content": {"image/*": {"schema": {"type": "string", "format": "binary"}}}}}
}


class PictureInFile(Schema):
    """Where one picture is: what `/media/picture` is asked for."""

    file: str
    offset: int
    size: int


class HistogramOfStep(Schema):
    """So many values in each of equal parts of `low` to `high`."""

    low: float
    high: float
    counts: list[float]


class Medium(Schema):
    """What a tag shows at a step. `at`: null where it is not known."""

    step: int
    at: dt.datetime | None
    pictures: list[PictureInFile]
    texts: list[str]
    histogram: HistogramOfStep | None


class MediaTag(Schema):
    """`kind`: image, text or histogram; `steps`: that there are, oldest first."""

    kind: Kind
    name: str
    steps: list[int]


class WantedMedium(Schema):
    """A tag, at one of its steps or at its newest."""

    kind: Kind
    name: str = Field(max_length=1000)
    step: int | None = Field(None, ge=-(2**62), le=2**62)


class WantedPicture(Schema):
    file: str = Field(max_length=4096)
    offset: int = Field(ge=0, le=2**62)
    size: int = Field(ge=0, le=MOST_PIECE_BYTES)


@router.get("/runs/{int:run}/media", response=Page[MediaTag])
def media(request: HttpRequest, run: int) -> Page[MediaTag]:
    """What its script has shown TensorBoard or logged: pictures, texts, histograms, by kind and name."""
    found = selector.tags(access.run(person(request), run))
    return whole([MediaTag(kind=tag.kind, name=tag.name, steps=[each.step for each in tag.entries]) for tag in found])


@router.get("/runs/{int:run}/media/shown", response=Medium)
def medium(request: HttpRequest, run: int, wanted: Annotated[WantedMedium, Query()]) -> Medium:
    """One of them, at a step."""
    found = access.run(person(request), run)
    tag = next((each for each in selector.tags(found) if (each.kind, each.name) == (wanted.kind, wanted.name)), None)
    entry = _entry(tag, wanted.step) if tag is not None else None
    if tag is None or entry is None:
        raise Http404("This run shows nothing of that name at that step: /media lists what it shows.")
    return _medium(found, tag, entry)


def _entry(tag: Tag, step: int | None) -> Entry | None:
    return tag.entries[-1] if step is None else next((each for each in tag.entries if each.step == step), None)


def _medium(run: TrainingRun, tag: Tag, entry: Entry) -> Medium:
    shown = selector.tag_at_step(run, tag, entry.step)
    bars = entry.histogram
    return Medium(
        step=entry.step,
        at=shown.at,
        pictures=[PictureInFile(file=file, offset=at, size=size) for file, at, size in shown.pictures],
        texts=[each.text for each in shown.texts],
        histogram=HistogramOfStep(low=bars.low, high=bars.high, counts=list(bars.counts))
        if bars is not None and all(map(math.isfinite, (bars.low, bars.high, *bars.counts)))
        else None,
    )


@router.get("/runs/{int:run}/media/picture", response={200: bytes}, openapi_extra=PICTURE)
def media_picture(request: HttpRequest, run: int, wanted: Annotated[WantedPicture, Query()]) -> HttpResponse:
    """One picture of a tag: where `/media/shown` says that it is."""
    content = selector.piece(access.run(person(request), run), wanted.file, wanted.offset, wanted.size)
    return picture_response(io.BytesIO(content), len(content), name=f"run-{run}-{wanted.offset}")
