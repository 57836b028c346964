"""How these addresses answer: who calls is known first, then the method; errors are a line of text, or JSON where JSON was asked for.

No form's token is wanted, and no session counts: a page of somebody else's can make a browser send its cookies here, but not a header. For
the same reason nobody is asked for a password by `WWW-Authenticate: Basic`: a browser would keep it and send it along from then on.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse, UnreadablePostError
from django.http.multipartparser import MultiPartParserError
from django.http.response import HttpResponseBase
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt

from experiments.errors import DomainError
from experiments.files.bundles import BundleRefused
from experiments.ops import full_disk
from experiments.wmla import callers
from experiments.wmla.arguments import read_json
from experiments.wmla.callers import Refused

Do = Callable[..., HttpResponseBase]
BROKEN = (BadRequest, SuspiciousOperation, MultiPartParserError, UnreadablePostError)
log = logging.getLogger(__name__)


def api(**methods: Do) -> Do:
    """A view that does what stands under the request's method for who calls, `request.user` from then on."""

    @csrf_exempt
    @login_not_required
    def view(request: HttpRequest, **about: Any) -> HttpResponseBase:
        try:
            request.user = caller(request)
            return _done(request, methods, about)
        except Refused as refusal:
            return error(request, refusal.status, str(refusal))
        except Http404 as missing:
            return error(request, 404, str(missing) or "There is no such thing.")
        except PermissionDenied as denied:
            return error(request, 403, str(denied) or "Your role in this project does not include that.")
        except DomainError as wrong:
            return error(request, 400, str(wrong))
        except BundleRefused as refused:
            return error(request, 400, str(refused))
        except BROKEN as broken:
            log.warning("A request to %s cannot be read: %s", request.path, broken)
            return error(request, 400, "The request cannot be read: send the files as multipart/form-data, and the whole of them.")
        except Exception as failed:
            if no_room := full_disk.says(failed):
                log.warning("No room for a request to %s", request.path, exc_info=failed)
                return error(request, full_disk.STATUS, no_room)
            raise

    return view


def _done(request: HttpRequest, methods: dict[str, Do], about: dict[str, Any]) -> HttpResponseBase:
    do = methods.get("GET" if request.method == "HEAD" else request.method or "")
    if do is None:
        allowed = ", ".join(methods)
        refusal = error(request, 405, f"{request.method} is not possible here, but {allowed}.")
        refusal["Allow"] = allowed
        return refusal
    answer = do(request, **about)
    answer.headers.setdefault("Cache-Control", "no-store")
    return answer


def caller(request: HttpRequest) -> Any:
    """Raises Refused."""
    headers = {"authorization": request.headers.get("Authorization", ""), "token": request.headers.get("X-Auth-Token", "")}
    return callers.who(**headers, address=request.META.get("REMOTE_ADDR", ""), now=timezone.now())


def error(request: HttpRequest, status: int, says: str) -> HttpResponse:
    if wants_json(request):
        answer: HttpResponse = JsonResponse({"statusCode": status, "message": says}, status=status)
    else:
        answer = text(f"Error {status}: {says}\n", status=status)
    if status == 401:
        answer["WWW-Authenticate"] = 'Bearer realm="EDT Studio"'
    answer["Cache-Control"] = "no-store"
    return answer


def wants_json(request: HttpRequest) -> bool:
    return "application/json" in request.headers.get("Accept", "")


def json_body(request: HttpRequest) -> dict[str, Any]:
    """The object in the body. Raises Refused."""
    try:
        said = read_json(request.body)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        refuse("The body is no JSON object.")
    return said


def text_of(said: Mapping[str, Any], key: str) -> str:
    """The text under the key; empty where it is not there."""
    value = said.get(key)
    if value is not None and not isinstance(value, str):
        refuse(f"{key} is no text.")
    return value or ""


def dict_of(said: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The object under the key; empty where it is not there."""
    value = said.get(key)
    if value is not None and not isinstance(value, dict):
        refuse(f"{key} is no JSON object.")
    return value or {}


def json_response(what: object, *, status: int = 200) -> HttpResponse:
    return HttpResponse(json.dumps(what), content_type="application/json", status=status)


def text(said: str, *, status: int = 200) -> HttpResponse:
    return HttpResponse(said, content_type="text/plain; charset=utf-8", status=status, headers={"X-Content-Type-Options": "nosniff"})


def nothing() -> HttpResponse:
    return HttpResponse(status=204)


def refuse(says: str) -> NoReturn:
    """A bad request, as the original answers one: 400, also for what there is not."""
    raise Refused(400, says)
