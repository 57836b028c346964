"""Tells Django about the app, and connects what runs in its Celery workers once the models are there."""

from celery.signals import celeryd_init, worker_ready, worker_shutting_down
from django.apps import AppConfig


class ExperimentsConfig(AppConfig):
    name = "experiments"
    verbose_name = "EDT Studio"

    def ready(self) -> None:
        from experiments.cluster import agent  # these need the models, which are loaded by now
        from experiments.ops import beat, pulse

        for part in (agent, beat):
            worker_ready.connect(part.listen, weak=False, dispatch_uid=f"{part.__name__}.listen")
            worker_shutting_down.connect(part.leave, weak=False, dispatch_uid=f"{part.__name__}.leave")
        celeryd_init.connect(pulse.prepare, weak=False, dispatch_uid="experiments.ops.pulse.prepare")
