"""What of a run there is to look at: pictures, texts and histograms that its script has written for TensorBoard, by the list that its
driver keeps (`training_runtime.media`). User code could have written that list: it is read within limits, and what it names is reached like
any other file of the run."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

from experiments.files import runfiles
from experiments.models import TrainingRun
from experiments.selectors.files import moment
from training_runtime import media
from training_runtime.errors import ProtocolError
from training_runtime.media import Entry, Histogram, Kind, Tag

KINDS: tuple[Kind, ...] = get_args(Kind)
FEW = 24  # tags of a kind that a page begins with
TEXT_BYTES = 4096  # of a text
WIDE, HIGH, RIDGE = 320.0, 150.0, 60.0  # a drawing of histograms, and how high one rises above its line


@dataclass(frozen=True)
class Text:
    text: str
    whole: bool


@dataclass(frozen=True)
class Ridge:
    """A histogram as a line: the points of a polygon."""

    step: int
    points: str
    newest: bool


@dataclass(frozen=True)
class TagAtStep:
    """A tag at one of its steps. `chosen`: by a person, else it is the newest. `pictures`: (file, offset, size) of each."""

    kind: Kind
    name: str
    steps: list[int]
    step: int
    at: dt.datetime | None
    chosen: bool
    pictures: list[tuple[str, int, int]] = field(default_factory=list)
    texts: list[Text] = field(default_factory=list)
    ridges: list[Ridge] = field(default_factory=list)
    low: float = 0.0
    high: float = 0.0


@dataclass(frozen=True)
class Kindred:
    """The tags of a kind; `more`: how many are not among them."""

    kind: Kind
    shown: list[TagAtStep]
    more: int


def is_there(run: TrainingRun) -> bool:
    """Whether the run has such a list."""
    return runfiles.read(run, media.FILE_NAME, begin=0, limit_bytes=1)[1] > 0


def tags(run: TrainingRun) -> list[Tag]:
    """By kind and name; none where there is no list, or none that can be read."""
    raw, _ = runfiles.read(run, media.FILE_NAME, begin=0, limit_bytes=media.MOST_BYTES)
    try:
        found = media.parse(raw) if raw else ()
    except ProtocolError:  # it is the script's to spoil
        return []
    return sorted((tag for tag in found if tag.entries), key=lambda tag: (KINDS.index(tag.kind), tag.name))


def by_kind(run: TrainingRun, steps: Mapping[tuple[str, str], int], *, all_of: str = "") -> list[Kindred]:
    """`steps`: those that a person has chosen, by kind and name. `all_of`: the kind of which all are wanted."""
    found, groups = tags(run), []
    for kind in KINDS:
        some = [tag for tag in found if tag.kind == kind][: media.MOST_TAGS]
        few = some if kind == all_of else some[:FEW]
        if few:
            groups.append(Kindred(kind, [tag_at_step(run, tag, steps.get((kind, tag.name))) for tag in few], len(some) - len(few)))
    return groups


def tag_at_step(run: TrainingRun, tag: Tag, step: int | None) -> TagAtStep:
    entries = tag.entries[-media.MOST_ENTRIES :]
    entry = next((each for each in entries if each.step == step), entries[-1])
    steps = [each.step for each in entries]
    known = TagAtStep(tag.kind, tag.name, steps, entry.step, moment(entry.t) if entry.t > 0 else None, entry.step == step)
    if tag.kind == "histogram":
        return _drawn(known, entries)
    pieces = [(at, size) for at, size in entry.pieces[: media.MOST_PIECES] if at >= 0 and 0 < size <= media.MOST_PIECE_BYTES]
    if tag.kind == "text":
        known.texts.extend(_text(run, entry.file, at, size) for at, size in pieces)
    else:
        known.pictures.extend((entry.file, at, size) for at, size in pieces)
    return known


def piece(run: TrainingRun, file: str, at: int, size: int) -> bytes:
    """What stands there in the run's file; nothing where there is none."""
    return runfiles.read(run, file, begin=at, limit_bytes=size)[0] if 0 < size <= media.MOST_PIECE_BYTES else b""


def _text(run: TrainingRun, file: str, at: int, size: int) -> Text:
    data = piece(run, file, at, min(size, TEXT_BYTES))
    return Text(data.decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}"), size <= TEXT_BYTES)


def _drawn(known: TagAtStep, entries: tuple[Entry, ...]) -> TagAtStep:
    """Every step's histogram over one axis, the oldest above and behind, each as high as its own fullest part."""
    found = [(each.step, each.histogram) for each in entries if each.histogram is not None and _can_be_drawn(each.histogram)]
    if not found:
        return known
    low, high = min(each.low for _, each in found), max(each.high for _, each in found)
    apart = (HIGH - RIDGE) / max(1, len(found) - 1)
    ridges = [
        Ridge(step, _points(each, low=low, high=high, foot=HIGH - apart * (len(found) - 1 - place)), place == len(found) - 1)
        for place, (step, each) in enumerate(found)
    ]
    return TagAtStep(known.kind, known.name, known.steps, found[-1][0], known.at, False, ridges=ridges, low=low, high=high)


def _can_be_drawn(histogram: Histogram) -> bool:
    """Numbers that journals may say are finite; those of this list may be anything, infinity included."""
    most = 1e300
    return (
        -most < histogram.low < histogram.high < most
        and 0 < len(histogram.counts) <= media.BINS
        and all(0 <= each < most for each in histogram.counts)
        and any(histogram.counts)
    )


def _points(histogram: Histogram, *, low: float, high: float, foot: float) -> str:
    most = max(histogram.counts)
    scale, width = WIDE / (high - low), (histogram.high - histogram.low) / len(histogram.counts)
    begin, end = ((edge - low) * scale for edge in (histogram.low, histogram.high))
    middles = [(histogram.low + (place + 0.5) * width - low) * scale for place in range(len(histogram.counts))]
    tops = [foot - RIDGE * count / most for count in histogram.counts]
    line = [(begin, foot), *zip(middles, tops, strict=True), (end, foot)]
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in line)
