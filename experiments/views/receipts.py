"""A run's receipt as a file, and doing a run again to see whether the same comes out."""

from __future__ import annotations

import json

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import content_disposition_header
from django.views.decorators.http import require_POST, require_safe

from experiments import access, services
from experiments.errors import DomainError
from experiments.forms.sent_once import RequestForm
from experiments.runs import seals
from experiments.selectors import receipts
from experiments.views.responses import person, refused


@require_safe
def receipt(request: HttpRequest, pk: int) -> HttpResponse:
    """Sealed, as JSON."""
    run = access.run(person(request), pk)
    try:
        services.check_receipt(run)
    except DomainError as refusal:
        return refused(request, str(refusal), to=reverse("run_overview", args=[pk]))
    text = json.dumps(seals.sealed(receipts.card(run)), indent=1)
    response = HttpResponse(text, content_type="application/json")
    response["Content-Disposition"] = content_disposition_header(True, f"run-{pk}.receipt.json")
    response["Cache-Control"] = "private, no-store"
    return response


@require_POST
def reproduce(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    run = access.run(user, pk, need="write")
    form = RequestForm(request.POST)
    if not form.is_valid():
        return refused(request, "The form was not complete: load the page again.", to=reverse("run_overview", args=[pk]))
    try:
        made = services.reproduce(run, by=user, idempotency_key=form.cleaned_data["idempotency_key"])
    except DomainError as refusal:
        return refused(request, str(refusal), to=reverse("run_overview", args=[pk]))
    return redirect("run_overview", made.pk)
