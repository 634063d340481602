"""``ottla up``: a cluster of N nodes on this machine, one process a node, for as long as the command runs."""

import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

import click

from ottla.cli.failures import CommandError
from ottla.cli.local_cluster import LocalCluster, LocalNode

STOP_TIMEOUT_S = 30.0


@click.command()
@click.option("--nodes", type=click.IntRange(1, 9), default=3, show_default=True, help="How many nodes.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    default=Path("ottla-data"),
    show_default=True,
    help="Where node-1, node-2 ... live.",
)
@click.option(
    "--port",
    type=click.IntRange(1, 63000),
    default=9092,
    show_default=True,
    help="Client port of node 1; the next nodes take the next ports. Controllers listen 1000 above, metrics 2000.",
)
@click.option("--ephemeral", is_flag=True, help="Use a temporary directory and remove it at the end.")
@click.option(
    "--ready-file",
    type=click.Path(path_type=Path),
    help="Appears, with the bootstrap address, when every node takes requests.",
)
def up(nodes: int, directory: Path, port: int, ephemeral: bool, ready_file: Path | None) -> None:
    """Start a cluster of N nodes on this machine and keep it up until Ctrl-C.

    DIR/node-I holds a node's server.properties, pid, server.log and data. A node that dies is reported and not
    restarted: start it again with `ottla server start --config DIR/node-I/server.properties`.
    """
    home = Path(tempfile.mkdtemp(prefix="ottla-")) if ephemeral else directory
    if ready_file:
        ready_file.unlink(missing_ok=True)
    try:
        _run(LocalCluster.prepare(home, nodes, port), ready_file)
    finally:
        if ready_file:
            ready_file.unlink(missing_ok=True)
        if ephemeral:
            shutil.rmtree(home, ignore_errors=True)


class _Stop(BaseException):
    """A signal asked for the end. As KeyboardInterrupt no Exception: it may come inside a library's ``except Exception``."""


def _raise_stop(_signal: int, _frame: FrameType | None) -> None:
    raise _Stop


def _run(cluster: LocalCluster, ready_file: Path | None) -> None:
    began = time.monotonic()
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _raise_stop)
        cluster.start()
        cluster.wait_ready()
        if ready_file:
            _write_atomically(ready_file, cluster.bootstrap)
        took = time.monotonic() - began
        click.echo(
            f"{len(cluster.nodes)} nodes ready in {took:.2f} s  bootstrap.servers={cluster.bootstrap}  data in {cluster.home}"
        )
        if cluster.metrics_listeners:
            click.echo(f"metrics at {' '.join(f'http://{each}/metrics' for each in cluster.metrics_listeners)}")
        _watch(cluster)
    except _Stop:
        pass
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        left = cluster.stop(STOP_TIMEOUT_S)
        if left:
            names = ", ".join(f"node {node.node_id} (pid {node.pid()})" for node in left)
            raise CommandError(f"{names} did not stop within {STOP_TIMEOUT_S:.0f} s; its log says why")
        click.echo("stopped")


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
