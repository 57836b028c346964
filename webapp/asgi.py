"""ASGI entry point: HTTP through Django behind limits, WebSockets through Channels, with a check of the Origin header on both
where a browser's cookie says who asks."""

import os
from typing import cast

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")

from channels.auth import AuthMiddlewareStack
from channels.db import database_sync_to_async
from channels.routing import ProtocolTypeRouter, URLRouter
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import parse_cookie
from django.urls import Resolver404, resolve
from django.utils import timezone

django = get_asgi_application()

from experiments.accounts import passwords  # noqa: E402  (models must be loaded first)
from experiments.cluster import gateway  # noqa: E402
from experiments.live.consumers import websocket_urlpatterns  # noqa: E402
from experiments.views import uploads  # noqa: E402
from experiments.wmla import callers  # noqa: E402
from training_runtime.node.messages import STREAM  # noqa: E402
from webapp.origin import OwnPagesOnly  # noqa: E402
from webapp.request_limits import App, Limits, Receive, RequestLimits, Scope, Send  # noqa: E402
from webapp.socket_tokens import ByToken  # noqa: E402

FORM_BYTES = 1 << 20  # what a form says beside its file
LARGE_BODIES = {
    "upload_piece": uploads.MOST_PIECE_BYTES,
    "begin_upload": uploads.MOST_LIST_BYTES,
    "finish_upload": uploads.MOST_LIST_BYTES,
    # Without script, files come with the form.
    "new_definition": settings.EDT_MAX_UPLOAD_BYTES + FORM_BYTES,
    "new_version": settings.EDT_MAX_UPLOAD_BYTES + FORM_BYTES,
    "new_experiment": settings.EDT_MAX_UPLOAD_BYTES + FORM_BYTES,
    "wmla_model_code": settings.EDT_MAX_UPLOAD_BYTES,
    "mlflow_artifact": settings.EDT_MAX_UPLOAD_BYTES,
    "wmla_execs": settings.EDT_MAX_UPLOAD_BYTES + FORM_BYTES,
    "new_data": settings.EDT_MAX_DATA_BYTES + FORM_BYTES,
    "import_project": settings.EDT_MAX_PROJECT_BYTES + FORM_BYTES,
    "import_piece": uploads.MOST_PIECE_BYTES,
    "api_import_piece": uploads.MOST_PIECE_BYTES,
    "api_upload_piece": uploads.MOST_PIECE_BYTES,
    "api_begin_upload": uploads.MOST_LIST_BYTES,
    "api_begin_data_version": uploads.MOST_LIST_BYTES,
    "api_finish_upload": uploads.MOST_LIST_BYTES,
    "api_send_file": settings.EDT_MAX_UPLOAD_BYTES,
    "api_new_definition": settings.EDT_MAX_UPLOAD_BYTES + FORM_BYTES,
    "api_new_version": settings.EDT_MAX_UPLOAD_BYTES + FORM_BYTES,
}


def large_body(path: str) -> int | None:
    """Largest body in bytes that this address takes from people who are logged in; None for the usual limit."""
    try:
        return LARGE_BODIES.get(resolve(path).url_name or "")
    except Resolver404:
        return None


@database_sync_to_async
def person_of(scope: Scope) -> int | None:
    headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
    said = {"authorization": headers.get(b"authorization", ""), "token": headers.get(b"x-auth-token", "")}
    if any(said.values()):  # a script
        try:
            return callers.who(**said, address=(scope.get("client") or ("", 0))[0], now=timezone.now()).pk
        except callers.Refused:
            return None
    cookies = parse_cookie(headers.get(b"cookie", ""))
    key = cookies.get(settings.SESSION_COOKIE_NAME, "")
    user = passwords.logged_in([key]).get(key)
    return user.pk if user else None


limits = Limits(small_bytes=settings.DATA_UPLOAD_MAX_MEMORY_SIZE, large=large_body)
http = RequestLimits(cast(App, django), limits=limits, person=person_of)
sockets = URLRouter(websocket_urlpatterns)
pages = ByToken(sockets, others=OwnPagesOnly(AuthMiddlewareStack(sockets)))
nodes = URLRouter(gateway.websocket_urlpatterns)  # it looks at the token of a machine itself; no page has one


async def websocket(scope: Scope, receive: Receive, send: Send) -> None:
    await (nodes if scope["path"] == STREAM else pages)(scope, receive, send)


application = ProtocolTypeRouter({"http": http, "websocket": websocket})
