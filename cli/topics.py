"""``ottla topics``: create, list, describe and delete."""

import click

from ottla.cli.output import bootstrap_option, output_option, show


@click.group()
def topics() -> None:
    """Create, list, describe and delete topics."""


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
    assignments, settings = _assignments(replica_assignment), dict(_setting(text) for text in configs)
    from ottla.cli.topic_requests import create_topic

    for line in create_topic(bootstrap, name, partitions or -1, replication_factor or -1, assignments, settings):
        click.echo(line)


def _setting(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise click.UsageError(f"--config {text}: write NAME=VALUE")
    return name, value


def _assignments(text: str | None) -> list[list[int]]:
    try:
        return [[int(broker) for broker in group.split(":")] for group in text.split(",")] if text else []
    except ValueError:
        raise click.UsageError(f"--replica-assignment {text}: write 1:2:3,2:3:1") from None


@topics.command("list")
@bootstrap_option
@output_option
def list_command(bootstrap: str, output: str) -> None:
    """List the topics."""
    from ottla.cli.topic_requests import topic_rows

    rows = topic_rows(bootstrap)
    show(rows, ["topic", "partitions", "replicas", "under-replicated", "leaderless", "id"], output)


@topics.command()
@click.argument("names", nargs=-1)
@bootstrap_option
@click.option("--under-replicated", is_flag=True, help="Only partitions with a replica out of sync.")
@output_option
def describe(names: tuple[str, ...], bootstrap: str, under_replicated: bool, output: str) -> None:
    """Show leader, replicas and in-sync replicas of each partition of NAMES (all topics without).

    `eligible` are the replicas that may lead though they are not in sync, and `last eligible` who was in sync at last
    (KIP-966); both are shown where there are any.

    `same host` names the hosts that hold several replicas of a partition: it goes when such a host does.
    """
    from ottla.cli.topic_requests import partition_rows

    rows = partition_rows(bootstrap, names, under_replicated=under_replicated)
    columns = ["topic", "partition", "leader", "epoch", "replicas", "in sync", "offline"]
    rare = [name for name in ("eligible", "last eligible", "same host") if any(row[name] for row in rows)]
    show(rows, [*columns, *rare], output)


@topics.command()
@click.argument("names", nargs=-1, required=True)
@bootstrap_option
def delete(names: tuple[str, ...], bootstrap: str) -> None:
    """Delete topics NAMES and their data."""
    from ottla.cli.topic_requests import delete_topics

    for line in delete_topics(bootstrap, names):
        click.echo(line)
