"""What is shown when something is not there, not allowed or broken: each page says what happened and offers a way on."""

from __future__ import annotations

import logging
import sys

from django.db import close_old_connections, connection
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, JsonResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils.deprecation import MiddlewareMixin

from experiments.ops import full_disk

log = logging.getLogger(__name__)
BROKE = "The error is in the studio's log. Jobs that are running are not affected by it."
NOTHING = "There is nothing at this address, it was deleted, or you are not a member of the project it belongs to."


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:  # noqa: ARG001  (Django passes it)
    return _page(request, 404, "Not found", NOTHING)


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    said = str(exception) or "Your role in this project does not include that."
    return _page(request, 403, "Not allowed", said)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:  # noqa: ARG001
    said = "It was open for too long, or you logged in again in another tab. Nothing was changed: go back, reload the page, send it again."
    return _page(request, 403, "The form has expired", said)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django also says so of a session that could not be written."""
    if no_room := full_disk.says(exception):
        return _no_room(request, no_room)
    return _page(request, 400, "Bad request", "The server could not make sense of this request.")


class Explained(MiddlewareMixin):
    """Django answers an address that only forms are sent to with an empty page; who has typed it, or come back to it, is told instead."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if not isinstance(response, HttpResponseNotAllowed) or request.method not in ("GET", "HEAD"):
            return response
        page = _page(request, 405, "Not a page", "Something is done at this address, by a button of another page. Nothing was changed.")
        page["Allow"] = response["Allow"]
        return page


def server_error(request: HttpRequest) -> HttpResponse:
    """What broke is the exception that Django is just handling."""
    if not (no_room := full_disk.says(sys.exception())):
        return _bare(500, "Something broke", BROKE)
    return _no_room(request, no_room)


def _no_room(request: HttpRequest, said: str) -> HttpResponse:
    if request.headers.get("Accept") == "application/json":  # a page's script
        return JsonResponse({"errors": {"upload": [said]}}, status=full_disk.STATUS)
    return _bare(full_disk.STATUS, "No room", said)


def _bare(status: int, heading: str, said: str) -> HttpResponse:
    """As little as possible: what broke may be the database or the template's context. Plainer still when even that fails."""
    try:
        return HttpResponse(render_to_string("500.html", {"status": status, "heading": heading, "said": said}), status=status)
    except Exception:  # the last resort must not depend on what is broken
        log.exception("The error page itself cannot be rendered.")
        return HttpResponse(_PLAIN.format(heading=heading, said=said), status=status)


def _page(request: HttpRequest, status: int, heading: str, said: str) -> HttpResponse:
    # Django renders these in a thread of its own, whose connection to the database nobody closes: a broken one would stay so for ever.
    _close_connection()
    try:
        return _rendered(request, status, heading, said)
    finally:
        _close_connection()


def _close_connection() -> None:
    """Not inside a transaction, which is somebody's who goes on with it."""
    if not connection.in_atomic_block:
        close_old_connections()


def _rendered(request: HttpRequest, status: int, heading: str, said: str) -> HttpResponse:
    return render(request, "error.html", {"status": status, "heading": heading, "said": said}, status=status)


_PLAIN = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{heading} · EDT Studio</title>
<body><h1>{heading}</h1><p>{said}</p>
<p><a href="/">To your projects</a></p></body></html>"""
