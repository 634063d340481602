"""The registry: declarations in, families out, within bounds."""

import logging
from collections.abc import Generator
from types import SimpleNamespace

import pytest

from ottla.runtime.metrics import (
    SERIES_MAX,
    Family,
    Kind,
    Labels,
    Metric,
    Reading,
    Registry,
    Spread,
    at_once,
    counter,
    gather_now,
    gauge,
    summary,
)

Numbers = SimpleNamespace


def read(registry: Registry, name: str) -> Family:
    return next(family for family in gather_now(registry) if family.name == name)


def one(reading: Reading, *labels: str) -> Registry:
    registry = Registry()
    registry.add([gauge("a", "Help.", lambda _: reading, *labels)], at_once(lambda: None))
    return registry


def test_a_metric_is_read_when_it_is_asked_for_and_not_before() -> None:
    source = Numbers(count=1)
    registry = Registry()
    registry.add([counter("a_total", "What it counts.", lambda s: s.count)], at_once(lambda: source))
    source.count = 7
    assert read(registry, "a_total") == ("a_total", Kind.COUNTER, "What it counts.", (), [((), 7)], [])


def test_one_look_serves_all_metrics_of_a_group() -> None:
    looks: list[None] = []

    def look() -> list[None]:
        looks.append(None)
        return looks

    registry = Registry()
    registry.add([gauge("a", "A.", len), gauge("b", "B.", len)], at_once(look))
    gather_now(registry)
    assert len(looks) == 1


def test_a_look_may_give_up_its_turn() -> None:
    def look() -> Generator[None, None, int]:
        yield
        yield
        return 5

    registry = Registry()
    registry.add([gauge("a", "A.", lambda number: number)], look)
    assert len(list(registry.gather())) == 2
    assert read(registry, "a").samples == [((), 5)]


def test_a_reading_by_labels_gives_a_sample_each() -> None:
    family = read(one({("x", "1"): 2, ("y", "1"): 3}, "topic", "partition"), "a")
    assert family.labels == ("topic", "partition")
    assert family.samples == [(("x", "1"), 2), (("y", "1"), 3)]


def test_a_summary_gives_a_sample_for_each_percentile_and_a_count() -> None:
    registry = Registry()
    spreads: dict[Labels, float | Spread] = {
        ("Fetch",): Spread(5, {"0.50": 1.5, "0.99": 7.0}),
        ("Produce",): Spread(0, {}),
    }
    registry.add([summary("a", "A.", lambda _: spreads, "request")], at_once(lambda: None))
    family = read(registry, "a")
    assert (family.kind, family.labels) == (Kind.SUMMARY, ("request", "quantile"))
    assert family.samples == [(("Fetch", "0.50"), 1.5), (("Fetch", "0.99"), 7.0)]
    assert family.counts == [(("Fetch",), 5), (("Produce",), 0)]


def test_nothing_to_tell_is_no_sample() -> None:
    assert read(one(None), "a").samples == []


def test_series_over_the_bound_are_left_out_and_counted() -> None:
    registry = one({(str(number),): number for number in range(SERIES_MAX + 3)}, "topic")
    assert len(read(registry, "a").samples) == SERIES_MAX
    assert read(registry, "ottla_metrics_series_dropped").samples == [((), 3)]


def fails(_: object) -> float:
    raise ValueError("no reading")


def never() -> Generator[None, None, object]:
    yield
    raise ValueError("no look")


@pytest.mark.parametrize(
    ("metrics", "look"),
    [([gauge("bad", "Bad.", fails)], at_once(lambda: None)), ([gauge("bad", "Bad.", fails)], never)],
)
def test_an_area_that_fails_costs_nobody_else(
    metrics: list[Metric[object]], look: object, caplog: pytest.LogCaptureFixture
) -> None:
    registry = Registry()
    registry.add(metrics, look)  # type: ignore[arg-type]  # either is a look
    registry.add([gauge("good", "Good.", lambda _: 1)], at_once(lambda: None))
    with caplog.at_level(logging.ERROR):
        assert read(registry, "good").samples == [((), 1)]
    assert read(registry, "ottla_metrics_failures_total").samples == [((), 2)]
    for _ in range(6):
        gather_now(registry)
    assert [record.message.split("(")[1] for record in caplog.records] == [
        "failure 1)",
        "failure 2)",
        "failure 4)",
        "failure 8)",
    ]
