"""Nobody gets further than the login page without having logged in; and whoever sent a form is brought back to it, not to its address.
Whose request it is decides whose turn it is where work on people's files waits."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from django.contrib import messages
from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme

from experiments.accounts import sessions
from experiments.boxed import turns


class LoggedIn(LoginRequiredMiddleware):
    """After logging in anew, a page is opened. What a form does has an address too, but nothing to see there: so the page it stood on."""

    def process_view(self, request: HttpRequest, view_func: Any, view_args: Any, view_kwargs: Any) -> Any:
        turns.asks.set(request.user.pk or turns.NOBODY)
        if request.user.is_authenticated:
            sessions.note_seen(request.session, now=timezone.now())
        return super().process_view(request, view_func, view_args, view_kwargs)

    def handle_no_permission(self, request: HttpRequest, view_func: Any) -> HttpResponseRedirect:
        if request.method in ("GET", "HEAD"):
            return super().handle_no_permission(request, view_func)
        came_from = request.headers.get("Referer", "")
        ours = url_has_allowed_host_and_scheme(came_from, allowed_hosts={request.get_host()}, require_https=request.is_secure())
        # A script's question has no page to show it on; and the session that keeps it could take the place of that of a login meanwhile.
        asked_by_script = request.headers.get("Accept") == "application/json"
        if request.path != reverse("logout") and not asked_by_script:
            messages.warning(request, "You had been logged out, so what you sent was not done: send it again.")
        page = urlsplit(came_from)
        back = f"{page.path}?{page.query}" if page.query else page.path
        return redirect_to_login(back if ours and back else "/", self.get_login_url(view_func))
