"""``ottla server start``: one node, in this process, until a signal ends it."""

import logging
import os
import sys
from pathlib import Path

import click

from ottla.cli.failures import CommandError, expected, one_line
from ottla.cli.output import output_option, show


@click.group()
def server() -> None:
    """Run one node from its server.properties."""


@server.command()
@click.option(
    "--config",
    "-c",
    "properties",
    type=click.Path(path_type=Path),
    required=True,
    help="The node's server.properties; KAFKA_* variables win over it.",
)
def start(properties: Path) -> None:
    """Start the node and keep it up until SIGTERM or Ctrl-C (graceful: leadership is handed over first)."""
    from ottla.runtime.settings.server import ServerConfig

    config = ServerConfig.load(properties)
    from ottla.broker.process import FAILURES, run_node  # the event loop, gRPC and LMDB: only a node pays for them

    log_file = config.string("ottla.log.file")
    _log_to(log_file)
    plain: tuple[type[Exception], ...] = (*expected(), *FAILURES)
    try:
        run_node(config)
    except plain as error:
        line = f"node {config.node_id} stopped: {one_line(error)}"
        if not _stderr_is(log_file):  # as under `ottla up`: main() writes the line there
            logging.getLogger("ottla.server").critical("%s", line)
        raise CommandError(line) from error
    except Exception:
        logging.getLogger("ottla.server").exception("node %d stopped, which is our mistake", config.node_id)
        sys.exit(1)


@server.command()
@click.option(
    "--config", "-c", "properties", type=click.Path(path_type=Path), required=True, help="The node's server.properties."
)
@output_option
def health(properties: Path, output: str) -> None:
    """Say whether the node on this machine takes requests; exit code 1 while it does not. For containers' probes."""
    from ottla.cli.server_health import check

    row = check(properties)
    show([row], row, output)


def _stderr_is(path: str) -> bool:
    """Whether what goes to standard error is seen where the log is: in that file, or without one, on the terminal."""
    try:
        return not path or os.path.samestat(os.stat(path), os.fstat(2))
    except FileNotFoundError:
        return False  # it was rotated away


def _log_to(path: str) -> None:
    """One line a fact. With ``ottla.log.file`` they go there; a terminal also sees warnings."""
    handlers: list[logging.Handler] = []
    if path:
        from ottla.cli.log_file import LogFile  # with sockets and more, which only a node pays for

        handlers.append(LogFile(path, encoding="utf-8"))
    if not path or sys.stderr.isatty():
        terminal = logging.StreamHandler()
        terminal.setLevel(logging.WARNING if path else logging.NOTSET)
        handlers.append(terminal)
    logging.basicConfig(
        level=logging.INFO, handlers=handlers, format="%(asctime)s %(levelname)-7s %(name)s %(message)s"
    )
