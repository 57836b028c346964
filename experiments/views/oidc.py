"""Logging in by single sign-on (OpenID Connect), and linking one's account to it.

Begun by a link, not by a form: browsers hold what a form leads to, redirects too, to the pages' own policy (form-action), and nobody knows
over which addresses a provider leads.
"""

from __future__ import annotations

import logging
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login
from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme, urlencode
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from experiments import services
from experiments.accounts import identities, oidc, sessions
from experiments.errors import DomainError
from experiments.views.accounts import LinkForm
from experiments.views.responses import act, page, person, refused

log = logging.getLogger(__name__)
BACKEND = "django.contrib.auth.backends.ModelBackend"  # which a session asks for its person
OTHER_BROWSER = "This log-in was begun in another browser, or more than an hour ago: begin it anew."


@require_safe
@never_cache
@login_not_required
def begin(request: HttpRequest) -> HttpResponse:
    _must_be_on()
    to = _ours(request, request.GET.get("next", ""))
    if request.user.is_authenticated:
        return redirect(to)
    try:
        return redirect(oidc.begin(request, oidc.Purpose(to), callback=_callback(request)))
    except oidc.Failed as failed:
        return _at_login(request, str(failed), to=to)


@require_safe
@never_cache
@login_not_required
def callback(request: HttpRequest) -> HttpResponse:
    """Where the provider sends the browser back to. It ends on a page in any case: its own address is good for once."""
    _must_be_on()
    purpose = oidc.purpose_of(request)
    if purpose is None:
        return _at_login(request, OTHER_BROWSER, to="/")
    try:
        claims = oidc.finish(request)
        return _link(request, claims, purpose) if purpose.links is not None else _log_in(request, claims, purpose)
    except DomainError as error:
        log.warning("no log-in by %s: %s", settings.EDT_OIDC_NAME, error)
        if purpose.links is not None:
            return refused(request, str(error), to=purpose.to)
        return _at_login(request, str(error), to=purpose.to)


@require_POST
@never_cache
def link(request: HttpRequest) -> HttpResponse:
    """Having given the password of the account, which is as good as a new one for it. It goes on by itself, from a page of its own."""
    _must_be_on()
    user, to = person(request), reverse("profile")
    form = LinkForm(user, request.POST)
    if not form.is_valid():
        return refused(request, form.problems(), to=to)
    try:
        address = oidc.begin(request, oidc.Purpose(to, links=user.pk), callback=_callback(request))
    except oidc.Failed as failed:
        return refused(request, str(failed), to=to)
    response = page(request, "accounts/going_on.html", {"address": address, "provider": settings.EDT_OIDC_NAME})
    response["Refresh"] = f"0; url={address}"
    return response


@require_POST
def unlink(request: HttpRequest) -> HttpResponse:
    user, provider = person(request), settings.EDT_OIDC_NAME
    issuer = request.POST.get("issuer", "")[:500]
    said = f"Your account is not linked to {provider} any more."
    return act(request, lambda: services.unlink_identity(user, issuer, by=user, provider=provider), said=said, to=reverse("profile"))


def _log_in(request: HttpRequest, claims: identities.Claims, purpose: oidc.Purpose) -> HttpResponse:
    administers = identities.administers(claims, settings.EDT_OIDC_ADMINS)
    allowed = administers is True or identities.is_allowed(claims, settings.EDT_OIDC_ALLOW)
    user = services.log_in_by(claims, allowed=allowed, administers=administers, provider=settings.EDT_OIDC_NAME, now=timezone.now())
    request.session.set_expiry(None)  # as long as any log-in, not as one that has only begun
    login(request, user, backend=BACKEND)
    sessions.begin(request, now=timezone.now())
    return redirect(purpose.to)


def _link(request: HttpRequest, claims: identities.Claims, purpose: oidc.Purpose) -> HttpResponse:
    user: Any = request.user
    if user.pk != purpose.links:
        return _at_login(request, OTHER_BROWSER, to=purpose.to)
    services.link_identity(user, claims, provider=settings.EDT_OIDC_NAME, now=timezone.now())
    messages.success(request, f"Your account is linked: from now on you can log in with {settings.EDT_OIDC_NAME}.")
    return redirect(purpose.to)


def _at_login(request: HttpRequest, said: str, *, to: str) -> HttpResponse:
    messages.error(request, said)
    return redirect(f"{reverse('login')}?{urlencode({'next': to})}")


def _callback(request: HttpRequest) -> str:
    return request.build_absolute_uri(reverse("oidc_callback"))


def _ours(request: HttpRequest, to: str) -> str:
    safe = url_has_allowed_host_and_scheme(to, allowed_hosts={request.get_host()}, require_https=request.is_secure())
    return to if to.startswith("/") and safe else reverse("projects")


def _must_be_on() -> None:
    if not oidc.is_on():
        raise Http404("This studio has no single sign-on.")
