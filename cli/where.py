"""Whom a command about the quorum asks: any broker, which sends on what it cannot answer, or the active of the controllers."""

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ottla.cli.output import bootstrap_option, with_ports

if TYPE_CHECKING:
    from ottla.cli.client import Client  # otherwise where it is used: a command's words cost little

Command = Callable[..., Any]


class Where(NamedTuple):
    """Addresses, ``host:port`` each, separated by commas."""

    servers: str
    are_controllers: bool = False

    def connect(self) -> "Client":
        """Raises CommandError when nobody answers there."""
        from ottla.cli import active_controller, client

        return active_controller.connect(self.servers) if self.are_controllers else client.Client(self.servers)


def where_options(command: Command) -> Command:
    """The two ways to say whom to ask; the command gets them as ``where``."""

    @bootstrap_option
    @click.option(
        "--bootstrap-controller",
        "controllers",
        callback=lambda context, option, text: None if text is None else with_ports(context, option, text),
        help="Any controller's own listener, host:port, in place of a broker: works while no broker does. Several by comma.",
    )
    @wraps(command)
    def with_where(*args: object, bootstrap: str, controllers: str | None, **rest: object) -> object:
        given = click.get_current_context().get_parameter_source("bootstrap")
        if controllers is not None and given is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError("give --bootstrap-server or --bootstrap-controller, not both")
        where = Where(bootstrap) if controllers is None else Where(controllers, are_controllers=True)
        return command(*args, where=where, **rest)

    return with_where
