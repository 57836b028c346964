"""Logging in and out with a password, the profile: password, single sign-on and theme."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, cast

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.forms import AuthenticationForm, PasswordChangeForm
from django.contrib.auth.views import LoginView, LogoutView
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.views.decorators.http import require_http_methods, require_POST

from experiments.accounts import logins, oidc, sessions
from experiments.accounts.addresses import network_of
from experiments.forms.common import ThemeForm
from experiments.forms.wording import Form
from experiments.live import notify
from experiments.models import Identity, Project, User
from experiments.services.profile import choose_shortcuts, choose_theme, log_out_browser, log_out_everywhere
from experiments.views.responses import act, back, done, page, person

SHORTCUTS = (
    (
        "Go to",
        (
            (("g", "p"), "Projects"),
            (("g", "c"), "Cluster"),
            (("g", "u"), "Usage"),
            (("g", "n"), "Notifications"),
            (("g", "s"), "Profile"),
            (("u",), "Up: the last of the breadcrumbs"),
        ),
    ),
    ("Find", ((("/",), "Into the search of this page, else to the search over everything"), (("?",), "This page"))),
    (
        "On a page",
        (
            (("j",), "Next row of a list"),
            (("k",), "Row before"),
            (("Enter",), "Open it"),
            (("[",), "Tab before"),
            (("]",), "Next tab"),
            (("n",), "New: project, experiment"),
            (("Esc",), "Close a menu or a panel"),
        ),
    ),
)


@contextlib.contextmanager
def _checking(attempt: logins.Attempt) -> Iterator[None]:
    """Around a form's check of a password; that none is looked at is an error of the form (code "held_up")."""
    try:
        with logins.checking(attempt, now=timezone.now(), wrong=ValidationError):
            yield
    except logins.HeldUp as held_up:
        raise ValidationError(str(held_up), code="held_up") from None


class LogInForm(AuthenticationForm):
    error_messages = {
        "invalid_login": "The username or the password is wrong. Both are case-sensitive.",
        "inactive": "This account is closed.",
    }

    def clean(self) -> dict[str, Any]:
        name = self.cleaned_data.get("username")
        if not name or not self.cleaned_data.get("password"):
            return self.cleaned_data
        request = cast(HttpRequest, self.request)
        browser = logins.known_browser(request.COOKIES.get(logins.COOKIE, ""), name)
        with _checking(logins.Attempt(name, _address(request), browser)):
            return super().clean()


class OwnPasswordForm(PasswordChangeForm):
    """The old password is guessed at no faster than at the login."""

    def clean_old_password(self) -> str:
        with _checking(logins.Attempt(self.user.get_username(), "", browser="profile")):
            return str(super().clean_old_password())


class LinkForm(Form):
    """The password of the account that is to be linked to somebody at the provider: whoever can link it has it from then on."""

    password = forms.CharField(label="Your password", strip=False, widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}))

    def __init__(self, user: User, data: Any = None) -> None:
        super().__init__(data)
        self._user = user

    def clean_password(self) -> str:
        password = str(self.cleaned_data["password"])
        with _checking(logins.Attempt(self._user.get_username(), "", browser="profile")):
            if not self._user.check_password(password):
                raise ValidationError("It is wrong.")
        return password


def _address(request: HttpRequest) -> str:
    return network_of(request.META.get("REMOTE_ADDR", ""))[:64]


class LogIn(LoginView):
    template_name = "accounts/login.html"
    authentication_form = LogInForm
    redirect_authenticated_user = True

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        provider = settings.EDT_OIDC_NAME if oidc.is_on() else ""
        return super().get_context_data(provider=provider, next_query=urlencode({"next": self.get_redirect_url()}), **kwargs)

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        self.request.session.set_expiry(None)  # one by single sign-on may have begun in it, which ends soon
        response = super().form_valid(form)
        sessions.begin(self.request, now=timezone.now())
        name, secure = form.get_user().get_username(), settings.SESSION_COOKIE_SECURE
        if not logins.known_browser(self.request.COOKIES.get(logins.COOKIE, ""), name):
            known = logins.cookie_for(name)
            response.set_cookie(logins.COOKIE, known, max_age=logins.COOKIE_S, httponly=True, samesite="Lax", secure=secure)
        return response

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        """Who has said a name goes on at the password, which no page sends back."""
        if form["username"].value():
            del form.fields["username"].widget.attrs["autofocus"]
            form.fields["password"].widget.attrs["autofocus"] = True
        response = super().form_invalid(form)
        if form.has_error("__all__", code="held_up"):
            response.status_code = 429
        return response


log_in = LogIn.as_view()
log_out = LogoutView.as_view(http_method_names=["post", "options"])


@require_http_methods(["GET", "HEAD", "POST"])
def profile(request: HttpRequest) -> HttpResponse:
    user = person(request)
    form = OwnPasswordForm(user, request.POST or None)
    form.fields["old_password"].widget.attrs.pop("autofocus", None)
    if request.method == "POST" and form.is_valid():
        form.save()
        update_session_auth_hash(request, user)  # this browser stays logged in, all others are logged out
        notify.access_changed(user.pk)
        messages.success(request, "Your password is changed. Other browsers were logged out.")
        return redirect("profile")
    identities = list(Identity.objects.filter(person=user).order_by("linked_at"))
    context = {
        "form": form,
        "projects": user.memberships.filter(project__state=Project.State.HERE).select_related("project"),
        "provider": settings.EDT_OIDC_NAME if oidc.is_on() else "",
        "issuer": settings.EDT_OIDC_ISSUER,
        "identities": identities,
        "linked": any(each.issuer == settings.EDT_OIDC_ISSUER for each in identities),
        "link_form": LinkForm(user),
        "browsers": sessions.browsers(user, this=request.session.session_key or "", now=timezone.now()),
    }
    return page(request, "accounts/profile.html", context)


@require_POST
def log_out_elsewhere(request: HttpRequest) -> HttpResponse:
    user = person(request)
    log_out_everywhere(user)
    update_session_auth_hash(request, user)
    return done(request, "All other browsers are logged out.", to=reverse("profile"))


@require_POST
def log_out_one(request: HttpRequest, name: str) -> HttpResponse:
    user = person(request)
    return act(request, lambda: log_out_browser(user, name), said="That browser is logged out.", to=reverse("profile"))


@require_http_methods(["GET", "HEAD", "POST"])
def shortcuts(request: HttpRequest) -> HttpResponse:
    """What single keys do (static/js/shortcuts.js), and the switch for them."""
    user = person(request)
    if request.method == "POST":
        choose_shortcuts(user, on=request.POST.get("shortcuts") == "on")
        return done(request, "Single-key shortcuts are on." if user.shortcuts else "Single-key shortcuts are off.", to=request.path)
    return page(request, "shortcuts.html", {"groups": SHORTCUTS})


@require_POST
def theme(request: HttpRequest) -> HttpResponse:
    user = person(request)
    form = ThemeForm(request.POST)
    to = back(request, "/")
    if form.is_valid():
        choose_theme(user, theme=form.cleaned_data["theme"])
    return redirect(to) if request.headers.get("HX-Request") != "true" else done(request, "Theme set.", to=to)
