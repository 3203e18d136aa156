"""Readings as the text that Prometheus scrapes. The one file that knows prometheus-client, which is an optional extra."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import exposition
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from ..engine import metrics
from ..engine.distributions import Sum

MEDIA: Final = "text/plain; version=0.0.4; charset=utf-8"
_FAMILIES: Final = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily, "histogram": HistogramMetricFamily}


class _Told(Collector):
    """Readings that have been made, as families of metrics; one of which there is no value yet is there by its name alone."""

    def __init__(self, readings: Iterable[metrics.Reading]) -> None:
        self._readings: dict[str, list[metrics.Reading]] = defaultdict(list)
        for reading in readings:
            self._readings[reading.name].append(reading)

    def collect(self) -> Iterator[Metric]:
        """In the order of the table."""
        for metric in metrics.METRICS:
            family = _FAMILIES[metric.kind](metric.full_name, metric.line, labels=metric.labels)
            for reading in self._readings[metric.name]:
                _add(family, reading)
            yield family


def text_of(readings: Iterable[metrics.Reading]) -> bytes:
    """The page, whatever the scraper asks for: every one reads this format."""
    return exposition.generate_latest(_Told(readings))


def _add(family: Metric, reading: metrics.Reading) -> None:
    if isinstance(family, HistogramMetricFamily) and isinstance(reading.value, Sum):
        buckets = [(_bound(bound), count) for bound, count in reading.value.cumulative()]
        family.add_metric(reading.labels, buckets, reading.value.total_ms / 1000)
    elif isinstance(family, GaugeMetricFamily | CounterMetricFamily) and not isinstance(reading.value, Sum):
        family.add_metric(reading.labels, reading.value)


def _bound(seconds: float) -> str:
    """A bucket's upper bound as Prometheus writes it."""
    return "+Inf" if seconds == float("inf") else repr(seconds)
