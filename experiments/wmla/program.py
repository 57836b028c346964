"""The address of dlicmd.py: anybody may fetch the program, as it holds no secret and is fetched before anybody has logged on."""

from __future__ import annotations

from pathlib import Path

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

FILE = Path(__file__).with_name("dlicmd.py")


@login_not_required
@require_safe
def dlicmd(request: HttpRequest) -> HttpResponse:  # noqa: ARG001
    headers = {"Content-Disposition": 'attachment; filename="dlicmd.py"', "X-Content-Type-Options": "nosniff"}
    return HttpResponse(FILE.read_bytes(), content_type="text/x-python; charset=utf-8", headers=headers)
