"""Whether thousands of partitions are in order, asked of the nodes themselves, a topic at a time: what was in order once is
not asked again, so that asking costs little beside what is measured."""

import time
from collections.abc import Callable
from typing import Any

from ottla.broker.wire.messages.describe_cluster_request import DescribeClusterRequest
from ottla.broker.wire.messages.describe_log_dirs_request import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.broker.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.broker.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from tests.benchmarks.clusters import Cluster
from tests.benchmarks.wire_client import WireClient

PAUSE_S = 0.02
TIMEOUT_S = 300
LATEST = -1


class Checks:
    """Of a cluster's ``topics`` (partitions by name), all of whose replicas are on ``nodes``."""

    def __init__(self, cluster: Cluster, nodes: list[int], topics: dict[str, int]) -> None:
        self.nodes = nodes
        self._cluster = cluster
        self._topics = topics
        self._deadline = 0.0

    def wait_whole(self) -> None:
        """Until every node says that all replicas are in sync, every leader answers, and every node has every log."""
        self._each(self.nodes, self._is_in_sync)
        self._each(self.nodes, self._leads)
        self._each(self.nodes, self._has_logs)

    def wait_moved(self, survivors: list[int], victim: int) -> None:
        """Until every survivor knows a leader beside ``victim`` for each partition, and these answer."""
        self._each(survivors, lambda client, node, topic: self._is_led(client, topic, victim))
        self._each(survivors, self._leads)

    def wait_fenced(self, node: int, victim: int) -> float:
        """When ``node`` first said that ``victim`` is fenced."""
        fenced: list[float] = []

        def is_fenced(client: WireClient) -> bool:
            began = time.monotonic()
            answer = client.ask("DescribeCluster", 2, DescribeClusterRequest(include_fenced_brokers=True))
            if any(broker.broker_id == victim and not broker.is_fenced for broker in answer.brokers):
                return False
            fenced.append(began)
            return True

        self._until(node, is_fenced, pause_s=0.002)
        return fenced[0]

    def active_controller(self) -> int:
        with WireClient(self._cluster.address(self.nodes[0])) as client:
            return int(client.quorum().leader_id)

    # Asking.

    def _each(self, nodes: list[int], is_so: Callable[[WireClient, int, str], bool]) -> None:
        for node in nodes:
            left = list(self._topics)

            def look(client: WireClient, node: int = node, left: list[str] = left) -> bool:
                while left and is_so(client, node, left[0]):
                    del left[0]
                return not left

            self._until(node, look)

    def _until(self, node: int, is_so: Callable[[WireClient], bool], pause_s: float = PAUSE_S) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            try:
                with WireClient(self._cluster.address(node), TIMEOUT_S) as client:
                    while time.monotonic() < deadline:
                        if is_so(client):
                            return
                        time.sleep(pause_s)
            except OSError:
                time.sleep(pause_s)  # it is not up yet
        raise TimeoutError(f"node {node} is not in order after {TIMEOUT_S} s: {is_so.__name__}")

    def _metadata(self, client: WireClient, topic: str) -> Any:
        asked = MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        return client.ask("Metadata", 12, asked)

    def _is_in_sync(self, client: WireClient, _node: int, topic: str) -> bool:
        answer = self._metadata(client, topic)
        partitions = answer.topics[0].partitions
        return (
            len(answer.brokers) == len(self.nodes)
            and len(partitions) == self._topics[topic]
            and all(each.leader_id > 0 and len(each.isr_nodes) == len(self.nodes) for each in partitions)
        )

    def _is_led(self, client: WireClient, topic: str, victim: int) -> bool:
        partitions = self._metadata(client, topic).topics[0].partitions
        return len(partitions) == self._topics[topic] and all(each.leader_id not in (-1, victim) for each in partitions)

    def _leads(self, client: WireClient, node: int, topic: str) -> bool:
        """Whether the node answers for the partitions of which it says that it leads them."""
        led = [each for each in self._metadata(client, topic).topics[0].partitions if each.leader_id == node]
        wanted = [ListOffsetsPartition(each.partition_index, timestamp=LATEST) for each in led]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(topic, wanted)])
        answer = client.ask("ListOffsets", 7, request)
        return all(each.error_code == 0 for found in answer.topics for each in found.partitions)

    def _has_logs(self, client: WireClient, _node: int, topic: str) -> bool:
        count = self._topics[topic]
        asked = DescribeLogDirsRequest([DescribableLogDirTopic(topic, list(range(count)))])
        answer = client.ask("DescribeLogDirs", 4, asked)
        return sum(len(each.partitions) for root in answer.results for each in root.topics) == count
