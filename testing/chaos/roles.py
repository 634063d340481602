"""Who plays which part in a cluster just now."""

from typing import NamedTuple

from ottla.broker.wire.messages.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData
from ottla.broker.wire.messages.describe_quorum_response import DescribeQuorumResponse
from ottla.broker.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.broker.wire.messages.find_coordinator_response import FindCoordinatorResponse
from ottla.broker.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.broker.wire.messages.metadata_response import MetadataResponse, MetadataResponsePartition
from ottla.testing.chaos.cluster import ChaosCluster

GROUP, TRANSACTION = 0, 1
_METADATA = [TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])]


class Place(NamedTuple):
    topic: str
    partition: int


class Roles:
    """As some broker knows them: it may have changed when you read it."""

    def __init__(self, cluster: ChaosCluster) -> None:
        self._cluster = cluster

    def controller(self) -> int:
        """The active one."""
        return self.quorum()[0]

    def quorum(self) -> tuple[int, int, list[int]]:
        """Leader, epoch and voters."""

        def good(answer: DescribeQuorumResponse) -> bool:
            return bool(answer.topics) and answer.topics[0].partitions[0].leader_id > 0

        answer = self._cluster.ask_any(DescribeQuorumRequest(topics=_METADATA), DescribeQuorumResponse, good)
        state = answer.topics[0].partitions[0]
        return state.leader_id, state.leader_epoch, [each.replica_id for each in state.current_voters]

    def partition(self, place: Place) -> MetadataResponsePartition:
        """With a leader. Raises TimeoutError."""
        asked = MetadataRequest([MetadataRequestTopic(name=place.topic)], allow_auto_topic_creation=False)

        def found(answer: MetadataResponse) -> list[MetadataResponsePartition]:
            return [
                each
                for topic in answer.topics
                for each in topic.partitions
                if each.partition_index == place.partition and each.leader_id > 0
            ]

        answer = self._cluster.ask_any(asked, MetadataResponse, lambda each: bool(found(each)))
        return found(answer)[0]

    def leader(self, place: Place) -> int:
        return self.partition(place).leader_id

    def follower(self, place: Place) -> int:
        """One in sync, if there is one."""
        partition = self.partition(place)
        others = [each for each in partition.isr_nodes if each != partition.leader_id]
        return (others or [each for each in partition.replica_nodes if each != partition.leader_id])[0]

    def coordinator(self, key: str, kind: int = GROUP) -> int:
        asked = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])

        def good(answer: FindCoordinatorResponse) -> bool:
            return bool(answer.coordinators) and answer.coordinators[0].error_code == 0

        return self._cluster.ask_any(asked, FindCoordinatorResponse, good).coordinators[0].node_id
