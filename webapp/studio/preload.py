"""What the studio's own process imports for the children that it forks, and what they run. Importing opens nothing and starts no thread.

Each function closes what this process has open to others, which a child must not share, and returns what runs in the child. What has been
imported stays: a child that takes the place of one that has died runs the same code, also when another release lies on the disk by then.
"""

from __future__ import annotations

from importlib import import_module

from django.conf import settings
from django.db import connections
from django.template import engines
from django.utils.log import configure_logging

from webapp.studio.forked import Main

WORKER = (
    *("experiments.tasks", "celery.__main__", "celery.bin.celery", "celery.bin.worker", "celery.apps.worker", "celery.concurrency.thread"),
    *("celery.app.amqp", "celery.app.control", "celery.app.events", "celery.app.log", "celery.events.receiver", "celery.worker.strategy"),
    *("celery.worker.autoscale", "celery.worker.components", "celery.worker.consumer", "celery.worker.consumer.delayed_delivery"),
    *("celery.contrib.django.task", "kombu.pidbox", "kombu.transport.redis"),
)


def web() -> Main:
    """The web process with every page, what templates use, and the API."""
    import_module("webapp.asgi")
    import_module("webapp.urls")
    engines.all()
    server = import_module("webapp.studio.web")
    server.config().load()  # the protocols, which it has by their names
    return _with_logs(server.main)


def worker() -> Main:
    """Celery's command."""
    for name in WORKER:
        import_module(name)
    return _with_logs(import_module("celery.__main__").main)


def _with_logs(main: Main) -> Main:
    connections.close_all()
    import_module("experiments.live.notify").disconnect()

    def run() -> object:
        configure_logging(settings.LOGGING_CONFIG, settings.LOGGING)  # anew: the handlers that are there write to the studio's terminal
        return main()

    return run
