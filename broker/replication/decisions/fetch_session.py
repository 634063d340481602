"""Incremental fetch sessions (KIP-227): the server remembers what a client fetches, so each side sends only what changed.

Ours goes one step further than Kafka's: a session keeps the partitions that *may* have news (``dirty``), so that a fetch
costs what has changed and not the size of the session. A partition is dirty when the request named it, when it was touched
(records, high watermark, leadership), and as long as its last answer had records in it, or no room for those that there are.
The order of the dirty ones is that of their turns: who was given something goes to the tail, who found no room stays ahead.
Source: FetchSession.scala, kraft.md 3.4.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from ottla.broker.fetch_tuples import FetchPartition
from ottla.broker.replication.decisions.replica import FollowerContact
from ottla.runtime.errors import ErrorCode, KafkaError

NO_SESSION = 0
FIRST_EPOCH = 0
FINAL_EPOCH = -1
CONSUMER_ID = -1
"""In the place of a follower's broker id."""
EPOCH_MAX = 2**31 - 1
SCAN_PAUSE_MS = 1_000

PartitionKey = tuple[str | bytes, int]
"""(topic name or 16-byte topic id, as the client names it; partition index)."""


class ParkedFetch(Protocol):
    """The shell's Fetch that waits on a session."""

    def look_again(self) -> None:
        """Something it may want has come."""
        ...

    def answer_now(self) -> None:
        """It must be answered in this moment, with what is at hand."""
        ...


class Watching(Protocol):
    """The shell's list of sessions that are told when a partition has news."""

    def unwatch(self, entry: "SessionPartition") -> None: ...


class SessionPartition:
    """One partition of a session: what the client wants of it, and what it was last told."""

    __slots__ = ("index", "sent_high_watermark", "sent_log_start", "session", "topic", "wanted", "watches")

    def __init__(self, session: "FetchSession", topic: str | bytes, wanted: FetchPartition) -> None:
        self.session = session
        self.topic = topic
        self.index = wanted[0]
        self.wanted = wanted
        self.sent_high_watermark = -1
        self.sent_log_start = -1
        self.watches: Watching | None = None  # where this entry waits for news, in the shell

    def has_news(self, high_watermark: int, log_start_offset: int) -> bool:
        """Whether an answer without records, error or divergence would tell the client anything. It is then told."""
        if high_watermark == self.sent_high_watermark and log_start_offset == self.sent_log_start:
            return False
        self.sent_high_watermark = high_watermark
        self.sent_log_start = log_start_offset
        return True

    def was_not_heard(self) -> None:
        """The next answer tells everything anew."""
        self.sent_high_watermark = self.sent_log_start = -1


class FetchSession:
    """What one client (or follower) fetches. ``epoch`` is the one its next request must carry.

    A follower's session belongs to one registration of its broker: a partition that it does not name again is known to be
    the earlier registration's, which may not join an ISR. It has one at a time (`SessionCache.succeeded`).
    """

    __slots__ = (
        "broker_epoch",
        "contact",
        "created_ms",
        "dirty",
        "epoch",
        "id",
        "last_used_ms",
        "parked",
        "partitions",
        "privileged",
        "replica_id",
        "uses_ids",
    )

    def __init__(
        self,
        session_id: int,
        *,
        privileged: bool,
        uses_ids: bool,
        now_ms: int,
        replica_id: int = CONSUMER_ID,
        broker_epoch: int = -1,
    ) -> None:
        self.id = session_id
        self.replica_id = replica_id
        self.broker_epoch = broker_epoch
        self.epoch = next_epoch(FIRST_EPOCH)
        self.privileged = privileged  # a follower's: must not lose its place to consumers
        self.uses_ids = uses_ids
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.contact = FollowerContact(now_ms)
        self.partitions: dict[PartitionKey, SessionPartition] = {}
        self.dirty: dict[SessionPartition, None] = {}  # a dict for its order: first touched, first served
        self.parked: ParkedFetch | None = None  # the request that waits, if one does

    def want(self, topic: str | bytes, wanted: FetchPartition) -> SessionPartition:
        """Adds or updates a partition that the request names; it is dirty from then on."""
        key = (topic, wanted[0])
        entry = self.partitions.get(key)
        if entry is None:
            entry = self.partitions[key] = SessionPartition(self, topic, wanted)
        else:
            entry.wanted = wanted
        self.dirty[entry] = None
        return entry

    def forget(self, key: PartitionKey) -> SessionPartition | None:
        entry = self.partitions.pop(key, None)
        if entry is not None:
            self.dirty.pop(entry, None)
        return entry

    def end(self) -> None:
        """Nobody asks with it any more. Its partitions know it, so that it would be a cycle: one for each fetch of who has no session."""
        self.partitions.clear()
        self.dirty.clear()

    def served(self, entry: SessionPartition, *, exhausted: bool) -> None:
        """An answer for ``entry`` was made, with all there was room for. What may have more goes to the tail: all get their turn."""
        self.dirty.pop(entry, None)
        if not exhausted:
            self.dirty[entry] = None


def next_epoch(epoch: int) -> int:
    return 1 if epoch >= EPOCH_MAX else epoch + 1


class SessionCache:
    """At most ``slots`` sessions; knows who must make room for whom."""

    def __init__(self, slots: int, eviction_ms: int, draw_id: Callable[[], int]) -> None:
        """``eviction_ms`` (Kafka: 120,000) protects a used session; ``draw_id`` gives random positive int32s."""
        self.slots = slots
        self.eviction_ms = eviction_ms
        self._draw_id = draw_id
        self._sessions: dict[int, FetchSession] = {}  # least recently used first
        self._of_followers: dict[int, FetchSession] = {}  # by replica
        self._scan_after_ms = -1

    def __len__(self) -> int:
        return len(self._sessions)

    def create(
        self,
        size: int,
        *,
        privileged: bool,
        uses_ids: bool,
        now_ms: int,
        replica_id: int = CONSUMER_ID,
        broker_epoch: int = -1,
    ) -> tuple[FetchSession | None, FetchSession | None]:
        """A new session for ``size`` partitions, and the one evicted for it; (None, None) when there is no room."""
        if size == 0 or self.slots <= 0:
            return None, None
        evicted = None
        if len(self._sessions) >= self.slots:
            evicted = self._victim(privileged, size, now_ms)
            if evicted is None:
                return None, None
            self.remove(evicted.id)
        session = FetchSession(
            self._fresh_id(),
            privileged=privileged,
            uses_ids=uses_ids,
            now_ms=now_ms,
            replica_id=replica_id,
            broker_epoch=broker_epoch,
        )
        self._sessions[session.id] = session
        known = self._of_followers.get(replica_id)
        if replica_id != CONSUMER_ID and (known is None or known.broker_epoch <= broker_epoch):
            self._of_followers[replica_id] = session
        return session, evicted

    def _fresh_id(self) -> int:
        while True:
            session_id = self._draw_id()
            if session_id != NO_SESSION and session_id not in self._sessions:
                return session_id

    def _victim(self, privileged: bool, size: int, now_ms: int) -> FetchSession | None:
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms > self.eviction_ms:
            return oldest
        if now_ms < self._scan_after_ms:
            return None
        least = self._least_valuable(self._sessions.values(), privileged, now_ms)
        if least is not None and (least.privileged, len(least.partitions)) < (privileged, size):
            return least
        # A full cache of busy sessions is scanned once in a while, not for each client that finds no room.
        self._scan_after_ms = now_ms + SCAN_PAUSE_MS
        return None

    def _least_valuable(self, sessions: Iterable[FetchSession], privileged: bool, now_ms: int) -> FetchSession | None:
        aged = [
            session
            for session in sessions
            if now_ms - session.created_ms > self.eviction_ms and (privileged or not session.privileged)
        ]
        return min(aged, key=lambda session: (session.privileged, len(session.partitions), session.id), default=None)

    def resume(self, session_id: int, epoch: int, *, uses_ids: bool, now_ms: int) -> FetchSession:
        """The session of an incremental request, its epoch moved on. Raises KafkaError with one of the three session errors."""
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no fetch session {session_id}")
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH, f"session epoch {epoch}, expected {session.epoch}")
        if session.uses_ids != uses_ids:
            raise KafkaError(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "topic ids in some requests of a session, names in others"
            )
        session.epoch = next_epoch(epoch)
        session.last_used_ms = now_ms
        session.contact.last_fetch_ms = now_ms
        self._sessions[session_id] = self._sessions.pop(session_id)
        return session

    def outlived(self, session_id: int, broker_epoch: int) -> FetchSession | None:
        """The session, which is then gone, if it is one of an earlier registration of the follower."""
        session = self._sessions.get(session_id)
        return self.remove(session_id) if session is not None and session.broker_epoch != broker_epoch else None

    def succeeded(self, replica_id: int, broker_epoch: int) -> FetchSession | None:
        """The session that a follower had which now names everything anew; it is gone then.

        What still comes of it, over a connection that the follower gave up, is older than what it says now, and in an idle partition
        nothing would correct it. A late request that would open one ends the newer session the same way: the follower's next request
        does not find it, and says everything again.
        """
        session = self._of_followers.get(replica_id)
        if session is None or session.broker_epoch > broker_epoch:
            return None
        return self.remove(session.id)

    def remove(self, session_id: int) -> FetchSession | None:
        session = self._sessions.pop(session_id, None)
        if session is not None and self._of_followers.get(session.replica_id) is session:
            del self._of_followers[session.replica_id]
        return session
