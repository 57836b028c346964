"""Tells Django about the app, and connects what runs in its Celery workers once the models are there."""

from celery.signals import celeryd_init, worker_ready, worker_shutting_down
from django.apps import AppConfig


class ExperimentsConfig(AppConfig):
    name = "experiments"
    verbose_name = "EDT Studio"

    def ready(self) -> None:
        from experiments.ops import beat, pulse  # these need the models, which are loaded by now

        worker_ready.connect(beat.listen, weak=False, dispatch_uid="experiments.ops.beat.listen")
        worker_shutting_down.connect(beat.leave, weak=False, dispatch_uid="experiments.ops.beat.leave")
        celeryd_init.connect(pulse.prepare, weak=False, dispatch_uid="experiments.ops.pulse.prepare")
