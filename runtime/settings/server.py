"""A node's configuration: ``server.properties`` and ``KAFKA_*``, checked as a whole before anything starts."""

import os
import socket
from collections.abc import Iterable, Mapping
from copy import copy
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TypeVar

from ottla.runtime.settings.definitions import SettingError, Value, server_settings
from ottla.runtime.settings.endpoints import (
    Endpoint,
    Listener,
    parse_detours,
    parse_endpoint,
    parse_listeners,
    parse_voters,
)
from ottla.runtime.settings.problems import Problems
from ottla.runtime.settings.properties import from_environment, read_properties, text_of, unknown_settings
from ottla.runtime.settings.security import INTER_BROKER_PROTOCOL, broken_promises

T = TypeVar("T", bool, int, float, str, tuple[str, ...])

METRICS_LISTENER = "ottla.metrics.listener"
DETOURS = "ottla.peer.detours"
LISTENERS = "listeners"
ADVERTISED = "advertised.listeners"
VOTERS = "controller.quorum.voters"
BOOTSTRAP_SERVERS = "controller.quorum.bootstrap.servers"
PER_ADDRESS = "max.connections.per.ip"
PER_ADDRESS_OF_SOME = "max.connections.per.ip.overrides"
ANY_HOST = ("", "0.0.0.0", "::")  # noqa: S104 - listened on, not bound here
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class ServerConfig:
    """Typed reading of settings by Kafka's names; what a node derives from several of them stands as a property."""

    def __init__(self, texts: Mapping[str, str], source: str = "settings", unread: Iterable[str] = ()) -> None:
        """Raises SettingError with a line for each unknown name, impossible value, promise that cannot be kept, and setting
        that is missing or contradicts another. ``unread``: such lines of reading the texts, which are told with them."""
        self.texts = dict(texts)
        problems = Problems([*unread, *broken_promises(texts), *unknown_settings(texts, source)])
        self._values = _parse(texts, problems)
        self.voters: dict[int, Endpoint] = problems.read(VOTERS, parse_voters, self.strings(VOTERS)) or {}
        self.bootstrap_controllers = problems.read(BOOTSTRAP_SERVERS, self._endpoints, BOOTSTRAP_SERVERS) or ()
        self.listeners = problems.read(LISTENERS, self._listeners, LISTENERS) or ()
        self._advertised = problems.read(ADVERTISED, self._listeners, ADVERTISED) or ()
        clients = tuple(each for each in self._advertised if each.name not in self.controller_listener_names)
        self._told_clients = clients or self.client_listeners
        self.metrics_listener: Endpoint | None = None
        if self.string(METRICS_LISTENER):
            text = self.string(METRICS_LISTENER)
            self.metrics_listener = problems.read(METRICS_LISTENER, parse_endpoint, text, METRICS_LISTENER)
        self.detours: dict[Endpoint, Endpoint] = (
            problems.read(DETOURS, parse_detours, self.strings(DETOURS), DETOURS) or {}
        )
        self._check(problems)
        problems.refuse()

    @classmethod
    def load(cls, path: str | Path, environment: Mapping[str, str] | None = None) -> "ServerConfig":
        """Reads the file; ``KAFKA_*`` variables win over it, as in Kafka's image."""
        try:
            text = text_of(Path(path))
        except OSError as error:
            raise SettingError(f"cannot read {path}: {error.strerror}") from error
        texts, unread = read_properties(text, str(path))
        texts.update(from_environment(os.environ if environment is None else environment))
        return cls(texts, str(path), unread)

    def changed(self, values: Mapping[str, Value]) -> "ServerConfig":
        """As this one, with settings that changed while the node runs."""
        other = copy(self)
        other._values = {**self._values, **values}
        return other

    def get(self, name: str) -> Value:
        """The value as set, or its default; KeyError for a name nobody knows."""
        if name in self._values:
            return self._values[name]
        return server_settings()[name].default_value

    def is_set(self, name: str) -> bool:
        return name in self._values

    @property
    def set_values(self) -> Mapping[str, Value]:
        """Of the settings that do not have their default for want of another."""
        return self._values

    def _typed(self, name: str, kind: type[T]) -> T:
        value = self.get(name)
        if not isinstance(value, kind):
            raise SettingError(f"{name} is not set and has no default")
        return value

    def integer(self, name: str) -> int:
        return self._typed(name, int)

    def number(self, name: str) -> float:
        return float(self._typed(name, float))

    def flag(self, name: str) -> bool:
        return self._typed(name, bool)

    def string(self, name: str) -> str:
        return self._typed(name, str)

    def strings(self, name: str) -> tuple[str, ...]:
        return self._typed(name, tuple)

    @property
    def node_id(self) -> int:
        return self.integer("node.id")

    @property
    def is_broker(self) -> bool:
        return "broker" in self.strings("process.roles")

    @property
    def is_controller(self) -> bool:
        return "controller" in self.strings("process.roles")

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """Each once: ``/data`` and ``/data/`` are one directory."""
        return tuple(dict.fromkeys(map(_plain, self.strings("log.dirs") or self.strings("log.dir"))))

    @property
    def metadata_log_dir(self) -> str:
        named = self.string("metadata.log.dir")
        return _plain(named) if named else self.log_dirs[0]

    @property
    def rack(self) -> str | None:
        return self.string("broker.rack") or None

    @property
    def controller_listener_names(self) -> tuple[str, ...]:
        return tuple(name.upper() for name in self.strings("controller.listener.names"))

    @property
    def client_listeners(self) -> tuple[Listener, ...]:
        return tuple(each for each in self.listeners if each.name not in self.controller_listener_names)

    @cached_property
    def advertised_listeners(self) -> tuple[Listener, ...]:
        """What clients and brokers are told to connect to. An empty host is this machine's name, as in Kafka."""
        return tuple(each if each.host else each._replace(host=socket.getfqdn()) for each in self._told_clients)

    @property
    def controller_listener(self) -> Listener | None:
        return next((each for each in self.listeners if each.name in self.controller_listener_names), None)

    @property
    def controller_endpoint(self) -> Endpoint | None:
        """Where the other controllers and the brokers reach this controller."""
        advertised = next((each for each in self._advertised if each.name in self.controller_listener_names), None)
        if advertised is not None:
            return advertised.endpoint
        listener = self.controller_listener
        if listener is None or self.node_id in self.voters:
            return self.voters.get(self.node_id)
        return Endpoint(socket.getfqdn() if listener.host in ANY_HOST else listener.host, listener.port)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names by which others may know this machine, as far as the settings say; and those that only it has."""
        named = [each.host for each in (*self.listeners, *self._advertised)]
        own = [socket.getfqdn()] if any(host in ANY_HOST for host in named) else []
        return tuple(dict.fromkeys([*(host for host in named if host not in ANY_HOST), *own, *LOOPBACK]))

    @property
    def inter_broker_listener(self) -> Listener:
        """Where the other brokers reach this one."""
        wanted = self.inter_broker_listener_name
        return next((each for each in self.advertised_listeners if each.name == wanted), self.advertised_listeners[0])

    @property
    def inter_broker_listener_name(self) -> str:
        """As it is written, also on a node that has none itself; a broker without one of that name uses its first."""
        return self.string("inter.broker.listener.name").upper() or self.string(INTER_BROKER_PROTOCOL)

    def _endpoints(self, name: str) -> tuple[Endpoint, ...]:
        return tuple(parse_endpoint(each, name) for each in self.strings(name))

    def _listeners(self, name: str) -> tuple[Listener, ...]:
        return parse_listeners(self.strings(name), name)

    def why_shut(self) -> str | None:
        """Why nobody could connect, brokers and whoever would change that neither; None: somebody can."""
        if self.integer(PER_ADDRESS) or self.string(PER_ADDRESS_OF_SOME):
            return None
        return f"{PER_ADDRESS}=0: nobody could connect: write who may, and how often, into {PER_ADDRESS_OF_SOME}"

    def _check(self, problems: Problems) -> None:
        """What is missing, and what contradicts what."""
        shut = self.why_shut()
        if shut is not None:
            problems.contradicts(shut, PER_ADDRESS, PER_ADDRESS_OF_SOME)
        if not self.is_set("node.id"):
            before = self.texts.get("broker.id")
            write = f"write node.id={before} in place of broker.id" if before else "give each node a number of its own"
            problems.contradicts(f"node.id is not set: {write}", "node.id")
        if not self.strings("process.roles"):
            line = "process.roles is not set: write broker, controller or broker,controller"
            problems.contradicts(line, "process.roles")
        if not self.voters and not self.bootstrap_controllers:
            line = f"neither {BOOTSTRAP_SERVERS} nor {VOTERS} is set: write host:port of the controllers"
            problems.contradicts(line, BOOTSTRAP_SERVERS, VOTERS)
        if self.is_controller:
            self._check_controller(problems)
        if self.is_broker:
            self._check_broker(problems)

    def _check_controller(self, problems: Problems) -> None:
        if self.is_set("node.id") and self.voters and self.node_id not in self.voters:
            problems.contradicts(
                f"{VOTERS} does not name this node's id {self.node_id}: to join a quorum that runs, write "
                f"{BOOTSTRAP_SERVERS} instead, and use ottla quorum add-controller"
            )
        if self.controller_listener is None:
            line = "a controller needs controller.listener.names, and that name among its listeners"
            problems.contradicts(line, LISTENERS)

    def _check_broker(self, problems: Problems) -> None:
        if not self.client_listeners:
            problems.contradicts(f"{LISTENERS} has none for clients: add PLAINTEXT://host:port", LISTENERS)
            return
        wanted = self.string("inter.broker.listener.name").upper()
        names = [each.name for each in self._told_clients]
        if wanted and wanted not in names:
            line = f"inter.broker.listener.name={wanted}: write one that is advertised: {', '.join(names)}"
            problems.contradicts(line, LISTENERS, ADVERTISED)
        bound = [each.name for each in self.client_listeners]
        for each in self._told_clients:
            if each.name not in bound:
                line = f"{ADVERTISED}={each.name}://{each.endpoint}: no listener has that name: write one of {', '.join(bound)}"
                problems.contradicts(line, LISTENERS, ADVERTISED)
            if each.host in ANY_HOST and each.host:
                line = f"{ADVERTISED}: nobody can connect to {each.host}: write {each.name}://host:{each.port} there"
                problems.contradicts(line, LISTENERS, ADVERTISED)
        self._check_groups(problems)
        self._check_consumer_groups(problems)

    def _check_groups(self, problems: Problems) -> None:
        least, most, protocols = (
            f"group.{each}"
            for each in ("min.session.timeout.ms", "max.session.timeout.ms", "coordinator.rebalance.protocols")
        )
        if self.integer(least) > self.integer(most):
            line = f"{least}={self.integer(least)}: write no more than {most}={self.integer(most)}, or nobody can join"
            problems.contradicts(line, least, most)
        if "classic" not in self.strings(protocols):
            problems.contradicts(f"{protocols} has to name classic: it cannot be left out (nor in Kafka)", protocols)

    def _check_consumer_groups(self, problems: Problems) -> None:
        """As Kafka: what operators may set for one group bounds what is set for all."""
        for what in ("assignment.interval.ms", "heartbeat.interval.ms", "session.timeout.ms"):
            name, least, most = (f"group.consumer.{bound}{what}" for bound in ("", "min.", "max."))
            if not self.integer(least) <= self.integer(name) <= self.integer(most):
                allowed = f"{least}={self.integer(least)} to {most}={self.integer(most)}"
                problems.contradicts(f"{name}={self.integer(name)}: allowed is {allowed}", name, least, most)
        heartbeat, session = "group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms"
        if self.integer(heartbeat) >= self.integer(session):
            line = f"{heartbeat}={self.integer(heartbeat)}: write less than {session}={self.integer(session)}"
            problems.contradicts(line, heartbeat, session)
        if not self.strings("group.consumer.assignors"):
            line = "group.consumer.assignors names none: the first of them assigns for members that ask for none"
            problems.contradicts(line, "group.consumer.assignors")


def _plain(path: str) -> str:
    """Without slashes at its end, or twice. What ``..`` leads to is the system's to say."""
    return str(PurePosixPath(path))


def _parse(texts: Mapping[str, str], problems: Problems) -> dict[str, Value]:
    """The values of the settings that are known."""
    known = server_settings()
    values: dict[str, Value] = {}
    for name, text in texts.items():
        value = problems.read(name, known[name].parse, text) if name in known else None
        if value is not None:
            values[name] = value
    return values
