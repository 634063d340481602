"""How `ottla metadata` is told where the log is."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

import click

from ottla.cli.output import bootstrap_option_with

LATEST = "latest"
"""The moment of the last batch."""

Command = Callable[..., Any]


class Source(NamedTuple):
    """What the options say of where to read."""

    directory: Path | None
    controller: str | None
    bootstrap: str


def source_options(command: Command) -> Command:
    """The three ways to say where the log is; the command gets them as ``source``."""

    @click.option(
        "--directory",
        "-d",
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        help="Offline: a node's metadata directory, or the log.dirs it is in. The node may run: nothing is written.",
    )
    @click.option(
        "--bootstrap-controller",
        "controller",
        help="Online: host:port of a controller's own listener; several by comma.",
    )
    @bootstrap_option_with("Online: any broker, which names the controllers.")
    @wraps(command)
    def with_source(
        *args: object, directory: Path | None, controller: str | None, bootstrap: str, **rest: object
    ) -> object:
        if directory and controller:
            raise click.UsageError("give --directory or --bootstrap-controller, not both")
        return command(*args, source=Source(directory, controller, bootstrap), **rest)

    return with_source
