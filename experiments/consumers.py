"""WebSockets: push only, access checked on connect."""

websocket_urlpatterns: list[object] = []
