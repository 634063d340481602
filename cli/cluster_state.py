"""What a cluster is like now, for plans: its brokers, where replicas lie, how large they are. All raise CommandError."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.broker.wire.messages.describe_cluster_request import DescribeClusterRequest
from ottla.broker.wire.messages.describe_cluster_response import DescribeClusterResponse
from ottla.broker.wire.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from ottla.broker.wire.messages.describe_configs_response import DescribeConfigsResponse
from ottla.broker.wire.messages.describe_log_dirs_request import DescribeLogDirsRequest
from ottla.broker.wire.messages.describe_log_dirs_response import DescribeLogDirsResponse, DescribeLogDirsResult
from ottla.broker.wire.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from ottla.broker.wire.messages.list_partition_reassignments_response import ListPartitionReassignmentsResponse
from ottla.broker.wire.messages.metadata_request import MetadataRequest
from ottla.broker.wire.messages.metadata_response import MetadataResponse
from ottla.cli.client import Client, ConnectionLost, NobodyAnswers
from ottla.cli.failures import CommandError, refuse
from ottla.cli.placing import Partition, Place

TOPIC_RESOURCE = 2
MIN_IN_SYNC = "min.insync.replicas"
PATIENCE_S = 60.0
"""For commands that wait for hours anyway: a broker that is started anew meanwhile, perhaps the only one whose address they have, is back by then."""
RETRY_S = 0.5


class BrokerNow(NamedTuple):
    """``directories``: as it tells of them; empty where it cannot be asked."""

    node_id: int
    address: str
    rack: str
    is_fenced: bool
    directories: Sequence[DescribeLogDirsResult] = ()


class Moving(NamedTuple):
    """A reassignment under way, as the controller has it."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class ClusterNow(NamedTuple):
    brokers: Mapping[int, BrokerNow]
    partitions: Mapping[Place, Partition]
    moving: Mapping[Place, Moving]
    sizes: Mapping[tuple[Place, int], int]
    """Bytes of a replica, by partition and broker."""

    @property
    def alive(self) -> list[int]:
        return [each.node_id for each in self.brokers.values() if not each.is_fenced]

    def require(self, places: Iterable[Place]) -> None:
        for topic, index in places:
            if (topic, index) not in self.partitions:
                raise CommandError(f"there is no partition {topic}-{index}")

    def on(self, broker_id: int) -> dict[Place, Partition]:
        """The partitions with a replica on that broker."""
        return {place: each for place, each in self.partitions.items() if broker_id in each.replicas}


def read_cluster(bootstrap: str, *, with_sizes: bool = True, patience_s: float = 0.0) -> ClusterNow:
    """``with_sizes``: asks every broker what its directories hold, and topics for their min.insync.replicas.

    Nothing is changed by asking, so where a broker goes in the middle of it the others of ``bootstrap`` are asked, each once; and for
    ``patience_s`` all again, also where nobody answers.
    """
    asked, lost, until_s = bootstrap.split(","), 0, time.monotonic() + patience_s
    while True:
        try:
            return _read(",".join(asked), with_sizes=with_sizes)
        except ConnectionLost:
            lost += 1
            if lost >= len(asked) and time.monotonic() >= until_s:
                raise
            asked = [*asked[1:], asked[0]]  # one that is there and says nothing is not the first again
            if lost < len(asked):
                continue
        except NobodyAnswers:
            if time.monotonic() >= until_s:
                raise
        time.sleep(RETRY_S)


def _read(bootstrap: str, *, with_sizes: bool) -> ClusterNow:
    """The broker that is asked may not have heard yet of a move that the controller tells of: then the replicas are the controller's, or the
    two would not belong together (of replicas 4, 1 that go to 2, 1, where 4 is "removed", 1 alone would be left).
    """
    with Client(bootstrap) as client:
        brokers = _brokers(client)
        described = client.call(MetadataRequest(topics=None, allow_auto_topic_creation=False), MetadataResponse)
        moving = _moving(client)
        names = [topic.name or "" for topic in described.topics]
        minima = _min_in_sync(client, names) if with_sizes else {}
    if with_sizes:
        brokers = {each.node_id: _with_directories(each) for each in brokers.values()}
    sizes = _sizes(brokers.values())
    partitions: dict[Place, Partition] = {}
    for topic in described.topics:
        for each in topic.partitions:
            place = topic.name or "", each.partition_index
            replicas = moving[place].replicas if place in moving else tuple(each.replica_nodes)
            known = [sizes.get((place, replica), 0) for replica in replicas]
            size = sizes.get((place, each.leader_id), max(known, default=0))
            minimum = minima.get(place[0], 1)
            partitions[place] = Partition(replicas, tuple(each.isr_nodes), each.leader_id, size, minimum)
    return ClusterNow(brokers, partitions, moving, sizes)


def _brokers(client: Client) -> dict[int, BrokerNow]:
    answer = client.call(DescribeClusterRequest(include_fenced_brokers=True), DescribeClusterResponse)
    refuse(answer.error_code, "describe the cluster", answer.error_message)
    return {
        each.broker_id: BrokerNow(each.broker_id, f"{each.host}:{each.port}", each.rack or "", each.is_fenced)
        for each in answer.brokers
    }


def _moving(client: Client) -> dict[Place, Moving]:
    answer = client.call(ListPartitionReassignmentsRequest(), ListPartitionReassignmentsResponse)
    refuse(answer.error_code, "list the reassignments", answer.error_message)
    return {
        (topic.name, each.partition_index): Moving(
            tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
        )
        for topic in answer.topics
        for each in topic.partitions
    }


def _min_in_sync(client: Client, names: Sequence[str]) -> dict[str, int]:
    if not names:
        return {}
    asked = [DescribeConfigsResource(TOPIC_RESOURCE, name, [MIN_IN_SYNC]) for name in names]
    answer = client.call(DescribeConfigsRequest(resources=asked), DescribeConfigsResponse)
    return {
        each.resource_name: int(each.configs[0].value or 1)
        for each in answer.results
        if not each.error_code and each.configs
    }


def _with_directories(broker: BrokerNow) -> BrokerNow:
    if broker.is_fenced:
        return broker
    try:
        with Client(broker.address) as client:
            answer = client.call(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
    except CommandError:
        return broker  # it went this moment: what it has is not known
    return broker._replace(directories=[each for each in answer.results if not each.error_code])


def _sizes(brokers: Iterable[BrokerNow]) -> dict[tuple[Place, int], int]:
    return {
        ((topic.name, each.partition_index), broker.node_id): each.partition_size
        for broker in brokers
        for directory in broker.directories
        for topic in directory.topics
        for each in topic.partitions
        if not each.is_future_key
    }
