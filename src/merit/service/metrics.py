"""Figures for Prometheus: requests by route, how long they took, jobs by state, and whether reloads went well.

Routes are named by their template, so that no user id becomes a label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """In a registry of its own, so that two services in a process count apart; `jobs` is asked at each reading."""

    def __init__(self, jobs: Callable[[], dict[str, int]]) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._registry.register(_States(jobs))
        self.requests = Counter(
            "merit_requests", "Requests answered", ["method", "route", "status"], registry=self._registry
        )
        self.seconds = Histogram(
            "merit_request_seconds", "Until the end of the answer", ["route"], buckets=SECONDS, registry=self._registry
        )
        self.reloads = Counter("merit_reloads", "Reloads of the model", ["result"], registry=self._registry)

    def text(self) -> bytes:
        """In Prometheus' text format, with CPU, memory and open files of the process."""
        return generate_latest(self._registry)


class _States:
    def __init__(self, jobs: Callable[[], dict[str, int]]) -> None:
        self._jobs = jobs

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily("merit_jobs", "Jobs by state", labels=["state"])
        for state, count in self._jobs().items():
            family.add_metric([state], count)
        yield family
