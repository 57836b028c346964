"""Lets only pages of this studio open a WebSocket. A browser sends the cookie for pages of any site, so the Origin header decides."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from channels.security.websocket import WebsocketDenier
from django.conf import settings
from django.http.request import split_domain_port, validate_host
from django.utils.http import is_same_domain


class OwnPagesOnly:
    """ASGI: the host must be one of ours, and the origin that host with its port and scheme, or one that is trusted, as Django has it for
    forms."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self.app, self.denier = app, WebsocketDenier()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        secure = scope.get("scheme", "ws") in ("wss", "https")
        ours = is_own_origin(headers.get(b"origin", ""), host=headers.get(b"host", ""), secure=secure)
        await (self.app if ours else self.denier)(scope, receive, send)


def is_own_origin(origin: str, *, host: str, secure: bool) -> bool:
    domain, _ = split_domain_port(host)
    if not domain or not validate_host(domain, settings.ALLOWED_HOSTS):
        return False
    return origin == f"{'https' if secure else 'http'}://{host}" or _is_trusted(origin)


def _is_trusted(origin: str) -> bool:
    """EDT_TRUSTED_ORIGINS: exactly, or any below "https://*.example.org"."""
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    said = urlsplit(origin)
    patterns = [urlsplit(each) for each in settings.CSRF_TRUSTED_ORIGINS if "*" in each]
    return any(said.scheme == each.scheme and is_same_domain(said.netloc, each.netloc.lstrip("*")) for each in patterns)
