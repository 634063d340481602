"""``ottla``: the command line. Each command lives in a module of its own, imported only when it is called.

Exit codes: 0 done, 1 it could not be done (one line on standard error says why and what to do), 2 the call's words are off.
"""

import sys

import click

from ottla import __version__
from ottla.cli.exits import clicks_exits
from ottla.cli.lazy import LazyGroup
from ottla.cli.streams import replace_closed_streams

COMMANDS = {
    "up": ("ottla.cli.up", "up", "Start a cluster of N nodes on this machine and keep it up."),
    "down": ("ottla.cli.up", "down", "Stop the nodes that `ottla up --detach` started."),
    "server": ("ottla.cli.server", "server", "Run one node from its server.properties."),
    "storage": ("ottla.cli.storage", "storage", "Format and inspect a node's directories."),
    "topics": ("ottla.cli.topics", "topics", "Create, list, describe and delete topics."),
    "reassign": (
        "ottla.cli.reassign",
        "reassign",
        "Move replicas to other brokers, by plans that Kafka's tool reads too.",
    ),
    "brokers": ("ottla.cli.brokers", "brokers", "List and describe brokers, drain them, take them out for good."),
    "groups": (
        "ottla.cli.groups",
        "groups",
        "List, describe, explain and delete consumer groups, reset their offsets.",
    ),
    "producers": ("ottla.cli.producers", "producers", "Show who writes to a topic, and whose transactions are open."),
    "transactions": (
        "ottla.cli.transactions",
        "transactions",
        "List and describe transactions, abort those that hang.",
    ),
    "produce": ("ottla.cli.produce", "produce", "Send lines from standard input to a topic."),
    "consume": ("ottla.cli.consume", "consume", "Print a topic's records."),
    "spark": ("ottla.cli.spark", "spark", "Run a job on Spark: topics become tables, and tables topics."),
    "quorum": ("ottla.cli.quorum", "quorum", "Show and change the metadata quorum."),
    "features": ("ottla.cli.features", "features", "Show and change the finalized feature levels."),
    "metrics": ("ottla.cli.metrics", "metrics", "Print a node's metrics."),
    "metadata": ("ottla.cli.metadata", "metadata", "Walk the history of the cluster's metadata."),
    "log": ("ottla.cli.log", "log", "Decode and verify a node's files."),
}


@click.command(
    cls=LazyGroup, table=COMMANDS, title="Commands", context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="ottla", message="%(prog)s %(version)s")
def cli() -> None:
    """Ottla, a message broker that speaks Kafka's protocol."""


def main() -> None:
    """Runs the command line and ends the process; an error that has a plain cause gets one line, not a traceback."""
    replace_closed_streams()
    try:
        with clicks_exits():
            cli(standalone_mode=False)
    except Exception as error:
        from ottla.cli.failures import is_expected, lines_of

        if not is_expected(error):
            raise
        for line in lines_of(error):
            print(f"ottla: {line}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
