"""Fetch (key 1), versions 4 to 18: the hot path out, for consumers and followers alike.

Here the request finds its session (KIP-227); `PendingFetch` does the rest. Consumers get at most ``fetch.max.bytes``.
"""

from functools import partial

from ottla.broker.context import BrokerContext
from ottla.broker.fetch_tuples import FIRST_WITH_TOPIC_ID, FetchRequestTuple, Forgotten, Topics
from ottla.broker.handlers.cluster_view import node_endpoints
from ottla.broker.handlers.common import raw_route
from ottla.broker.handlers.fetching.fetch_read import Reader
from ottla.broker.handlers.fetching.pending_fetch import PendingFetch, stop_watching
from ottla.broker.handlers.fetching.read_replicas import ReadReplicas
from ottla.broker.network.beside import LARGE_FETCH_BYTES
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.replication.decisions.fetch_session import (
    FINAL_EPOCH,
    FIRST_EPOCH,
    NO_SESSION,
    FetchSession,
    SessionPartition,
)
from ottla.broker.wire.fetch_fast import encode_fetch_response, walk_fetch
from ottla.runtime.errors import KafkaError

ANSWER_BYTES = 4 << 20
"""The most that is read for one answer, or twice ``fetch.min.bytes``: 2-5 ms of the loop. What finds no room in it comes first in the next."""
FOLLOWER_BYTES, CONSUMER_BYTES = 1 << 20, 64 << 10
"""What an answer may hold while clients hold all the memory they may (``queued.max.request.bytes``). Never less than a batch."""


def routes(broker: BrokerContext) -> list[Route]:
    return [raw_route("Fetch", FetchHandler(broker).handle)]


class FetchHandler:
    """What the handler needs, bound once."""

    def __init__(self, broker: BrokerContext) -> None:
        self.replicas = broker.replicas
        self.cold_reads = broker.cold_reads
        self.endpoints = partial(node_endpoints, broker.image)
        self._sessions = broker.replicas.sessions
        self._read_replicas = ReadReplicas(broker.config, broker.image)
        self._now_ms = broker.timers.now_ms
        self._consumer_bytes_max = broker.config.integer("fetch.max.bytes")

    def handle(self, request: RequestContext, frame: memoryview, position: int) -> None:
        version = request.version
        if len(frame) <= LARGE_FETCH_BYTES:
            self._take(request, walk_fetch(frame, position, version))
            return
        copy = memoryview(bytes(frame))
        request.read_beside(lambda: walk_fetch(copy, position, version), partial(self._take, request))

    def _take(self, request: RequestContext, asked: FetchRequestTuple) -> None:
        version = request.version
        (
            replica,
            epoch,
            max_wait_ms,
            min_bytes,
            max_bytes,
            isolation,
            session_id,
            session_epoch,
            topics,
            forgotten,
            rack,
            _,
        ) = asked
        reader = Reader(version, replica, epoch, isolation)
        if reader.is_follower:
            request.is_of_follower()
        full = session_epoch in (FIRST_EPOCH, FINAL_EPOCH)
        try:
            if full:
                session = self._open(session_id, session_epoch, topics, reader)
            else:
                session = self._resume(session_id, session_epoch, forgotten, reader)
        except KafkaError as error:
            request.count_errors((error.code,))
            request.respond(encode_fetch_response(version, [], error_code=error.code))
            return
        named = self._want(session, topics)
        if not session.partitions and session.id != NO_SESSION:
            self._sessions.remove(session.id)  # as Kafka does: a session of nothing ends
            session.id = NO_SESSION
        if reader.is_follower:
            request.connection.comes_first = True
        else:
            max_bytes = min(max_bytes, self._consumer_bytes_max)
        max_bytes = min(max_bytes, max(ANSWER_BYTES, 2 * min_bytes))
        if request.connection.memory_is_short:
            max_bytes = min(max_bytes, FOLLOWER_BYTES if reader.is_follower else CONSUMER_BYTES)
            min_bytes = min(min_bytes, max_bytes)
        near = None
        if not reader.is_follower:
            near = self._read_replicas.near(rack, version, request.connection.listener_name)
        pending = PendingFetch(
            self,
            request,
            session,
            reader,
            near,
            full=full,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
        )
        pending.start(named, max_wait_ms)

    def _open(self, session_id: int, session_epoch: int, topics: Topics, reader: Reader) -> FetchSession:
        """A session for a request that names everything; one with id 0, for this request only, if it wants or gets none."""
        if session_id != NO_SESSION:
            self._forget(self._sessions.remove(session_id))
        if reader.is_follower:
            self._forget(self._sessions.succeeded(reader.replica_id, reader.replica_epoch))
        by_id = reader.version >= FIRST_WITH_TOPIC_ID
        now_ms = self._now_ms()
        if session_epoch == FIRST_EPOCH:
            size = sum(len(partitions) for _, partitions in topics)
            session, evicted = self._sessions.create(
                size,
                privileged=reader.is_follower,
                uses_ids=by_id,
                now_ms=now_ms,
                replica_id=reader.replica_id,
                broker_epoch=reader.replica_epoch,
            )
            self._forget(evicted)
            if session is not None:
                return session
        return FetchSession(NO_SESSION, privileged=reader.is_follower, uses_ids=by_id, now_ms=now_ms)

    def _resume(self, session_id: int, session_epoch: int, forgotten: Forgotten, reader: Reader) -> FetchSession:
        by_id = reader.version >= FIRST_WITH_TOPIC_ID
        self._forget(self._sessions.outlived(session_id, reader.replica_epoch))
        session = self._sessions.resume(session_id, session_epoch, uses_ids=by_id, now_ms=self._now_ms())
        if session.parked is not None:
            session.parked.answer_now()  # a client that did not wait for its answer gets that first
        for topic, indexes in forgotten:
            for index in indexes:
                self._forget_partition(session, session.forget((topic, index)))
        return session

    def _forget_partition(self, session: FetchSession, entry: SessionPartition | None) -> None:
        if entry is None:
            return
        if entry.watches is not None:
            entry.watches.unwatch(entry)
        partition = self.replicas.partitions.get((entry.topic, entry.index))
        if partition is not None and partition.leader is not None and session.privileged:
            partition.leader.lost_contact(session.contact)

    @staticmethod
    def _want(session: FetchSession, topics: Topics) -> list[SessionPartition]:
        return [session.want(topic, wanted) for topic, partitions in topics for wanted in partitions]

    @staticmethod
    def _forget(session: FetchSession | None) -> None:
        """The session is gone: nobody may find it through a partition, and a request that waits on it is answered."""
        if session is not None:
            if session.parked is not None:
                session.parked.answer_now()
            stop_watching(session)
            session.end()
