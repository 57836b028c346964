"""What people do with comments on a run: add, change, delete. Each by POST, each a service; they are read on the run's page."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_POST

from experiments import access
from experiments.forms.common import CommentForm
from experiments.services import comments
from experiments.views.responses import act, person, refused


def _back(run: int) -> str:
    return f"{reverse('run', args=[run])}#comments-title"


@require_POST
def add(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    run = access.run(user, pk, need="write")
    form = CommentForm(request.POST)
    if not form.is_valid():
        return refused(request, "A comment has some text, and at most 4,000 characters.", to=_back(pk))
    said = form.cleaned_data
    return act(request, lambda: comments.add_comment(run, by=user, **said), said="Your comment is there.", to=_back(pk))


@require_POST
def change(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    comment, text = access.comment(user, pk, need="write"), request.POST.get("text", "")
    do = lambda: comments.change_comment(comment, by=user, text=text)  # noqa: E731
    return act(request, do, said="Your comment is changed.", to=_back(comment.run_id))


@require_POST
def delete(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    comment = access.comment(user, pk, need="write")
    owns = access.may(comment.run.experiment.project, "admin")
    return act(
        request, lambda: comments.delete_comment(comment, by=user, any_ones=owns), said="The comment is deleted.", to=_back(comment.run_id)
    )
