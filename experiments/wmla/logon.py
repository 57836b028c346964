"""Logging on and off, and what clients ask about the service before they begin."""

from __future__ import annotations

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt

from experiments.views.responses import person
from experiments.wmla import answers, callers, tokens
from experiments.wmla.answers import api
from experiments.wmla.arguments import read_json
from experiments.wmla.callers import Refused

MOST_BODY_BYTES = 64 << 10


@csrf_exempt
@login_not_required
def log_on(request: HttpRequest) -> HttpResponse:
    """By Basic, or by a JSON object with username and password, as Cloud Pak's own clients send it."""
    if request.method not in ("GET", "HEAD", "POST"):
        return answers.error(request, 405, f"{request.method} is not possible here, but GET, POST.")
    now = timezone.now()
    try:
        name, password = _in_body(request)
        address = request.META.get("REMOTE_ADDR", "")
        user = callers.by_name(name, password, address=address, now=now) if name else answers.caller(request)
    except Refused as refusal:
        return answers.error(request, refusal.status, str(refusal))
    token = tokens.issue(user, now=now)
    said = {"accessToken": token, "token": token, "username": user.username, "message": "success", "_messageCode_": "success"}
    answer = answers.json_response(said)
    answer["Cache-Control"] = "no-store"
    return answer


def _in_body(request: HttpRequest) -> tuple[str, str]:
    """Empty where the headers say it, or the body does not."""
    if request.headers.get("Authorization") or request.headers.get("X-Auth-Token"):
        return "", ""
    try:
        said = read_json(request.read(MOST_BODY_BYTES) or b"{}")
    except (ValueError, RecursionError):
        return "", ""
    if not isinstance(said, dict):
        return "", ""
    return str(said.get("username", "")), str(said.get("password", ""))


def _off(request: HttpRequest) -> HttpResponse:
    said = request.headers.get("X-Auth-Token", "") or request.headers.get("Authorization", "").partition(" ")[2]
    tokens.end(said.strip(), now=timezone.now())
    return answers.json_response({"message": "success"})


def _conf(request: HttpRequest) -> HttpResponse:
    """MSD_ENABLED: jobs are placed by the service's own scheduler, as from the second generation on."""
    return answers.json_response({"MSD_ENABLED": True, "USERNAME": person(request).username})


def _status(request: HttpRequest) -> HttpResponse:  # noqa: ARG001
    return answers.json_response({"status": "OK"})


log_off = api(GET=_off, POST=_off, DELETE=_off)
conf = api(GET=_conf)
status = api(GET=_status)
