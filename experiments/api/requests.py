"""What calls share: keys that make a thing once, tags of what was read, and how often a token may ask."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import time
import uuid

from django.conf import settings
from django.core.cache import cache
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.cache import get_conditional_response
from django.utils.http import quote_etag
from ninja import Schema
from ninja.responses import NinjaJSONEncoder
from ninja.throttling import BaseThrottle

from experiments.api.auth import person
from experiments.api.problems import Refused

LONGEST_KEY = 200
WINDOW_S = 60
NAMESPACE = uuid.UUID("6c1f1d2e-3f0a-5c0b-9a57-0e2d4f7b8a10")
KEPT = "edt.idempotency_key"
KEPT_S = 24 * 60 * 60.0
TAGGED = ("GET", "HEAD")
log = logging.getLogger(__name__)


def idempotency_key(request: HttpRequest) -> uuid.UUID | None:
    """What the services know a request by that is sent twice: of its Idempotency-Key, its person and its address."""
    key = request.headers.get("Idempotency-Key", "")
    if len(key) > LONGEST_KEY:
        raise Refused(422, f"An Idempotency-Key has at most {LONGEST_KEY} characters.")
    if not key:
        return None
    known_by = uuid.uuid5(NAMESPACE, f"{person(request).pk} {request.path} {key}")
    kept, said = f"api-key:{known_by}", _fingerprint(request)
    if _sent_before(kept) not in (None, said):
        raise Refused(422, "This Idempotency-Key has made something else already: give each thing a key of its own.")
    request.META[KEPT] = kept, said
    return known_by


def _fingerprint(request: HttpRequest) -> str:
    """By what a request is told from another one with the same key: its JSON, or the fields of its form without the files."""
    if request.content_type == "multipart/form-data":
        said = json.dumps(sorted(request.POST.lists()))
    else:
        said = request.body.decode(errors="replace")
        with contextlib.suppress(ValueError):
            said = json.dumps(json.loads(said), sort_keys=True)
    return hashlib.sha256(said.encode(errors="replace")).hexdigest()


def _sent_before(name: str) -> object:
    try:
        return cache.get(name)
    except Exception as error:  # whatever the cache's library raises: then the key alone counts
        log.debug("what was sent with a key is not known: %s", error)
        return None


def remember_key(request: HttpRequest, response: HttpResponseBase) -> None:
    """What was sent with the key that has made something; what was refused may be mended and sent with the same key."""
    if KEPT in request.META and response.status_code < 300:
        name, said = request.META[KEPT]
        try:
            cache.set(name, said, timeout=KEPT_S)
        except Exception as error:
            log.debug("what was sent with a key is not kept: %s", error)


def unchanged(request: HttpRequest, now: Schema) -> None:
    """Raises Refused where If-Match names what the thing was and it is something else now."""
    wanted = request.headers.get("If-Match", "")
    if wanted and wanted != "*" and etag(rendered(now)) not in [each.strip() for each in wanted.split(",")]:
        raise Refused(412, "It has changed since you read it: read it again, then change it.")


def rendered(shown: Schema) -> bytes:
    """As the answer to a GET has it."""
    return json.dumps(shown.model_dump(), cls=NinjaJSONEncoder).encode()


def etag(body: bytes) -> str:
    return quote_etag(hashlib.sha256(body).hexdigest()[:32])


def conditional(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    """With its tag; empty where who asks has it already."""
    if request.method not in TAGGED or response.status_code != 200 or response.streaming or "Content-Disposition" in response:
        return response
    response["ETag"] = tag = etag(response.content)  # type: ignore[attr-defined]  # not streaming
    answer: HttpResponseBase = get_conditional_response(request, etag=tag, response=response)  # type: ignore[arg-type,assignment]
    return answer


class Rate(BaseThrottle):
    """So many requests a minute of a token or of a person's pages, counted in the cache; as many as they like while that is away."""

    def allow_request(self, request: HttpRequest) -> bool:
        user = person(request)
        who = f"token-{user.permit.token}" if user.permit is not None else f"person-{user.pk}"
        now = time.time()
        key = f"api-rate:{who}:{int(now // WINDOW_S)}"
        try:
            cache.add(key, 0, timeout=2 * WINDOW_S)
            count = cache.incr(key)
        except Exception as error:  # whatever the cache's library raises: a limit must not close the door
            log.debug("requests are not counted: %s", error)
            return True
        return bool(count <= settings.EDT_API_RATE)

    def wait(self) -> float | None:
        """Until the next minute is counted."""
        return WINDOW_S - time.time() % WINDOW_S
