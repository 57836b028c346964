"""One's API tokens: a page with those that there are, and a form for another, which is shown once."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from experiments import access, services
from experiments.forms.common import attempt
from experiments.forms.wording import Form
from experiments.models import ApiToken, Project, Scope, User
from experiments.services.tokens import MOST_DAYS
from experiments.views.responses import act, done, later, page, person

USUAL_DAYS = 90


class TokenForm(Form):
    name = forms.CharField(
        max_length=120, help_text="What it is for, to know it again.", widget=forms.TextInput(attrs={"autocomplete": "off"})
    )
    scope = forms.ChoiceField(choices=Scope.choices, initial=Scope.WRITE, label="May")
    project = forms.ModelChoiceField(
        queryset=Project.objects.none(), required=False, empty_label="All of mine", help_text="It knows no other project."
    )
    expires_in_days = forms.IntegerField(
        label="Days until it ends",
        required=False,
        min_value=1,
        max_value=MOST_DAYS,
        initial=USUAL_DAYS,
        help_text="Left empty: it is good until you end it.",
    )

    def __init__(self, data: Any, *, user: User) -> None:
        super().__init__(data)
        chosen = self.fields["project"]
        assert isinstance(chosen, forms.ModelChoiceField)
        chosen.queryset = access.projects_for(user).order_by("name")


@require_http_methods(["GET", "HEAD", "POST"])
def index(request: HttpRequest) -> HttpResponse:
    user = person(request)
    form, made = TokenForm(request.POST or None, user=user), None
    if request.method == "POST" and form.is_valid():
        said = form.cleaned_data
        made = attempt(
            form,
            lambda: services.create_token(
                by=user, name=said["name"], scope=said["scope"], project=said["project"], days=said["expires_in_days"], now=timezone.now()
            ),
        )
    context = {
        "crumbs": [("Profile", reverse("profile"))],
        "form": TokenForm(None, user=user) if made else form,
        "made": made,
        "tokens": later(lambda: list(ApiToken.objects.filter(person=user).select_related("project", "run"))),
    }
    response = page(request, "accounts/tokens.html", context, status=201 if made else 200)
    response["Cache-Control"] = "no-store"  # the token is in it
    return response


@require_POST
def end(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    token = access.api_token(user, pk)
    said = f"{token.name} is ended: it is good for nothing from now on."
    return act(request, lambda: services.end_token(token, by=user), said=said, to=reverse("tokens"))


@require_POST
def end_all(request: HttpRequest) -> HttpResponse:
    user = person(request)
    services.end_tokens(user, by=user)
    return done(request, "All your tokens are ended.", to=reverse("tokens"))
