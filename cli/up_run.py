"""What `ottla up` and `ottla down` do: nodes are started, watched, and stopped."""

import contextlib
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

import click

from ottla.cli.failures import CommandError
from ottla.cli.local_cluster import LocalCluster, Shape
from ottla.cli.local_node import LocalNode
from ottla.cli.up_topics import make_topics
from ottla.cli.up_words import NewTopic, stop_command
from ottla.runtime.stop_signals import stop_signals

STOP_TIMEOUT_S = 30.0


def run(
    home: Path | None,
    shape: Shape,
    port: int,
    settings: Mapping[str, str],
    topics: Sequence[NewTopic],
    ready_file: Path | None,
) -> None:
    """Until a signal comes. ``home``: None for a temporary directory. Raises CommandError, SettingError."""
    place = home or Path(tempfile.mkdtemp(prefix="ottla-"))
    with _gone_at_the_end(ready_file, place if home is None else None):
        run_cluster(LocalCluster.prepare(place, shape, port, settings), topics, ready_file)


def run_detached(home: Path, shape: Shape, port: int, settings: Mapping[str, str], topics: Sequence[NewTopic]) -> None:
    """Until the cluster serves, or says that it does already. Raises CommandError, SettingError."""
    running = LocalCluster.running(home, shape, port)
    if running is None:
        run_cluster(LocalCluster.prepare(home, shape, port, settings), topics, None, detach=True)
        return
    running.refuse_other_settings(settings)
    make_topics(topics, running.bootstrap.split(","))
    click.echo(f"is up already  bootstrap.servers={running.bootstrap}  stop it: {stop_command(home)}")


def stop_all(home: Path) -> None:
    """The nodes there, whoever started them. Raises CommandError."""
    cluster = LocalCluster.found(home)
    running = [node for node in cluster.nodes if node.alive_pid() is not None]
    _stop(cluster)
    click.echo(f"stopped {len(running)} nodes" if running else f"no node runs in {home}")


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


def run_cluster(
    cluster: LocalCluster, topics: Sequence[NewTopic], ready_file: Path | None, *, detach: bool = False
) -> None:
    began = time.monotonic()
    stays = False
    asked = stop_signals()
    try:
        for number in asked:
            signal.signal(number, _raise_stop)
        cluster.start()
        cluster.wait_ready()
        make_topics(topics, cluster.bootstrap.split(","))
        if ready_file:
            _write_atomically(ready_file, cluster.bootstrap)
        stays = detach  # it serves, whether or not somebody reads that
        _tell(cluster, time.monotonic() - began)
        if detach:
            click.echo(f"stop it: {stop_command(cluster.home)}")
            return
        _watch(cluster)
    except _Stop:
        pass
    finally:
        if not stays:
            for number in asked:
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
