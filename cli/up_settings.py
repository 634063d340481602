"""The settings that `ottla up --set` puts into every node's server.properties."""

import click

_OF_EACH_NODE = (
    "advertised.listeners",
    "broker.id",
    "controller.listener.names",
    "controller.quorum.bootstrap.servers",
    "controller.quorum.voters",
    "listeners",
    "log.dir",
    "log.dirs",
    "metadata.log.dir",
    "node.id",
    "ottla.log.file",
    "ottla.metrics.listener",
    "ottla.pid.file",
    "ottla.ready.file",
    "process.roles",
)


def parse_settings(texts: tuple[str, ...]) -> dict[str, str]:
    """``name=value`` each; whether there is such a setting and it may have the value, whoever makes the nodes checks.

    Raises UsageError for what is another text, and for what each node has of its own.
    """
    settings = {}
    for text in texts:
        name, separator, value = (part.strip() for part in text.partition("="))
        if not separator or not name:
            raise click.UsageError(f"--set {text}: write name=value")
        if "\n" in value or value.endswith("\\"):
            raise click.UsageError(f"--set {name}: a value is one line of a server.properties")
        if name in _OF_EACH_NODE:
            raise click.UsageError(f"--set {name}: each node has its own; change DIR/node-I/server.properties")
        settings[name] = value
    return settings
