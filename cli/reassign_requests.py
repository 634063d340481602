"""What `ottla reassign` and `ottla brokers` ask of a cluster to have replicas moved. All raise CommandError."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from ottla.broker.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.broker.wire.messages.alter_partition_reassignments_response import AlterPartitionReassignmentsResponse
from ottla.broker.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.broker.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from ottla.cli.client import Client
from ottla.cli.cluster_state import TOPIC_RESOURCE, ClusterNow
from ottla.cli.failures import refuse
from ottla.cli.output import Row
from ottla.cli.placing import Partition, Place
from ottla.runtime.errors import ErrorCode

AT_ONCE = 1_000
"""Partitions in one request."""
BROKER_RESOURCE = 4
SET, DELETE = 0, 1
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"


def begin(bootstrap: str, plan: Mapping[Place, Sequence[int]]) -> None:
    """Begins every move of the plan; one that is under way already to the same replicas goes on."""
    _alter(bootstrap, plan)


def give_up(bootstrap: str, places: Iterable[Place]) -> list[Place]:
    """Those that were under way."""
    ended = _alter(bootstrap, dict.fromkeys(places))
    return [place for place, error in ended.items() if not error]


def _alter(bootstrap: str, plan: Mapping[Place, Sequence[int] | None]) -> dict[Place, int]:
    ahead = iter(sorted(plan.items()))
    told: dict[Place, int] = {}
    with Client(bootstrap) as client:
        while piece := list(islice(ahead, AT_ONCE)):
            topics: dict[str, list[ReassignablePartition]] = {}
            for (topic, index), replicas in piece:
                wanted = None if replicas is None else list(replicas)
                topics.setdefault(topic, []).append(ReassignablePartition(index, wanted))
            request = AlterPartitionReassignmentsRequest(
                30_000, True, [ReassignableTopic(name, each) for name, each in topics.items()]
            )
            answer = client.call(request, AlterPartitionReassignmentsResponse)
            refuse(answer.error_code, "reassign", answer.error_message)
            for topic_told in answer.responses:
                for each in topic_told.partitions:
                    if each.error_code != ErrorCode.NO_REASSIGNMENT_IN_PROGRESS:
                        refuse(each.error_code, f"{topic_told.name}-{each.partition_index}", each.error_message)
                    told[topic_told.name, each.partition_index] = each.error_code
    return told


# --- throttles --------------------------------------------------------------------------------------------------------


class Throttle(NamedTuple):
    """Who is to be slowed down: brokers, and a topic's replicas as its settings name them."""

    brokers: tuple[int, ...]
    leaders: Mapping[str, str]
    followers: Mapping[str, str]


def throttle_for(plan: Mapping[Place, Sequence[int]], now: Mapping[Place, Partition]) -> Throttle:
    """As Kafka's tool has it: whoever may lead a partition that moves, and whoever has to fetch it."""
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    brokers: dict[int, None] = {}
    for (topic, index), replicas in sorted(plan.items()):
        before = now[topic, index].replicas
        coming = [each for each in replicas if each not in before]
        if coming:
            leaders.setdefault(topic, []).extend(f"{index}:{each}" for each in before)
            followers.setdefault(topic, []).extend(f"{index}:{each}" for each in coming)
            brokers.update(dict.fromkeys((*before, *coming)))
    return Throttle(
        tuple(sorted(brokers)),
        {topic: ",".join(each) for topic, each in leaders.items()},
        {topic: ",".join(each) for topic, each in followers.items()},
    )


def slow_down(bootstrap: str, throttle: Throttle, bytes_per_second: int) -> None:
    changes = [(BROKER_RESOURCE, str(each), dict.fromkeys(RATES, str(bytes_per_second))) for each in throttle.brokers]
    for topic, leaders in throttle.leaders.items():
        changes.append((TOPIC_RESOURCE, topic, {LEADERS: leaders, FOLLOWERS: throttle.followers[topic]}))
    _configure(bootstrap, changes)


def speed_up(bootstrap: str, topics: Iterable[str], brokers: Iterable[int]) -> None:
    """Takes throttles away, whoever set them, as Kafka's tool does."""
    nothing: dict[str, str | None] = dict.fromkeys(RATES)
    of_topic: dict[str, str | None] = {LEADERS: None, FOLLOWERS: None}
    changes = [(BROKER_RESOURCE, str(each), nothing) for each in brokers]
    _configure(bootstrap, [*changes, *((TOPIC_RESOURCE, topic, of_topic) for topic in topics)])


def _configure(bootstrap: str, changes: Iterable[tuple[int, str, Mapping[str, str | None]]]) -> None:
    resources = [
        AlterConfigsResource(
            kind,
            name,
            [AlterableConfig(key, DELETE if value is None else SET, value) for key, value in values.items()],
        )
        for kind, name, values in changes
    ]
    if not resources:
        return
    with Client(bootstrap) as client:
        answer = client.call(IncrementalAlterConfigsRequest(resources=resources), IncrementalAlterConfigsResponse)
    for each in answer.responses:
        if each.error_code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.BROKER_ID_NOT_REGISTERED):
            refuse(each.error_code, each.resource_name, each.error_message)


# --- progress ---------------------------------------------------------------------------------------------------------


def is_done(place: Place, replicas: Sequence[int], now: ClusterNow) -> bool:
    partition = now.partitions.get(place)
    return partition is None or (partition.replicas == tuple(replicas) and place not in now.moving)


def bytes_left(place: Place, now: ClusterNow) -> int:
    """What the new replicas of a move under way do not have yet."""
    partition, moving = now.partitions[place], now.moving[place]
    return sum(
        max(0, partition.size - now.sizes.get((place, each), 0))
        for each in moving.adding
        if each not in partition.in_sync
    )


def status_rows(plan: Mapping[Place, Sequence[int]] | None, now: ClusterNow) -> list[Row]:
    """A row a partition of the plan, or of all that move."""
    if plan is not None:
        places: Mapping[Place, Sequence[int]] = plan
    else:
        places = {place: now.partitions[place].replicas for place in now.moving if place in now.partitions}
    return [_status(place, replicas, now, planned=plan is not None) for place, replicas in sorted(places.items())]


def _status(place: Place, replicas: Sequence[int], now: ClusterNow, *, planned: bool) -> Row:
    partition, moving = now.partitions.get(place), now.moving.get(place)
    row: Row = {"topic": place[0], "partition": place[1], "target": list(replicas)}
    if partition is None:
        return row | {"state": "the topic is gone"}
    row |= {"replicas": list(partition.replicas), "in sync": list(partition.in_sync)}
    if moving is not None:
        gone = [each for each in moving.adding if each not in now.alive]
        state = f"waits for {','.join(map(str, gone))}" if gone else "moves"
        target = [each for each in partition.replicas if each not in moving.removing]
        if planned and list(replicas) != target:
            state = "moves elsewhere"
        left = bytes_left(place, now)
        return row | {"state": state, "target": target, "adding": list(moving.adding), "bytes to go": left}
    return row | {"state": "done" if partition.replicas == tuple(replicas) else "not begun"}
