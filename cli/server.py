"""``ottla server start``: one node, in this process, until a signal ends it."""

import logging
import sys
from pathlib import Path

import click

from ottla.cli.failures import CommandError
from ottla.runtime.settings.server import ServerConfig


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
    from ottla.broker.process import run_node  # the event loop, gRPC and LMDB: only a node pays for them

    config = ServerConfig.load(properties)
    _log_to(config.string("ottla.log.file"))
    try:
        run_node(config)
    except CommandError:
        raise
    except Exception as error:
        logging.getLogger("ottla.server").critical("node %d stopped: %s", config.node_id, error)
        raise


def _log_to(path: str) -> None:
    """One line a fact. With ``ottla.log.file`` they go there; a terminal also sees warnings."""
    handlers: list[logging.Handler] = []
    if path:
        handlers.append(logging.FileHandler(path, encoding="utf-8"))
    if not path or sys.stderr.isatty():
        terminal = logging.StreamHandler()
        terminal.setLevel(logging.WARNING if path else logging.INFO)
        handlers.append(terminal)
    logging.basicConfig(
        level=logging.INFO, handlers=handlers, format="%(asctime)s %(levelname)-7s %(name)s %(message)s"
    )
