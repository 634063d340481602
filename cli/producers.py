"""``ottla producers``: who writes to a topic with idempotence, and whose transactions are open in it."""

import click

from ottla.cli.output import bootstrap_option, output_option, show


@click.group()
def producers() -> None:
    """Show who has written to a topic's partitions."""


@producers.command()
@click.argument("topic")
@bootstrap_option
@click.option(
    "--partition", "-p", "partitions", multiple=True, type=click.IntRange(0), help="Default: all; again for more."
)
@output_option
def describe(topic: str, bootstrap: str, partitions: tuple[int, ...], output: str) -> None:
    """Show the producers that the leaders of TOPIC's partitions know, and where their open transactions begin.

    A transaction that is open for long holds back everybody who reads only what is committed; ``kafka-transactions abort`` ends one
    whose coordinator does not know it any more.
    """
    from ottla.cli.producer_requests import COLUMNS, producer_rows

    show(producer_rows(bootstrap, topic, partitions), COLUMNS, output)
