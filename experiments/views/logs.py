"""A run's logs: the end of one or of all, followed live; what a search finds in it; a place in it. Whole ones are in downloads."""

from __future__ import annotations

from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_safe

from experiments import access, selectors
from experiments.logs import terminal
from experiments.models import TrainingRun
from experiments.selectors import logs as search
from experiments.selectors import merged
from experiments.views.responses import later, number, page, person
from experiments.views.runs import HEAD, run_tab

ALL = "*"  # no log has this name
LOG_LINES = 500
MOST_LOG_BYTES = 256 * 1024
AROUND_BYTES = 32 * 1024
MOST_SEARCHED = 6  # logs, for the last error: each may take seconds
LEVELS = (("", "All levels"), ("info", "Info and above"), ("warning", "Warnings and errors"), ("error", "Errors"))


@require_safe
def logs(request: HttpRequest, pk: int) -> HttpResponse:
    """?name= of the log, "*" for all as one stream; ?q= (?regex=1) and ?level= search it, ?at= shows the line at that byte, ?error=1 leads
    to the last error."""
    run, tab = run_tab(request, pk, "logs")
    names = selectors.log_names(run)
    chosen = request.GET.get("name", "")
    together = chosen == ALL and len(names) > 1
    if chosen not in names and not together:
        chosen = _usual(run, names)
    if request.GET.get("error"):
        return _to_the_error(run, names, names[0] if together else chosen)
    wanted, level = request.GET.get("q", ""), request.GET.get("level", "")
    regex = request.GET.get("regex") == "1"
    at = number(request, "at", -1, least=0, most=1 << 62)
    context = {
        **tab,
        "names": names,
        "places": later(lambda: selectors.log_places(run)),
        "chosen": chosen,
        "q": wanted[: search.LONGEST_PATTERN + 1],
        "regex": regex,
        "level": level,
        "searched_for": urlencode(
            {"q": wanted[: search.LONGEST_PATTERN + 1]} | ({"regex": 1} if regex else {}) | ({"level": level} if level else {})
        ),
        "levels": LEVELS,
        "together": together,
        "most_together": merged.MOST_LOGS,
        "merged": later(lambda: merged.merged_tail(run, names, lines=LOG_LINES)),
        "searched": bool(wanted or level),
        "found_together": later(lambda: search.search_together(run, names[: merged.MOST_LOGS], pattern=wanted, regex=regex, level=level)),
        "found": later(lambda: search.search(run, chosen, pattern=wanted, regex=regex, level=level)),
        "place": later(lambda: _around(run, chosen, at)) if at >= 0 and not together else None,
        "tail": later(lambda: _tail(run, chosen)),
    }
    return page(request, "runs/logs.html", context, parts={**HEAD, "pane": "runs/_log_pane.html", "names": "runs/_log_names.html"})


def _usual(run: TrainingRun, names: list[str]) -> str:
    """The log in which a script prints: under torchrun a worker's, which there is once it has begun."""
    workers = [name for name in names if name.startswith("worker-")] if run.version.torchrun else []
    return [*workers, *names, "driver"][0]


def _tail(run: TrainingRun, name: str) -> dict[str, object]:
    """The last lines as they stand on a terminal, and between which bytes they lie."""
    tail = selectors.log_tail(run, name, lines=LOG_LINES, limit_bytes=MOST_LOG_BYTES)
    screen = terminal.render_screen(tail.text)
    return {"text": screen.text, "up": screen.up, "begin": tail.begin, "end": tail.end}


def _to_the_error(run: TrainingRun, names: list[str], chosen: str) -> HttpResponse:
    """To the last error of the log, else of the first log that has one."""
    to = reverse("run_logs", args=[run.pk])
    for name in dict.fromkeys([chosen, *names[:MOST_SEARCHED]]):
        found = search.last_error(run, name)
        if found is not None:
            return redirect(f"{to}?{urlencode({'name': name, 'at': found.offset})}#here")
    return redirect(f"{to}?{urlencode({'name': chosen, 'level': 'error'})}")


def _around(run: TrainingRun, name: str, at: int) -> dict[str, object]:
    """The line at byte `at`, and what stands before and after it."""
    begin = max(0, at - AROUND_BYTES)
    before = selectors.log_tail(run, name, offset=begin, limit_bytes=at - begin).text
    if begin:
        before = before.partition("\n")[2]  # the first line may be cut in two
    line, end, after = selectors.log_tail(run, name, offset=at, limit_bytes=AROUND_BYTES).text.partition("\n")
    return {
        "before": terminal.render_screen(before).text,
        "line": terminal.line(line) + end,
        "after": terminal.render_screen(after).text,
        "earlier": begin > 0,
    }


@require_safe
def log(request: HttpRequest, pk: int) -> JsonResponse:
    """What stands in a log from ?offset= on, for a page that has missed some of what it follows, and whether nothing will follow that."""
    run = access.run(person(request), pk)
    name = request.GET.get("name", "driver")
    if name not in selectors.log_names(run):
        return JsonResponse({"text": "", "begin": 0, "end": 0, "size": 0, "ended": not run.is_live()})
    offset = number(request, "offset", 0, least=0, most=1 << 62)
    tail = selectors.log_tail(run, name, offset=offset, limit_bytes=MOST_LOG_BYTES)
    return JsonResponse({"text": tail.text, "begin": tail.begin, "end": tail.end, "size": tail.size_bytes, "ended": not run.is_live()})
