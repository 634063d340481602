"""``ottla up`` and ``ottla down``: a cluster of N nodes on this machine, one process a node."""

import contextlib
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

import click

from ottla.cli.failures import CommandError
from ottla.cli.local_cluster import DEFAULT_HOME, LocalCluster, Shape, stop_command
from ottla.cli.local_node import LocalNode
from ottla.cli.up_settings import parse_settings
from ottla.cli.up_topics import NewTopic, make_topics, parse_topics

STOP_TIMEOUT_S = 30.0
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
@click.option("--brokers", type=click.IntRange(1, 9), help="With --controllers: how many nodes that are brokers only.")
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
    shape = _shape(nodes, controllers, brokers)
    wanted = parse_topics(topics, shape.both + shape.only_brokers)
    texts = parse_settings(settings)
    if detach and (ephemeral or ready_file):
        raise click.UsageError("--detach: there is nobody to remove what --ephemeral or --ready-file leave behind")
    if detach and (running := LocalCluster.running(directory, shape, port)):
        running.refuse_other_settings(texts)
        make_topics(wanted, running.bootstrap.split(","))
        click.echo(f"is up already  bootstrap.servers={running.bootstrap}  stop it: {stop_command(directory)}")
        return
    home = Path(tempfile.mkdtemp(prefix="ottla-")) if ephemeral else directory
    with _gone_at_the_end(ready_file, home if ephemeral else None):
        _run(LocalCluster.prepare(home, shape, port, texts), wanted, ready_file, detach=detach)


@click.command()
@dir_option
def down(directory: Path) -> None:
    """Stop the nodes that `ottla up --detach` started in DIR, each as a signal would; their data stays."""
    cluster = LocalCluster.found(directory)
    running = [node for node in cluster.nodes if node.alive_pid() is not None]
    _stop(cluster)
    click.echo(f"stopped {len(running)} nodes" if running else f"no node runs in {directory}")


def _shape(nodes: int | None, controllers: int | None, brokers: int | None) -> Shape:
    if controllers is None and brokers is None:
        return Shape(both=NODES if nodes is None else nodes)
    if controllers is None or brokers is None or nodes is not None:
        raise click.UsageError("give --nodes, or both --controllers and --brokers")
    return Shape(only_brokers=brokers, only_controllers=controllers)


@contextlib.contextmanager
def _gone_at_the_end(ready_file: Path | None, temporary: Path | None) -> Iterator[None]:
    if ready_file:
        ready_file.unlink(missing_ok=True)
    try:
        yield
    finally:
        if ready_file:
            ready_file.unlink(missing_ok=True)
        if temporary:
            shutil.rmtree(temporary, ignore_errors=True)


class _Stop(BaseException):
    """A signal asked for the end. As KeyboardInterrupt no Exception: it may come inside a library's ``except Exception``."""


def _raise_stop(_signal: int, _frame: FrameType | None) -> None:
    raise _Stop


def _run(cluster: LocalCluster, topics: Sequence[NewTopic], ready_file: Path | None, *, detach: bool = False) -> None:
    began = time.monotonic()
    stays = False
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _raise_stop)
        cluster.start()
        cluster.wait_ready()
        make_topics(topics, cluster.bootstrap.split(","))
        if ready_file:
            _write_atomically(ready_file, cluster.bootstrap)
        _tell(cluster, time.monotonic() - began)
        if detach:
            click.echo(f"stop it: {stop_command(cluster.home)}")
            stays = True
            return
        _watch(cluster)
    except _Stop:
        pass
    finally:
        if not stays:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)
            _stop(cluster)
            click.echo("stopped")


def _tell(cluster: LocalCluster, took_s: float) -> None:
    click.echo(
        f"{len(cluster.nodes)} nodes ready in {took_s:.2f} s  bootstrap.servers={cluster.bootstrap}  data in {cluster.home}"
    )
    if cluster.metrics_listeners:
        click.echo(f"metrics at {' '.join(f'http://{each}/metrics' for each in cluster.metrics_listeners)}")


def _stop(cluster: LocalCluster) -> None:
    left = cluster.stop(STOP_TIMEOUT_S)
    if left:
        names = ", ".join(f"node {node.node_id} (pid {node.pid()})" for node in left)
        raise CommandError(f"{names} did not stop within {STOP_TIMEOUT_S:.0f} s; its log says why")


def _watch(cluster: LocalCluster) -> None:
    """Reports each change between alive and dead, once."""
    alive = {node.node_id: node.pid() for node in cluster.nodes}
    while True:
        time.sleep(0.1)
        for node in cluster.nodes:
            pid = node.alive_pid()
            if pid != alive[node.node_id]:
                _report(node, alive[node.node_id], pid)
                alive[node.node_id] = pid


def _report(node: LocalNode, before: int | None, now: int | None) -> None:
    if now is None:
        line = f"node {node.node_id} (pid {before}) {node.how_it_ended()}; log: {node.log_file}; start it again: ottla server start --config {node.properties}"
    else:
        line = f"node {node.node_id} is back (pid {now})"
    print(line, file=sys.stderr, flush=True)


def _write_atomically(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text + "\n", encoding="utf-8")
    temporary.replace(path)
