"""The channel layer of the pages: channels_redis' pub/sub layer, and a way into it for code that has no event loop.

The layer as it comes opens a connection for every event loop, so a message from a Celery thread would cost a thread, a loop and a
connection. Writers publish over a pool of plain connections instead, in the form that the layer's own receivers read.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

import redis
from channels_redis.pubsub import RedisPubSubChannelLayer
from redis.backoff import NoBackoff
from redis.retry import Retry

PATIENCE_S = 0.5  # a server of pages that takes longer is not waited for: they catch up by themselves


class PageLayer(RedisPubSubChannelLayer):
    """`host`: the address of the one server; `prefix`: of all names there."""

    def __init__(self, *, host: str, prefix: str) -> None:
        super().__init__(hosts=[host], prefix=prefix)
        self._host, self._prefix = host, prefix
        self._client: redis.Redis | None = None
        self._lock = threading.Lock()

    def publish(self, messages: Iterable[tuple[str, Mapping[str, object]]]) -> None:
        """Send (group, message) for each, in this order and in one go. Raises what redis-py does, within about a second."""
        pipeline = self._connected().pipeline(transaction=False)
        for group, message in messages:
            pipeline.publish(f"{self._prefix}__group__{group}", self.serialize(message))
        pipeline.execute()

    def disconnect(self) -> None:
        """Close the writers' connections; the next message opens another."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _connected(self) -> redis.Redis:
        with self._lock:
            if self._client is None:
                self._client = redis.Redis.from_url(
                    self._host,
                    socket_timeout=PATIENCE_S,
                    socket_connect_timeout=PATIENCE_S,
                    retry=Retry(NoBackoff(), 1),  # a pooled connection may be one that the server has closed since
                )
            return self._client
