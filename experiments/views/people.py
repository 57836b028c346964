"""People's accounts, for administrators of the cluster: who there is, and an account's own page. A password that was made is shown once, in
the answer to the button."""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from experiments import access, services
from experiments.accounts import sessions
from experiments.cluster import isolation
from experiments.errors import DomainError
from experiments.forms.common import attempt
from experiments.forms.people import CloseForm, HandOverForm, NewPersonForm
from experiments.models import User
from experiments.selectors import people
from experiments.views.paging import Pages
from experiments.views.responses import act, later, page, person, refused


@require_http_methods(["GET", "HEAD", "POST"])
def index(request: HttpRequest) -> HttpResponse:
    """All of them, and a form for another."""
    user = person(request)
    access.rules(user, need="admin")
    form, made = NewPersonForm(request.POST or None), None
    if request.method == "POST" and form.is_valid():
        made = attempt(form, lambda: services.make_person(by=user, **form.cleaned_data))
    query = request.GET.get("q", "")[:150]
    context = {
        "section": "cluster",
        "crumbs": [("Cluster", reverse("cluster"))],
        "query": query,
        "pages": Pages(request, people.people(query)),
        "form": NewPersonForm() if made else form,
        "made": made,
        "refusing": isolation.closed_machines() if made else [],  # nothing new is run there with one person more
    }
    return _once(page(request, "people/index.html", context, parts={"list": "people/_list.html"}, status=201 if made else 200))


@require_safe
def detail(request: HttpRequest, pk: int) -> HttpResponse:
    return _detail(request, people.person(person(request), pk))


@require_POST
def give_password(request: HttpRequest, pk: int) -> HttpResponse:
    return _with_password(request, pk, services.give_new_password)


@require_POST
def log_out(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    found, to = people.person(user, pk), reverse("person", args=[pk])
    gone = found == user  # of their own logins this one ends, too
    said = f"{found.username} is logged out everywhere."
    return act(request, lambda: services.log_out(found, by=user), said=said, to=reverse("login") if gone else to, back=to)


@require_POST
def reopen(request: HttpRequest, pk: int) -> HttpResponse:
    return _with_password(request, pk, services.open_account)


@require_POST
def close(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    found, to = people.person(user, pk), reverse("person", args=[pk])
    form = CloseForm(request.POST)
    if not form.is_valid():
        return refused(request, form.problems(), to=to)
    said = f"The account of {found.username} is closed."
    return act(request, lambda: services.close_account(found, by=user, **form.cleaned_data), said=said, to=to)


@require_POST
def administrator(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    found, administers = people.person(user, pk), request.POST.get("administers") == "yes"
    said = f"{found.username} administers the cluster{'' if administers else ' no more'}."
    to = reverse("person", args=[pk])
    gone = found == user and not administers  # the page is not theirs any more
    return act(
        request,
        lambda: services.set_administrator(found, by=user, administers=administers),
        said=said,
        to=reverse("cluster") if gone else to,
        back=to,
    )


@require_POST
def hand_over(request: HttpRequest, pk: int) -> HttpResponse:
    user = person(request)
    found, to = people.person(user, pk), reverse("person", args=[pk])
    form = HandOverForm(request.POST)
    if not form.is_valid():
        return refused(request, form.problems(), to=to)
    successor = form.cleaned_data["username"]
    said = f"{successor} is an admin of them now."
    return act(request, lambda: services.hand_over(found, by=user, username=successor), said=said, to=to)


@require_POST
def unlink(request: HttpRequest, pk: int) -> HttpResponse:
    """From the OpenID provider: for somebody who is linked to the wrong account."""
    user = person(request)
    found, issuer, provider = people.person(user, pk), request.POST.get("issuer", "")[:500], settings.EDT_OIDC_NAME
    said = f"{found.username} cannot log in with {provider} any more."
    to = reverse("person", args=[pk])
    return act(request, lambda: services.unlink_identity(found, issuer, by=user, provider=provider), said=said, to=to)


def _with_password(request: HttpRequest, pk: int, make: Callable[..., str]) -> HttpResponse:
    user = person(request)
    found = people.person(user, pk)
    try:
        password = make(found, by=user)
    except DomainError as error:
        return refused(request, str(error), to=reverse("person", args=[pk]))
    return _detail(request, people.person(user, pk), password=password)


def _detail(request: HttpRequest, found: User, *, password: str = "") -> HttpResponse:
    context = {
        "section": "cluster",
        "crumbs": [("Cluster", reverse("cluster")), ("People", reverse("people"))],
        "account": later(lambda: people.account(found)),
        "browsers": later(lambda: sessions.browsers(found, now=timezone.now())),
        "close_form": CloseForm(),
        "hand_over_form": HandOverForm(),
        "provider": settings.EDT_OIDC_NAME,
        "issuer": settings.EDT_OIDC_ISSUER,
        "password": password,
    }
    return _once(page(request, "people/detail.html", context, status=201 if password else 200))


def _once(response: HttpResponse) -> HttpResponse:
    if response.status_code == 201:
        response["Cache-Control"] = "no-store"  # the password is in it
    return response
