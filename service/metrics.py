"""What the service counts, in Prometheus's text format at `GET /metrics`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from service.cache import Fault

_REQUEST_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60)
_COMPILE_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60)


class Metrics:
    """One registry for each application, so that several may live in one process."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "schedc_requests", "Requests answered.", ["endpoint", "method", "status"], registry=registry
        )
        self.request_seconds = Histogram(
            "schedc_request_seconds", "Time to answer.", ["endpoint"], buckets=_REQUEST_BUCKETS, registry=registry
        )
        self.cache_lookups = Counter(
            "schedc_cache_lookups", "Looks for an artifact, by where it was found.", ["found"], registry=registry
        )
        self.cache_faults = Counter(
            "schedc_cache_faults", "Bad entries dropped, and failed reads and writes.", ["kind"], registry=registry
        )
        self.compiles = Counter("schedc_compiles", "Compiles, by outcome.", ["outcome"], registry=registry)
        self.compile_seconds = Histogram(
            "schedc_compile_seconds",
            "Time of a compile, waiting included.",
            buckets=_COMPILE_BUCKETS,
            registry=registry,
        )
        self.worker_deaths = Counter(
            "schedc_worker_deaths", "Worker processes lost to a task.", ["pool", "cause"], registry=registry
        )
        self.refused = Counter("schedc_queue_refused", "Requests refused, the queue being full.", registry=registry)

    def cache_fault(self, kind: Fault) -> None:
        self.cache_faults.labels(kind).inc()

    def watch(self, gauges: Callable[[], Iterable[Reading]], evicted: Callable[[], int]) -> None:
        """Read these values whenever the metrics are asked for."""
        self.registry.register(_Readings(gauges, evicted))


#: A gauge's name, help text, label values by name, and value.
Reading = tuple[str, str, dict[str, str], float]


class _Readings(Collector):
    def __init__(self, gauges: Callable[[], Iterable[Reading]], evicted: Callable[[], int]) -> None:
        self._gauges, self._evicted = gauges, evicted

    def collect(self) -> Iterator[Metric]:
        families: dict[str, GaugeMetricFamily] = {}
        for name, text, labels, value in self._gauges():
            family = families.setdefault(name, GaugeMetricFamily(name, text, labels=list(labels)))
            family.add_metric(list(labels.values()), value)
        yield from families.values()
        yield CounterMetricFamily("schedc_cache_evicted", "Entries evicted.", value=self._evicted())
