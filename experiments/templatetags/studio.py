"""How facts are written on a page: states as a tag with icon and text, times, durations, sizes, metric values, a run's colour.

No queries here."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from django import template
from django.templatetags.static import static
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from experiments.cluster.snapshot import is_silent
from experiments.files import diskuse
from experiments.models import Grant, RunState, Slot, TrainingRun
from experiments.models.runs import ENDED
from experiments.runtable.directions import better
from experiments.selectors import FeedItem, JobFilter, RunFilter

register = template.Library()

LONG_LABEL = 40  # of a column: what is longer may be cut
# A stretch written from right to left, with what stands between its words; what stands around it keeps its place (see `isolated`).
_RIGHT_TO_LEFT = re.compile("([\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff](?:[^A-Za-z0-9:;,]*[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff])*)")
RUN_COLOURS = 14  # classes run-0 .. run-13 in static/css/components.css

_STATES: dict[str, tuple[str, str]] = {  # state -> colour of the tag, icon
    RunState.QUEUED: ("gray", "hourglass"),
    RunState.STARTING: ("teal", "rocket"),
    RunState.RUNNING: ("blue", "in-progress"),
    RunState.SUSPENDED: ("purple", "pause"),
    RunState.STOPPING: ("yellow", "stop--filled"),
    RunState.COMPLETED: ("green", "checkmark--filled"),
    RunState.FAILED: ("red", "error--filled"),
    RunState.STOPPED: ("gray", "stop--filled"),
}


@register.simple_tag
def icon(name: str, css: str = "") -> SafeString:
    """A Carbon icon, invisible to screen readers: the text beside it says the same."""
    sprite = static("vendor/carbon-icons/icons.svg")
    return format_html('<svg class="icon{}" aria-hidden="true"><use href="{}#{}"/></svg>', f" {css}" if css else "", sprite, name)


@register.simple_tag
def tag(text: str, colour: str = "gray", icon_name: str = "") -> SafeString:
    return format_html('<span class="tag tag-{}">{}{}</span>', colour, icon(icon_name) if icon_name else "", text)


@register.simple_tag
def state(run: TrainingRun) -> SafeString:
    """The run's state: never by colour alone."""
    if run.paused and run.state in (RunState.QUEUED, RunState.SUSPENDED):
        return tag("Paused", "purple", "pause")
    colour, name = _STATES.get(run.state, ("gray", "circle-dash"))
    return tag(RunState(run.state).label, colour, name)


@register.simple_tag
def state_named(value: str) -> SafeString:
    """A state of the history, by its name; empty for none."""
    if not value:
        return SafeString("")
    colour, name = _STATES.get(value, ("gray", "circle-dash"))
    return tag(RunState(value).label, colour, name)


@register.filter
def run_colour(run: TrainingRun | int) -> str:
    """The class that carries the run's one colour."""
    number = run.pk if isinstance(run, TrainingRun) else run
    return f"run-{number % RUN_COLOURS}"


@register.filter
def when(moment: dt.datetime | None) -> SafeString:
    """A <time> that static/js/times.js puts into the reader's zone; without script it reads in UTC."""
    if moment is None:
        return SafeString('<span class="quiet">–</span>')
    utc = moment.astimezone(dt.UTC)
    return format_html('<time datetime="{}">{}</time>', utc.isoformat(timespec="seconds"), utc.strftime("%d %b %Y, %H:%M UTC"))


@register.filter
def about(moment: dt.datetime | None) -> SafeString:
    """The same of an estimate: the script writes it to the minute."""
    return SafeString(when(moment).replace("<time ", "<time data-about ", 1))


@register.filter
def unix(moment: dt.datetime | None) -> str:
    """Unix seconds, for scripts."""
    return "" if moment is None else f"{moment.timestamp():.3f}"


@register.simple_tag
def running_time(run: TrainingRun, now: dt.datetime) -> SafeString:
    """From the first step to the end; while it runs, static/js/times.js lets it tick between updates."""
    span = run.duration(now)
    if span is None:
        return SafeString('<span class="quiet">–</span>')
    if run.state in ENDED:
        return SafeString(spell(span.total_seconds()))
    start = now - span
    return format_html('<span data-since="{}">{}</span>', unix(start), spell(span.total_seconds()))


@register.simple_tag
def leaving_time(grant: Grant, grace_s: int) -> SafeString:
    """How long the worker on a slot that was asked back has until it is ended; static/js/times.js counts it down."""
    if grant.release_requested_at is None:
        return SafeString("")
    until = grant.release_requested_at + dt.timedelta(seconds=grace_s)
    left = (until - timezone.now()).total_seconds()
    return format_html('<span data-until="{}">{}</span>', unix(until), f"within {spell(left)}" if left > 0 else "now")


@register.filter
def has_pace(run: TrainingRun, now: dt.datetime) -> bool:
    """Whether the run trains as far as anybody knows: of one whose machine is not heard of, the last rate says nothing."""
    return run.state == RunState.RUNNING and (run.head_node is None or not is_silent(run.head_node, now))


@register.filter
def ends_at(run: TrainingRun, now: dt.datetime) -> dt.datetime | None:
    """When the run will have done its steps, at its recent rate; None before that is known, or where it is years away."""
    left = run.left_s()
    return now + dt.timedelta(seconds=left) if left is not None and left < 10 * 365 * 86400 else None


@register.filter
def spell(seconds: float | dt.timedelta | None) -> str:
    """A length of time as a person says it: 0.4 s, 42 s, 3 min 5 s, 2 h 4 min, 3 d 2 h."""
    if seconds is None:
        return "–"
    if isinstance(seconds, dt.timedelta):
        seconds = seconds.total_seconds()
    if not math.isfinite(seconds):
        return "–"
    if 0 < seconds < 1:
        return f"0.{int(10 * seconds)} s" if seconds >= 0.1 else "< 0.1 s"
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"


@register.simple_tag
def later_by(seconds: float | None) -> SafeString:
    """How much later something ends, in words; less than a minute is nothing."""
    if seconds is None:
        return SafeString('<span class="quiet">–</span>')
    if abs(seconds) < 60:
        return SafeString('<span class="quiet">the same</span>')
    return format_html("{} {}", spell(abs(seconds)), "later" if seconds > 0 else "sooner")


@register.filter
def size(count: int | None) -> str:
    """Bytes in the unit that leaves one to three digits before the point."""
    if count is None:
        return "–"
    return diskuse.spelled(count)


@register.filter
def value(number: float | str | None) -> str:
    """A metric: four significant digits, as the page's script writes it (static/js/chart.js, figure). NaN and infinities are stored as
    nothing, and said, not hidden."""
    if number is None:
        return "not finite"
    try:
        number = float(number)
    except (TypeError, ValueError):
        return str(number)[:40]
    if not math.isfinite(number):
        return "not finite"
    if number and (abs(number) < 1e-3 or abs(number) >= 1e6):
        return re.sub(r"e([+-])0", r"e\1", f"{number:.3e}")
    return f"{number:.4g}" if abs(number) < 1000 else f"{number:.0f}"


@register.filter
def gist(note: str) -> str:
    """The first line of a note in Markdown, without what marks it: for rows of a table."""
    line = next((line.strip() for line in note.splitlines() if line.strip(" #*-=>`|")), "")
    return re.sub(r"([*`]{1,3})(\S.*?)\1", r"\2", re.sub(r"^(#+|>|[-*+])\s+", "", line))[:200]


@register.filter
def thousands(number: int | None) -> str:
    return "–" if number is None else f"{number:,}"


@register.filter
def amount(number: float) -> str:
    """Units of a progress bar, as many as there are."""
    return f"{number:,.0f}" if number >= 10 or number == int(number) else f"{number:.1f}"


@register.filter
def rate(number: float | None) -> str:
    """Steps a second."""
    if number is None or not math.isfinite(number):
        return "–"
    return f"{number:.1f}" if number >= 10 else f"{number:.2f}"


@register.filter
def item(mapping: Mapping[Any, object] | None, key: object) -> object:
    """`mapping[key]`, or None."""
    return None if mapping is None else mapping.get(key)


@register.filter
def at_or_none(values: Sequence[object], index: int) -> object:
    """`values[index]`, None where there are not so many."""
    return values[index] if index < len(values) else None


@register.filter
def delta(percent: float) -> str:
    """What a value has more or less than another, in percent."""
    return f"{percent:+,.1f} %" if abs(percent) < 1000 else f"{percent:+,.0f} %"


@register.filter
def at(values: Sequence[object], index: int) -> object:
    """`values[index]`."""
    return values[index]


@register.filter
def slot_names(slots: Sequence[Slot], most: int) -> str:
    """The labels of slots, at most so many of them."""
    return ", ".join(slot.label() for slot in slots[:most]) + (" …" if len(slots) > most else "")


@register.filter
def has(mapping: dict[str, object], key: str) -> bool:
    return key in mapping


@register.filter
def title_case(name: str) -> str:
    """ "train loss" -> "Train loss"."""
    return name[:1].upper() + name[1:]


@register.simple_tag
def job_states() -> list[tuple[str, str]]:
    """The choices of a table's state filter."""
    return [("", "All"), ("live", "Live"), ("ended", "Ended"), *RunState.choices]


@register.simple_tag
def page_query(wanted: JobFilter, pages: int) -> str:
    """The query string of the table's page before (-1) or after (1)."""
    kept = {"name": wanted.name, "state": wanted.state, "offset": max(0, wanted.offset + pages * wanted.limit)}
    return urlencode({key: value for key, value in kept.items() if value})


@register.simple_tag
def sorter(label: str, key: str, wanted: RunFilter, kept: str, css: str = "") -> SafeString:
    """A column's head that sorts by it, and says so: first the greatest, or the least of a metric of which less is better; then the other
    way round, then as before."""
    on, least_first = wanted.sort == key, better(key) == "less"
    ways = [{"sort": key}, {"sort": key, "order": "down"}]
    first, then = ways if least_first else reversed(ways)
    query = urlencode(first if not on else then if wanted.descending != least_first else {})
    address = "?" + "&".join(filter(None, (kept, query)))
    order = format_html(' aria-sort="{}"', "descending" if wanted.descending else "ascending") if on else ""
    arrow = icon("arrow--down" if wanted.descending else "arrow--up") if on else ""
    whole = format_html(' title="{}"', label) if len(label) > LONG_LABEL else ""
    return format_html(
        '<th scope="col" class="sorter {}"{}><a href="{}"{}><span>{}</span>{}</a></th>', css, order, address, whole, label, arrow
    )


@register.simple_tag
def feed_text(item: FeedItem, readable: Collection[int] | None = None, named: bool = False) -> SafeString:
    """What happened, the run's name in it a link where the reader may open the run (None: they may). Else neither name nor reason, but for
    those who may know all names."""
    if readable is not None and item.run not in readable and item.kind != "cluster" and not named:
        return format_html("{}", item.unnamed)
    before, name, after = item.text.partition(item.name)
    if not name:
        return format_html("{}", item.text)
    if readable is not None and item.run not in readable:
        return format_html("{}<bdi>{}</bdi>{}", before, name, after)
    return format_html('{}<a href="{}"><bdi>{}</bdi></a>{}', before, reverse("run", args=[item.run]), name, after)


@register.filter
def isolated(text: str) -> SafeString:
    """A sentence in which names may stand that are written from right to left: the numbers and words beside them stay where they belong."""
    parts = _RIGHT_TO_LEFT.split(text)
    return format_html_join("", "{}", ((format_html("<bdi>{}</bdi>", part) if place % 2 else part,) for place, part in enumerate(parts)))


@register.filter
def words(command: str) -> SafeString:
    """A command that breaks between its words alone: browsers break lines after a hyphen, which leaves "-" and "-lr"."""
    return format_html_join(" ", '<span class="word">{}</span>', ((word,) for word in command.split()))


@register.simple_tag
def share(part: float | None) -> str:
    """A part of one, as the charts write it (static/js/use.js, percent)."""
    return "–" if part is None else f"{100 * part:.0f} %"


@register.filter
def slot_hours(seconds: float) -> str:
    """Slot-seconds as slot-hours, as the CSV has them."""
    return f"{seconds / 3600:.2f}"


@register.filter
def date_in(moment: dt.datetime, form: str) -> str:
    """In the zone that the moment itself has."""
    return moment.strftime(form)


@register.simple_tag
def percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"
