"""For load balancers, containers and monitoring: whether the web process lives, whether it can serve pages, and how the cluster stands. No
login, no session.
"""

from __future__ import annotations

import logging

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.core.cache import cache
from django.db import connection
from django.db.utils import Error as DatabaseError
from django.http import Http404, HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from experiments.selectors import measures

log = logging.getLogger(__name__)


@login_not_required
@never_cache
@require_safe
def alive(request: HttpRequest) -> HttpResponse:  # noqa: ARG001  (Django passes it)
    """The process answers. It looks at nothing else, so that an outage elsewhere gets nobody killed."""
    return HttpResponse("alive\n", content_type="text/plain")


@login_not_required
@never_cache
@require_safe
def ready(request: HttpRequest) -> HttpResponse:  # noqa: ARG001
    """Pages can be served: the database and the broker answer. 503 with what does not."""
    missing = [name for name, answers in (("database", _database), ("broker", _broker)) if not answers()]
    if missing:
        return HttpResponse("".join(f"the {name} does not answer\n" for name in missing), content_type="text/plain", status=503)
    return HttpResponse("ready\n", content_type="text/plain")


@login_not_required
@never_cache
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """For Prometheus, by a token of its own: it is neither anybody's account nor everybody's to read."""
    if not settings.EDT_METRICS_TOKEN:
        raise Http404("Set EDT_METRICS_TOKEN to have figures for Prometheus here.")
    kind, _, said = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() != "bearer" or not constant_time_compare(said.strip(), settings.EDT_METRICS_TOKEN):
        refusal = HttpResponse("Authorization: Bearer, with EDT_METRICS_TOKEN.\n", content_type="text/plain", status=401)
        refusal["WWW-Authenticate"] = "Bearer"
        return refusal
    from experiments.ops import prometheus  # a library that nobody else needs

    return HttpResponse(prometheus.exposition(measures.measures(now=timezone.now())), content_type=prometheus.CONTENT_TYPE)


def _database() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        log.debug("Not ready: %s", error)
        return False
    return True


def _broker() -> bool:
    try:
        cache.get("readyz")
    except Exception as error:  # whatever the cache's client raises
        log.debug("Not ready: %s", error)
        return False
    return True
