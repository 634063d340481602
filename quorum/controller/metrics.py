"""The metrics of a controller (docs/metrics.md). All controllers count, from what is committed; one of them is active."""

from collections.abc import Callable, Generator
from typing import NamedTuple

from ottla.quorum.controller.controller import Controller
from ottla.quorum.controller.partition_counts import PartitionCounts
from ottla.quorum.metrics import AppliedMetadata
from ottla.runtime.metrics import Metric, counter, gauge


class ControllerTotals(NamedTuple):
    controller: Controller
    applied: AppliedMetadata
    counts: PartitionCounts

    @property
    def fenced(self) -> int:
        return sum(broker.fenced for broker in self.applied.loader.image.brokers.values())


def look(
    controller: Controller, counts: PartitionCounts, applied: Callable[[], AppliedMetadata]
) -> Generator[None, None, ControllerTotals]:
    """The first one counts the cluster's partitions."""
    yield from counts.built()
    return ControllerTotals(controller, applied(), counts)


METRICS: tuple[Metric[ControllerTotals], ...] = (
    gauge(
        "kafka_controller_kafkacontroller_activecontrollercount",
        "1 on the active controller. Over the cluster it should be 1.",
        lambda c: c.controller.is_active,
    ),
    counter(
        "kafka_controller_kafkacontroller_newactivecontrollerscount_total",
        "Times that this node became the active controller.",
        lambda c: c.controller.counters.activations,
    ),
    gauge(
        "kafka_controller_kafkacontroller_activebrokercount",
        "Registered brokers that are not fenced.",
        lambda c: len(c.applied.loader.image.brokers) - c.fenced,
    ),
    gauge(
        "kafka_controller_kafkacontroller_fencedbrokercount", "Registered brokers that are fenced.", lambda c: c.fenced
    ),
    gauge(
        "kafka_controller_kafkacontroller_globaltopiccount",
        "Topics of the cluster.",
        lambda c: len(c.applied.loader.image.topics_by_id),
    ),
    gauge(
        "kafka_controller_kafkacontroller_globalpartitioncount",
        "Partitions of the cluster.",
        lambda c: c.counts.partitions,
    ),
    gauge(
        "kafka_controller_kafkacontroller_offlinepartitionscount",
        "Partitions of the cluster without a leader. Should be 0.",
        lambda c: c.counts.offline,
    ),
    gauge(
        "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
        "Partitions of the cluster that their first replica does not lead.",
        lambda c: c.counts.unpreferred,
    ),
    counter(
        "kafka_controller_kafkacontroller_metadataerrorcount_total",
        "Decisions that could not be applied or appended, and changes that a part of this node failed to take in. Should be 0.",
        lambda c: c.controller.counters.errors + c.applied.loader.failures,
    ),
    counter(
        "kafka_controller_kafkacontroller_timedoutbrokerheartbeatcount_total",
        "Brokers that this controller fenced because it did not hear from them.",
        lambda c: c.controller.counters.fenced,
    ),
    gauge(
        "kafka_controller_kafkacontroller_lastappliedrecordoffset",
        "Offset of the last committed record applied here.",
        lambda c: c.applied.loader.image.offset,
    ),
    gauge(
        "kafka_controller_kafkacontroller_lastappliedrecordlagms",
        "Age of that record while newer ones are committed and not applied; 0 when there are none.",
        lambda c: c.applied.lag_ms,
    ),
    gauge(
        "ottla_controller_requests_waiting",
        "Requests that came before this controller was active, or wait for a transaction's end.",
        lambda c: c.controller.requests_waiting,
    ),
    gauge(
        "ottla_controller_responses_waiting",
        "Responses that wait for the commit of what was decided.",
        lambda c: c.controller.responses_waiting,
    ),
)
