"""What a scrape tells of the listeners."""

from types import SimpleNamespace
from typing import Any

from ottla.broker.network.counters import ListenerCounters
from ottla.broker.network.metrics import METRICS
from ottla.broker.wire.apis import BY_NAME

CREATE_TOPICS = BY_NAME["CreateTopics"].key


def test_errors_are_told_by_name_and_those_of_newer_nodes_too() -> None:
    """The controller's answer is passed on with the number that it had."""
    counters = ListenerCounters()
    for code in (36, 9999, 9999):
        counters.count_error(CREATE_TOPICS, code)
    server: Any = SimpleNamespace(counters=[counters])
    metric = next(each for each in METRICS if each.name == "kafka_network_requestmetrics_errors_total")
    assert metric.read(server) == {
        ("CreateTopics", "TOPIC_ALREADY_EXISTS"): 1,
        ("CreateTopics", "UNKNOWN_ERROR_9999"): 2,
    }
