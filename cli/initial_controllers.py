"""Who the quorum's first voters are, as `storage format` is told (KIP-853)."""

from random import SystemRandom
from typing import NamedTuple

import click

from ottla.quorum.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from ottla.runtime.identifiers import id_from_text, random_id
from ottla.runtime.settings.definitions import SettingError
from ottla.runtime.settings.endpoints import parse_endpoint
from ottla.runtime.settings.server import ServerConfig

_OPTION = "--initial-controllers"


class InitialControllers(NamedTuple):
    """The three options, of which a controller of a dynamic quorum needs one and any other node none."""

    standalone: bool = False
    none: bool = False
    listed: str | None = None

    def voters(self, config: ServerConfig) -> VoterSet | None:
        """None: the node learns the voters from the log or the settings. Raises UsageError."""
        given = [self.standalone, self.none, self.listed is not None].count(True)
        if given > 1:
            raise click.UsageError("give one of --standalone, --initial-controllers and --no-initial-controllers")
        if not config.is_controller and (self.standalone or self.listed is not None):
            raise click.UsageError("this node is no controller (process.roles): it cannot be an initial one")
        if config.voters and given:
            raise click.UsageError("controller.quorum.voters names the voters already: remove it, or the option")
        if config.is_controller and not config.voters and not given:
            raise click.UsageError(
                "this controller has no controller.quorum.voters: give --standalone (the first of a new quorum), "
                "--initial-controllers (one of its first) or --no-initial-controllers (to join a quorum)"
            )
        if self.listed is not None:
            return _listed(self.listed, config)
        return _alone(config) if self.standalone else None


def _alone(config: ServerConfig) -> VoterSet:
    endpoint = config.controller_endpoint
    assert endpoint is not None, "settings are checked when they are read"
    key = ReplicaKey(config.node_id, random_id(SystemRandom()))
    return VoterSet.of([Voter(key, Endpoint(*endpoint))])


def _listed(text: str, config: ServerConfig) -> VoterSet:
    try:
        voters = VoterSet.of(_voter(each.strip()) for each in text.split(","))
    except (ValueError, SettingError) as error:
        raise click.UsageError(f"{_OPTION}: {error}") from error
    own, endpoint = voters.get(config.node_id), config.controller_endpoint
    assert endpoint is not None, "settings are checked when they are read"
    if own is None:
        raise click.UsageError(
            f"{_OPTION} does not name this node {config.node_id}: use --no-initial-controllers to join"
        )
    if own.endpoint != Endpoint(*endpoint):
        raise click.UsageError(
            f"{_OPTION} says that node {config.node_id} listens on {own.endpoint.host}:{own.endpoint.port}, it does on {endpoint}"
        )
    return voters


def _voter(text: str) -> Voter:
    """``1@host:9093:directory-id``. Raises ValueError, SettingError."""
    node, separator, rest = text.partition("@")
    address, _, directory_id = rest.rpartition(":")
    if not separator or not (node.isascii() and node.isdigit()) or not address:
        raise ValueError(f"{text!r} is not ID@HOST:PORT:DIRECTORY-ID")
    return Voter(ReplicaKey(int(node), id_from_text(directory_id)), Endpoint(*parse_endpoint(address, _OPTION)))
