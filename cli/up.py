"""``ottla up`` and ``ottla down``: a cluster of N nodes on this machine, one process a node."""

from pathlib import Path

import click

from ottla.cli.up_words import DEFAULT_HOME, BrokerCount, parse_settings, parse_topics

NODES = 3

dir_option = click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    default=DEFAULT_HOME,
    show_default=True,
    help="Where node-1, node-2 ... live.",
)


@click.command()
@click.option(
    "--nodes", type=click.IntRange(1, 9), help=f"How many nodes that are broker and controller.  [default: {NODES}]"
)
@click.option(
    "--controllers", type=click.IntRange(1, 9), help="With --brokers: how many nodes that are controllers only."
)
@click.option(
    "--brokers",
    type=BrokerCount(),
    help="With --controllers: how many nodes that are brokers only; `cores`: one for each core of this machine (docs/sizing.md).",
)
@dir_option
@click.option(
    "--port",
    type=click.IntRange(1, 63000),
    default=9092,
    show_default=True,
    help="Client port of node 1; the next nodes take the next ports. Controllers listen 1000 above, metrics 2000.",
)
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="Into every server.properties; again for more."
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME:PARTITIONS:REPLICAS",
    help="Make this topic unless it is there; again for more.",
)
@click.option("--ephemeral", is_flag=True, help="Use a temporary directory and remove it at the end.")
@click.option("--detach", "-d", is_flag=True, help="Return when the cluster serves; `ottla down` stops it.")
@click.option(
    "--ready-file",
    type=click.Path(path_type=Path),
    help="Appears, with the bootstrap address, when every node takes requests and has the topics.",
)
def up(
    nodes: int | None,
    controllers: int | None,
    brokers: int | None,
    directory: Path,
    port: int,
    settings: tuple[str, ...],
    topics: tuple[str, ...],
    ephemeral: bool,
    detach: bool,
    ready_file: Path | None,
) -> None:
    """Start a cluster of N nodes on this machine and keep it up until Ctrl-C (with --detach until `ottla down`).

    DIR/node-I holds a node's server.properties, pid, server.log and data. A node that dies is reported and not
    restarted: start it again with `ottla server start --config DIR/node-I/server.properties`.
    """
    numbers = _numbers(nodes, controllers, brokers)
    wanted = parse_topics(topics, numbers[0] + numbers[1])
    texts = parse_settings(settings)
    if detach and (ephemeral or ready_file):
        raise click.UsageError("--detach: there is nobody to remove what --ephemeral or --ready-file leave behind")
    from ottla.cli import up_run
    from ottla.cli.local_cluster import Shape

    shape = Shape(*numbers)
    if detach:
        up_run.run_detached(directory, shape, port, texts, wanted)
    else:
        up_run.run(None if ephemeral else directory, shape, port, texts, wanted, ready_file)


@click.command()
@dir_option
def down(directory: Path) -> None:
    """Stop the nodes that `ottla up --detach` started in DIR, each as a signal would; their data stays."""
    from ottla.cli import up_run

    up_run.stop_all(directory)


def _numbers(nodes: int | None, controllers: int | None, brokers: int | None) -> tuple[int, int, int]:
    """How many are both, brokers only, controllers only. Raises UsageError."""
    if controllers is None and brokers is None:
        return NODES if nodes is None else nodes, 0, 0
    if controllers is None or brokers is None or nodes is not None:
        raise click.UsageError("give --nodes, or both --controllers and --brokers")
    return 0, brokers, controllers
