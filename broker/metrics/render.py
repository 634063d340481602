"""What was read, as text for Prometheus or JSON for programs. For a thread: it may take milliseconds."""

from collections.abc import Iterator

import msgspec

from ottla.runtime.metrics import Family, Kind

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
JSON_TYPE = "application/json"


def render_text(families: list[Family]) -> bytes:
    """Prometheus' text format 0.0.4, with the process' own metrics (CPU, memory, descriptors)."""
    # A tenth of a second of imports that only a node with a listener pays for, at its first scrape.
    from prometheus_client.exposition import generate_latest
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.metrics_core import Metric as PrometheusMetric
    from prometheus_client.registry import Collector

    class Collected(Collector):
        def collect(self) -> list[PrometheusMetric]:
            return [converted(family) for family in families + process_families()]

    def converted(family: Family) -> PrometheusMetric:
        if family.kind is Kind.SUMMARY:
            return summary(family)
        of_kind = CounterMetricFamily if family.kind is Kind.COUNTER else GaugeMetricFamily
        metric = of_kind(family.name, family.help, labels=family.labels)
        for labels, value in family.samples:
            metric.add_metric(labels, value)
        return metric

    def summary(family: Family) -> PrometheusMetric:
        metric = PrometheusMetric(family.name, family.help, "summary")
        for labels, value in family.samples:
            metric.add_sample(family.name, dict(zip(family.labels, labels, strict=True)), value)
        for labels, value in family.counts:
            metric.add_sample(f"{family.name}_count", dict(zip(family.labels, labels, strict=False)), value)
        return metric

    return generate_latest(Collected())


def render_json(families: list[Family]) -> bytes:
    """A list of metrics: name, kind, help, samples with labels and value."""
    return msgspec.json.encode(
        [
            {
                "name": family.name,
                "kind": family.kind,
                "help": family.help,
                "samples": [
                    {"labels": dict(zip(family.labels, labels, strict=True)), "value": value}
                    for labels, value in family.samples
                ],
            }
            for family in _with_counts(families + process_families())
        ]
    )


def _with_counts(families: list[Family]) -> Iterator[Family]:
    """A summary's counts as a metric of its own behind it."""
    for family in families:
        yield family
        if family.kind is Kind.SUMMARY:
            yield Family(f"{family.name}_count", Kind.COUNTER, family.help, family.labels[:-1], [*family.counts])


def process_families() -> list[Family]:
    """What the library knows of this process; nothing where there is no /proc."""
    from prometheus_client.process_collector import ProcessCollector

    return [
        Family(
            metric.name + ("_total" if metric.type == "counter" else ""),
            Kind(metric.type),
            metric.documentation.rstrip(".") + ".",
            (),
            [((), sample.value) for sample in metric.samples],
        )
        for metric in ProcessCollector(registry=None).collect()
    ]
