"""ASGI entry point: HTTP through Django, WebSockets through Channels, with a check of the Origin header on both."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from django.core.asgi import get_asgi_application

http = get_asgi_application()

from experiments.consumers import websocket_urlpatterns  # noqa: E402  (models must be loaded first)

application = ProtocolTypeRouter(
    {"http": http, "websocket": AllowedHostsOriginValidator(AuthMiddlewareStack(URLRouter(websocket_urlpatterns)))}
)
