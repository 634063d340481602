"""``ottla server health``: whether the node of a server.properties takes requests on this machine, as a container's probe asks it."""

import socket
from pathlib import Path

from ottla.cli.client import CONNECT_TIMEOUT_S, Client
from ottla.cli.failures import CommandError
from ottla.cli.output import Row
from ottla.runtime.settings.endpoints import Endpoint
from ottla.runtime.settings.server import ANY_HOST, ServerConfig


def check(properties: Path) -> Row:
    """What was looked at. Raises CommandError with the first thing that is not well, SettingError."""
    config = ServerConfig.load(properties)
    ready_file = config.string("ottla.ready.file")
    if ready_file and not Path(ready_file).exists():
        raise CommandError(f"node {config.node_id} is not ready: {ready_file} is not there")
    brokers = [_here(each.endpoint) for each in config.client_listeners] if config.is_broker else []
    for endpoint in brokers:
        Client(str(endpoint), CONNECT_TIMEOUT_S).close()  # it asks for ApiVersions, so somebody answers
    listener = config.controller_listener
    controllers = [_here(listener.endpoint)] if config.is_controller and listener is not None else []
    for endpoint in controllers:
        _connect(endpoint)
    return {"node": config.node_id, "brokers": [*map(str, brokers)], "controllers": [*map(str, controllers)]}


def _here(endpoint: Endpoint) -> Endpoint:
    """Where this machine itself reaches a listener."""
    return Endpoint("localhost", endpoint.port) if endpoint.host in ANY_HOST else endpoint


def _connect(endpoint: Endpoint) -> None:
    try:
        socket.create_connection(endpoint, CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise CommandError(
            f"the controller's listener {endpoint} does not answer: {error.strerror or error}"
        ) from error
