"""``ottla topics``: create, list, describe and delete."""

import click

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
    MetadataResponseTopic,
)
from ottla.cli.client import Client
from ottla.cli.failures import CommandError
from ottla.cli.output import Row, bootstrap_option, output_option, show
from ottla.runtime.errors import ErrorCode
from ottla.runtime.identifiers import id_to_text


@click.group()
def topics() -> None:
    """Create, list, describe and delete topics."""


def refuse(code: int, what: str, message: str | None = None) -> None:
    """Raises CommandError when ``code`` is an error."""
    if code:
        detail = f": {message}" if message else ""
        raise CommandError(f"{what}: {ErrorCode(code).name}{detail}")


@topics.command()
@click.argument("name")
@bootstrap_option
@click.option("--partitions", type=click.IntRange(1), help="Default: the cluster's num.partitions.")
@click.option("--replication-factor", type=click.IntRange(1), help="Default: the cluster's default.replication.factor.")
@click.option("--replica-assignment", help="Broker ids by hand: 1:2:3,2:3:1 (a partition a group).")
@click.option(
    "--config", "configs", multiple=True, metavar="NAME=VALUE", help="A setting of the topic; again for more."
)
def create(
    name: str,
    bootstrap: str,
    partitions: int | None,
    replication_factor: int | None,
    replica_assignment: str | None,
    configs: tuple[str, ...],
) -> None:
    """Create topic NAME."""
    topic = CreatableTopic(
        name=name,
        num_partitions=-1 if partitions is None else partitions,
        replication_factor=-1 if replication_factor is None else replication_factor,
        assignments=_assignments(replica_assignment),
        configs=[_config(text) for text in configs],
    )
    with Client(bootstrap) as client:
        answer = client.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), CreateTopicsResponse)
    for each in answer.topics:
        refuse(each.error_code, each.name, each.error_message)
        click.echo(
            f"created {each.name}: {each.num_partitions} partitions, replication factor {each.replication_factor}"
        )


def _config(text: str) -> CreatableTopicConfig:
    name, separator, value = text.partition("=")
    if not separator:
        raise click.UsageError(f"--config {text}: write NAME=VALUE")
    return CreatableTopicConfig(name=name, value=value)


def _assignments(text: str | None) -> list[CreatableReplicaAssignment]:
    try:
        groups = [[int(broker) for broker in group.split(":")] for group in text.split(",")] if text else []
    except ValueError:
        raise click.UsageError(f"--replica-assignment {text}: write 1:2:3,2:3:1") from None
    return [CreatableReplicaAssignment(partition_index=at, broker_ids=ids) for at, ids in enumerate(groups)]


def _metadata(client: Client, names: tuple[str, ...]) -> list[MetadataResponseTopic]:
    wanted = [MetadataRequestTopic(name=name) for name in names] if names else None
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
    found = client.call(request, MetadataResponse).topics
    for topic in found:
        refuse(topic.error_code, topic.name or id_to_text(topic.topic_id))
    return sorted(found, key=lambda topic: topic.name or "")


@topics.command("list")
@bootstrap_option
@output_option
def list_command(bootstrap: str, output: str) -> None:
    """List the topics."""
    with Client(bootstrap) as client:
        rows: list[Row] = [
            {
                "topic": topic.name,
                "partitions": len(topic.partitions),
                "replicas": max((len(each.replica_nodes) for each in topic.partitions), default=0),
                "under-replicated": sum(_under_replicated(each) for each in topic.partitions),
                "leaderless": sum(each.leader_id < 0 for each in topic.partitions),
                "id": id_to_text(topic.topic_id),
            }
            for topic in _metadata(client, ())
        ]
    show(rows, ["topic", "partitions", "replicas", "under-replicated", "leaderless", "id"], output)


def _under_replicated(partition: MetadataResponsePartition) -> bool:
    return len(partition.isr_nodes) < len(partition.replica_nodes)


@topics.command()
@click.argument("names", nargs=-1)
@bootstrap_option
@click.option("--under-replicated", is_flag=True, help="Only partitions with a replica out of sync.")
@output_option
def describe(names: tuple[str, ...], bootstrap: str, under_replicated: bool, output: str) -> None:
    """Show leader, replicas and in-sync replicas of each partition of NAMES (all topics without)."""
    with Client(bootstrap) as client:
        rows: list[Row] = [
            {
                "topic": topic.name,
                "partition": each.partition_index,
                "leader": each.leader_id if each.leader_id >= 0 else None,
                "epoch": each.leader_epoch,
                "replicas": each.replica_nodes,
                "in sync": each.isr_nodes,
                "offline": each.offline_replicas,
            }
            for topic in _metadata(client, names)
            for each in sorted(topic.partitions, key=lambda partition: partition.partition_index)
            if _under_replicated(each) or not under_replicated
        ]
    show(rows, ["topic", "partition", "leader", "epoch", "replicas", "in sync", "offline"], output)


@topics.command()
@click.argument("names", nargs=-1, required=True)
@bootstrap_option
def delete(names: tuple[str, ...], bootstrap: str) -> None:
    """Delete topics NAMES and their data."""
    states = [DeleteTopicState(name=name) for name in names]
    with Client(bootstrap) as client:
        request = DeleteTopicsRequest(topics=states, topic_names=list(names), timeout_ms=30_000)
        answer = client.call(request, DeleteTopicsResponse)
    for each in answer.responses:
        refuse(each.error_code, each.name or id_to_text(each.topic_id), each.error_message)
        click.echo(f"deleted {each.name}")
