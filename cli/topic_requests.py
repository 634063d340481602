"""What `ottla topics` asks of a broker."""

from collections.abc import Iterator, Sequence

from ottla.broker.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.broker.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.broker.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from ottla.broker.wire.messages.delete_topics_response import DeleteTopicsResponse
from ottla.broker.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.broker.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponsePartition,
)
from ottla.cli.client import Client
from ottla.cli.eligible_leaders import eligible_leaders
from ottla.cli.failures import CommandError, refuse
from ottla.cli.output import Row
from ottla.quorum.metadata.places import Standing, shared_hosts
from ottla.runtime.identifiers import id_to_text

_NONE: tuple[list[int], list[int]] = ([], [])


def create_topic(
    bootstrap: str,
    name: str,
    partitions: int,
    replicas: int,
    assignments: Sequence[Sequence[int]],
    configs: dict[str, str],
) -> Iterator[str]:
    """-1 asks for the cluster's defaults; ``assignments``: the broker ids of each partition. Lines that say what was made.

    Raises CommandError.
    """
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[CreatableReplicaAssignment(at, list(ids)) for at, ids in enumerate(assignments)],
        configs=[CreatableTopicConfig(*each) for each in configs.items()],
    )
    with Client(bootstrap) as client:
        answer = client.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), CreateTopicsResponse)
    for each in answer.topics:
        refuse(each.error_code, each.name, each.error_message)
        yield f"created {each.name}: {each.num_partitions} partitions, replication factor {each.replication_factor}"


def delete_topics(bootstrap: str, names: Sequence[str]) -> Iterator[str]:
    """Lines that say what is gone. Raises CommandError, once all of them are told."""
    states = [DeleteTopicState(name=name) for name in names]
    with Client(bootstrap) as client:
        request = DeleteTopicsRequest(topics=states, topic_names=list(names), timeout_ms=30_000)
        answer = client.call(request, DeleteTopicsResponse)
    failed = []
    for each in answer.responses:
        try:
            refuse(each.error_code, each.name or id_to_text(each.topic_id), each.error_message)
        except CommandError as error:
            failed.append(str(error))
        else:
            yield f"deleted {each.name}"
    if failed:
        raise CommandError("; ".join(failed))


def topic_rows(bootstrap: str) -> list[Row]:
    """A row a topic. Raises CommandError."""
    return [
        {
            "topic": topic.name,
            "partitions": len(topic.partitions),
            "replicas": max((len(each.replica_nodes) for each in topic.partitions), default=0),
            "under-replicated": sum(_under_replicated(each) for each in topic.partitions),
            "leaderless": sum(each.leader_id < 0 for each in topic.partitions),
            "id": id_to_text(topic.topic_id),
        }
        for topic in _metadata(bootstrap, ()).topics
    ]


def partition_rows(bootstrap: str, names: Sequence[str], *, under_replicated: bool) -> list[Row]:
    """A row a partition of ``names``, or of all topics. Raises CommandError."""
    told = _metadata(bootstrap, names)
    with Client(bootstrap) as client:
        eligible = eligible_leaders(client, names)
    brokers = [Standing(each.node_id, each.rack, each.host) for each in told.brokers]
    return [
        {
            "topic": topic.name,
            "partition": each.partition_index,
            "leader": each.leader_id if each.leader_id >= 0 else None,
            "epoch": each.leader_epoch,
            "replicas": each.replica_nodes,
            "in sync": each.isr_nodes,
            "eligible": eligible.get((topic.name or "", each.partition_index), _NONE)[0],
            "last eligible": eligible.get((topic.name or "", each.partition_index), _NONE)[1],
            "offline": each.offline_replicas,
            "same host": shared_hosts(brokers, each.replica_nodes),
        }
        for topic in told.topics
        for each in sorted(topic.partitions, key=lambda partition: partition.partition_index)
        if _under_replicated(each) or not under_replicated
    ]


def _metadata(bootstrap: str, names: Sequence[str]) -> MetadataResponse:
    """Its topics are sorted, and all there."""
    wanted = [MetadataRequestTopic(name=name) for name in names] if names else None
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
    with Client(bootstrap) as client:
        found = client.call(request, MetadataResponse)
    for topic in found.topics:
        refuse(topic.error_code, topic.name or id_to_text(topic.topic_id))
    found.topics.sort(key=lambda topic: topic.name or "")
    return found


def _under_replicated(partition: MetadataResponsePartition) -> bool:
    return len(partition.isr_nodes) < len(partition.replica_nodes)
