"""What `/metrics` says, in Prometheus' text format. Names follow its conventions: base units, a label for what is told apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from experiments.selectors.measures import Measures

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


def exposition(measures: Measures) -> bytes:
    registry = CollectorRegistry()
    registry.register(_Read(measures))
    return generate_latest(registry)


class _Read(Collector):
    """Nothing is counted in this process: all is read of the database, so that it does not matter which web process is asked."""

    def __init__(self, measures: Measures) -> None:
        self._measures = measures

    def collect(self) -> Iterator[Metric]:
        said = self._measures
        yield from self._of_nodes()
        yield _gauge("edt_runs", "Runs, by state.", ["state"], {(state,): count for state, count in said.runs.items()})
        yield _gauge(
            "edt_oldest_queued_run_seconds", "How long the oldest queued run that is not paused has waited.", [], {(): said.queued_s}
        )
        yield _gauge("edt_deliveries_due", "E-mails and webhooks that are due and not sent.", [], {(): said.deliveries})
        yield _gauge("edt_oldest_delivery_due_seconds", "How long the oldest of them has been due.", [], {(): said.delivery_s})
        yield _gauge("edt_home_free_bytes", "Room on the disk of EDT_HOME.", [], {(): said.disk_free})
        yield _gauge("edt_home_size_bytes", "Size of that disk.", [], {(): said.disk_size})
        yield _gauge("edt_clock_up", "1 while a control process sends what is due, plans among it.", [], {(): said.clock})

    def _of_nodes(self) -> Iterator[Metric]:
        said, node = self._measures, ["node"]
        yield _gauge("edt_node_up", "1 where the host was heard of lately.", node, {(each.name,): each.up for each in said.nodes})
        yield _gauge("edt_node_draining", "1 where nothing new is begun.", node, {(each.name,): each.draining for each in said.nodes})
        yield _gauge("edt_node_disk_full", "1 where runs cannot write.", node, {(each.name,): each.full for each in said.nodes})
        yield _gauge("edt_slots", "Slots: held, free, draining or out_of_service.", ["node", "device", "state"], said.slots)
        yield _gauge("edt_slots_busy_ratio", "Share of time that held slots are at work, where known.", ["node", "device"], said.busy)


def _gauge(name: str, about: str, labels: list[str], values: Mapping[Any, float]) -> GaugeMetricFamily:
    """`values`: by what the labels say, in their order."""
    family = GaugeMetricFamily(name, about, labels=labels)
    for of, value in values.items():
        family.add_metric(list(of), float(value))
    return family
