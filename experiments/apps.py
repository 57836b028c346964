"""Tells Django about the app, and connects the node agent's signals once the models are there."""

from django.apps import AppConfig


class ExperimentsConfig(AppConfig):
    name = "experiments"
    verbose_name = "EDT Studio"

    def ready(self) -> None:
        from experiments import agent  # needs the models, which are loaded by now

        agent.connect()
