"""The way to a cluster: who its brokers are, who leads, who coordinates; asking them again while an error may pass."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import count
from types import TracebackType
from typing import Any, Self

from ottla.pipeline.wire.codec import Body
from ottla.pipeline.wire.connection import Connection
from ottla.pipeline.wire.errors import (
    BrokerError,
    BrokerUnreachableError,
    CoordinatorError,
    DeadlineError,
    PartitionError,
    UnknownTopicError,
)
from ottla.pipeline.wire.metadata import Topic, TopicPartition, View, metadata_body, view_of
from ottla.pipeline.wire.retries import COORDINATOR_PASSES, backoff_s, codes_in, is_retriable
from ottla.pipeline.wire.settings import ClientSettings
from ottla.runtime.errors import ErrorCode

METADATA_LEAST = 4
"""The first version in which a question about a topic does not create it."""

_KINDS = {"group": 0, "transaction": 1}

Make = Callable[[Connection, list[TopicPartition]], Body]
Take = Callable[[Any], Mapping[TopicPartition, int]]


class Cluster:
    """Connections are opened on demand and kept. For one thread."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._connections: dict[int, Connection] = {}
        self._kept: dict[int, list[Connection]] = {}
        self._bootstrap: Connection | None = None
        self._brokers: dict[int, tuple[str, int]] = {}
        self._topics: dict[str, Topic] = {}
        self._coordinators: dict[tuple[str, str], int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends all connections; they are opened anew when they are needed."""
        kept = [connection for pool in self._kept.values() for connection in pool]
        for connection in (*self._connections.values(), *kept, self._bootstrap):
            if connection is not None:
                connection.close()
        self._connections.clear()
        self._kept.clear()
        self._bootstrap = None

    # -- who is there ---------------------------------------------------------------------------------------------

    @property
    def brokers(self) -> dict[int, tuple[str, int]]:
        """The brokers of the last Metadata."""
        return dict(self._brokers)

    def topics(self, names: Iterable[str] | None = None) -> dict[str, Topic]:
        """Those of these topics that exist, or all, as a broker sees them now."""
        wanted = None if names is None else set(names)
        last = ""
        for _ in self.attempts():
            view = self._look(wanted)
            if not view.unsettled:
                return view.topics
            last = ", ".join(f"{topic}: {code.name}" for topic, code in sorted(view.unsettled.items()))
        raise DeadlineError("asking for topics", self.settings.api_timeout_s, last)

    def topic(self, name: str) -> Topic:
        """What is known of a topic; asked for where nothing is. Raises UnknownTopicError."""
        found = self._topics.get(name) or self.topics([name]).get(name)
        if found is None:
            raise UnknownTopicError(name)
        return found

    def leader(self, topic: str, partition: int) -> int:
        """The node that leads, -1 while nobody does. Raises UnknownTopicError, PartitionError."""
        found = self.topic(topic).partitions.get(partition)
        if found is None:
            self.forget(topic)
            raise PartitionError(topic, partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return found.leader

    def forget(self, topic: str | None = None) -> None:
        """What is known of a topic, or of all: the next question is asked anew."""
        if topic is None:
            self._topics.clear()
        else:
            self._topics.pop(topic, None)

    def _look(self, names: set[str] | None) -> View:
        view = view_of(self.ask_any("Metadata", metadata_body(names), least=METADATA_LEAST))
        self._brokers = view.brokers or self._brokers
        for name in set(self._topics) if names is None else names:
            self.forget(name)
        self._topics |= view.topics
        if self._brokers and self._bootstrap is not None:
            self._bootstrap.close()
        return view

    # -- connections ----------------------------------------------------------------------------------------------

    def connection(self, node_id: int) -> Connection:
        """The connection for questions with one answer each. Raises BrokerUnreachableError."""
        found = self._connections.get(node_id)
        if found is not None and found.outstanding:
            found.close()  # whoever asked gave up before the answer
        if found is None or not found.is_open:
            found = self._connections[node_id] = self.dedicated(node_id)
        return found

    def dedicated(self, node_id: int) -> Connection:
        """A connection of the caller's own, to send ahead on and to close. Raises BrokerUnreachableError."""
        address = self._brokers.get(node_id)
        if address is None:
            self._look(set())
            address = self._brokers.get(node_id)
        if address is None:
            raise BrokerUnreachableError(str(node_id), "connect", "it is not among the cluster's brokers")
        return Connection.open(address, self.settings, node_id)

    def take_connection(self, node_id: int) -> Connection:
        """A connection of the caller's own, one that was kept if there is. Raises BrokerUnreachableError."""
        kept = self._kept.get(node_id, [])
        while kept:
            connection = kept.pop()
            if connection.is_open and connection.address == self._brokers.get(node_id, connection.address):
                return connection
            connection.close()
        return self.dedicated(node_id)

    def keep_connection(self, connection: Connection) -> None:
        """Takes one back on which nothing is outstanding, for the next who needs it."""
        self._kept.setdefault(connection.node_id, []).append(connection)

    def attempts(self, seconds: float | None = None) -> Iterator[int]:
        """Numbers of tries, with a pause before each but the first, until the time is up. At least two."""
        until = time.monotonic() + (self.settings.api_timeout_s if seconds is None else seconds)
        for attempt in count():
            yield attempt
            pause_s = backoff_s(attempt, self.settings.retry_backoff_ms, self.settings.retry_backoff_max_ms)
            if time.monotonic() + pause_s >= until and attempt:
                return
            time.sleep(pause_s)

    # -- asking ---------------------------------------------------------------------------------------------------

    def ask_any(self, api: str, body: Body, version: int | None = None, *, least: int = 0) -> Any:
        """The answer of whichever broker gives one. Raises DeadlineError."""
        last: BrokerError | None = None
        for _ in self.attempts():
            for connect in self._anybody():
                try:
                    connection = connect()
                    return connection.ask(
                        api, body, connection.version(api, least=least) if version is None else version
                    )
                except BrokerError as error:
                    last = error
        raise DeadlineError(api, self.settings.api_timeout_s, str(last))

    def ask_node(self, node_id: int, api: str, body: Body, version: int | None = None) -> Any:
        """The answer of one broker, asked once. Raises BrokerError."""
        return self.connection(node_id).ask(api, body, version)

    def ask_leaders(
        self, api: str, partitions: Iterable[TopicPartition], make: Make, take: Take, *, most_version: int = 1 << 15
    ) -> dict[TopicPartition, ErrorCode]:
        """Asks each leader about its partitions, all leaders at once, and those again whose error may pass.

        ``make`` writes the request for a connection and partitions; ``take`` reads an answer and says what became of
        each. Errors that do not pass are in what is returned. Raises PartitionError when the time is up.
        """
        waiting: dict[TopicPartition, str] = dict.fromkeys(partitions, "")
        ended: dict[TopicPartition, ErrorCode] = {}
        for _ in self.attempts():
            for node, owned in self._by_leader(waiting).items():
                self._send_to(node, (api, most_version), owned, make, waiting)
            for connection in [link for link in self._connections.values() if link.outstanding]:
                self._take_from(connection, take, waiting, ended)
            if not waiting:
                return ended
            for topic in {topic for topic, _ in waiting}:
                self.forget(topic)
        (topic, partition), said = next(iter(waiting.items()))
        raise PartitionError(
            topic,
            partition,
            ErrorCode.REQUEST_TIMED_OUT,
            said=f"{api} in {self.settings.api_timeout_s:g} s; last: {said}",
        )

    def ask_coordinator(self, kind: str, key: str, api: str, body: Body, version: int | None = None) -> Any:
        """The answer of a group's or a transactional id's coordinator; found anew, and asked again, while it moves."""
        last = ""
        for _ in self.attempts():
            try:
                answer = self.ask_node(self.coordinator(kind, key), api, body, version)
            except BrokerError as error:
                last = str(error)
            except CoordinatorError as error:
                if error.code not in COORDINATOR_PASSES:
                    raise
                last = str(error)
            else:
                passing = codes_in(answer) & COORDINATOR_PASSES
                if not passing:
                    return answer
                last = ", ".join(sorted(code.name for code in passing))
            self.forget_coordinator(kind, key)
        raise DeadlineError(f"{api} of {kind} {key}", self.settings.api_timeout_s, last)

    def coordinator(self, kind: str, key: str) -> int:
        """The node that coordinates, asked for once. Raises CoordinatorError."""
        found = self._coordinators.get((kind, key))
        if found is None:
            # Version 3 is the last that asks about one key, and every cluster has it.
            answer = self.ask_any("FindCoordinator", {"key": key, "key_type": _KINDS[kind]}, 3)
            if answer.error_code:
                raise CoordinatorError(kind, key, answer.error_code, answer.error_message or "")
            found = self._coordinators[kind, key] = answer.node_id
            self._brokers[found] = (answer.host, answer.port)
        return found

    def forget_coordinator(self, kind: str, key: str) -> None:
        self._coordinators.pop((kind, key), None)

    # -- how ------------------------------------------------------------------------------------------------------

    def _anybody(self) -> Iterator[Callable[[], Connection]]:
        """Ways to brokers: open connections first, then known brokers, then the bootstrap servers."""
        is_open = [node for node, link in self._connections.items() if link.is_open and not link.outstanding]
        for node in [*is_open, *(node for node in list(self._brokers) if node not in is_open)]:
            yield lambda node=node: self.connection(node)  # type: ignore[misc]
        for address in self.settings.bootstrap_servers:
            yield lambda address=address: self._bootstrapped(address)  # type: ignore[misc]

    def _bootstrapped(self, address: tuple[str, int]) -> Connection:
        if self._bootstrap is None or not self._bootstrap.is_open:
            self._bootstrap = Connection.open(address, self.settings)
        return self._bootstrap

    def _by_leader(self, waiting: dict[TopicPartition, str]) -> dict[int, list[TopicPartition]]:
        """Partitions by the node that leads; those that nobody leads stay waiting and say so."""
        unknown = {topic for topic, _ in waiting} - self._topics.keys()
        if unknown:
            self.topics(unknown)
        owned: dict[int, list[TopicPartition]] = {}
        for topic, partition in waiting:
            leader = self.leader(topic, partition)
            if leader < 0:
                waiting[topic, partition] = "it has no leader"
            else:
                owned.setdefault(leader, []).append((topic, partition))
        return owned

    def _send_to(
        self,
        node: int,
        api: tuple[str, int],
        owned: list[TopicPartition],
        make: Make,
        waiting: dict[TopicPartition, str],
    ) -> None:
        try:
            connection = self.connection(node)
            connection.send(api[0], make(connection, owned), connection.version(*api))
        except BrokerError as error:
            waiting |= dict.fromkeys(owned, str(error))

    def _take_from(
        self,
        connection: Connection,
        take: Take,
        waiting: dict[TopicPartition, str],
        ended: dict[TopicPartition, ErrorCode],
    ) -> None:
        try:
            said = take(connection.receive())
        except BrokerError as error:
            for each in waiting:
                waiting[each] = waiting[each] or str(error)
            return
        for which, number in said.items():
            code = ErrorCode(number)
            if is_retriable(code):
                waiting[which] = f"broker {connection.name}: {code.name}"
            else:
                ended[which] = code
                with suppress(KeyError):
                    del waiting[which]
