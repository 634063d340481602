"""One Fetch request, from its first look at the partitions to its answer; parked in between if there is not enough.

It looks only at its session's dirty partitions. Answered when there are ``min_bytes``, or an error or divergence to tell, or
more than the answer has room for, or the time is up; never twice. What had no room stays dirty and is first in line next time.

A follower names a partition to say how far it is, and says it once. Where that could not be taken in, the answer to the same request
tells it, whatever else has no room: a later one would find nothing wrong, and the follower would count as one that never fetched.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.broker.fetch_tuples import (
    DIVERGING,
    ERROR,
    HIGH_WATERMARK,
    LEADER,
    LOG_START,
    PREFERRED,
    RECORDS,
    FetchedPartition,
    Topic,
)
from ottla.broker.handlers.fetching import fetch_read
from ottla.broker.handlers.fetching.fetch_read import Reader
from ottla.broker.handlers.fetching.quota import Quota
from ottla.broker.handlers.fetching.read_replicas import NearTo, elsewhere
from ottla.broker.network.request import RequestContext
from ottla.broker.replication.decisions.fetch_session import NO_SESSION, FetchSession, SessionPartition
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.throttling import feeds_throttled
from ottla.broker.wire.fetch_fast import encode_fetch_response
from ottla.log.results import ColdReadError
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.timers import Timer

if TYPE_CHECKING:
    from ottla.broker.handlers.fetching.fetch import FetchHandler

MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
FIRST_WITH_STORAGE_ERROR = 6

Answers = list[tuple[SessionPartition, FetchedPartition, bool]]
"""With each answer, whether there are records that had no room in it."""

Cold = list[tuple[SessionPartition, ColdReadError]]


class PendingFetch:
    """``full``: the answer lists every partition asked for; else only those with news."""

    __slots__ = (
        "_cold",
        "_done",
        "_handler",
        "_loading",
        "_manager",
        "_near",
        "_throttled_ms",
        "_timer",
        "_unheard",
        "_warmed",
        "full",
        "max_bytes",
        "min_bytes",
        "reader",
        "request",
        "session",
    )

    def __init__(
        self,
        handler: "FetchHandler",
        request: RequestContext,
        session: FetchSession,
        reader: Reader,
        near: NearTo | None,
        *,
        full: bool,
        min_bytes: int,
        max_bytes: int,
    ) -> None:
        self._handler = handler
        self._manager = handler.replicas
        self.request = request
        self.session = session
        self.reader = reader
        self._near = near  # a consumer's; it may be sent to another replica
        self.full = full
        self.min_bytes = min(min_bytes, max_bytes)
        self.max_bytes = max_bytes
        self._timer: Timer | None = None
        # What a follower named and may not fetch, with the error; 0: its log has to be cut first.
        self._unheard: dict[SessionPartition, int] = {}
        self._cold: Cold = []  # what the last look found not to be in the page cache
        self._warmed: set[SessionPartition] | None = None  # what was waited for
        self._throttled_ms = 0  # for how long the throttle keeps something back
        self._loading = self._done = False

    def start(self, named: Iterable[SessionPartition], max_wait_ms: int) -> None:
        """Answers at once if it may, else parks. ``named``: by the request."""
        if self.reader.is_follower:
            self._note_follower(named)
        wait = max_wait_ms > 0 and bool(self.session.partitions)
        if wait and self.min_bytes > 1 and not self._enough():
            self._park(max_wait_ms)
            return
        self._look(max_wait_ms if wait else 0)

    def look_again(self) -> None:
        if self._loading:
            return  # it looks again when that is done
        if self.min_bytes > 1 and not self._enough():
            self._watch_dirty()
        else:
            self._look(0)

    def expire(self) -> None:
        """The time is up: answers with what there is, if need be from the disk."""
        self._timer = None
        if not self._loading:
            self._look(0)

    def answer_now(self) -> None:
        """The client asks for something else already, or its session goes: answers with what is at hand."""
        self._respond(self._read()[0])

    def _look(self, wait_ms: int) -> None:
        """Answers, or waits: for the disk, then for records, for up to ``wait_ms`` or the time it waits anyway."""
        answers, size, urgent = self._read()
        if self._cold:
            self._load(wait_ms)
        elif urgent or size >= self.min_bytes:
            self._respond(answers)
        elif self._timer is not None:
            self._watch_dirty()
        elif wait_ms > 0:
            self._park(min(wait_ms, self._throttled_ms or wait_ms))
        else:
            self._respond(answers)

    # Reads that have to wait for the disk.

    def _load(self, wait_ms: int) -> None:
        """A thread waits for the disk, for all partitions at once; then everything is looked at again."""
        cold, self._cold = self._cold, []
        self._loading = True
        if self.session.parked is not self:
            self.session.parked = self
            self.request.on_close(self._drop)
        self._handler.cold_reads.load([each for _, each in cold], lambda: self._loaded(cold, wait_ms))

    def _loaded(self, cold: Cold, wait_ms: int) -> None:
        self._loading = False
        if self._done:
            return
        if self._warmed is None:
            self._warmed = set()
        self._warmed.update(entry for entry, _ in cold)  # read next time in any case, so that this ends
        self._look(wait_ms)

    # Waiting.

    def _park(self, max_wait_ms: int) -> None:
        self.session.parked = self
        self._watch_dirty()
        timers = self._manager.timers
        # A follower asks again at once, for ever: its empty answers share a beat, whatever else the brokers of this machine wait for.
        self._timer = (timers.call_at_beat if self.reader.is_follower else timers.call_later_ms)(
            max_wait_ms, self.expire
        )
        self.request.on_close(self._drop)

    def _watch_dirty(self) -> None:
        for entry in self.session.dirty:
            partition = self._partition(entry)
            if partition is not None:
                partition.watches.watch(entry, follower=self.reader.is_follower)

    def _unpark(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.session.parked is self:
            self.session.parked = None
            if self.session.id == NO_SESSION:
                stop_watching(self.session)

    def _drop(self) -> None:
        self._done = True
        self._unpark()
        self._end()

    def _end(self) -> None:
        if self.session.id == NO_SESSION:
            self.session.end()  # it was for this request only

    # Looking.

    def _note_follower(self, named: Iterable[SessionPartition]) -> None:
        """What the request says about the follower, before anything is read: the answer then tells what it changed."""
        now_ms = self._manager.timers.now_ms()
        for entry in named:
            # It moved, and ignores an answer to its old position that may still be on its way, with all it tells.
            entry.was_not_heard()
            partition = self._partition(entry)
            if partition is None:
                self._unheard[entry] = self._manager.missing_error(entry.topic, entry.index)
                continue
            try:
                if not fetch_read.note_follower(partition, entry.wanted, self.reader, self.session.contact, now_ms):
                    self._unheard[entry] = 0
            except KafkaError as error:
                self._unheard[entry] = error.code
                self._manager.note_damage(partition, error)

    def _partition(self, entry: SessionPartition) -> Partition | None:
        return self._manager.partitions.get((entry.topic, entry.index))

    def _enough(self) -> bool:
        if self._unheard:
            return True
        found = 0
        for entry in [*self.session.dirty]:
            partition = self._partition(entry)
            if partition is None:
                return True
            try:
                if self._near is not None and self._near(partition, entry.wanted) >= 0:
                    return True
                found += fetch_read.available_bytes(partition, entry.wanted, self.reader)
            except KafkaError:
                return True
            if found >= self.min_bytes:
                return True
        return False

    def _read(self) -> tuple[Answers, int, bool]:
        """(answers of the partitions looked at, bytes of records in them, whether they cannot wait).

        Reads that would wait for the disk are left out and noted, but for those that a thread has waited for. What a throttle
        keeps back has no room, and is in nobody's way.
        """
        answers: Answers = []
        size, urgent = 0, False
        quota = self._quota()
        dirty = self.session.dirty
        # A copy: a disk that fails under a read dirties all that was on it. What was not heard has no records, so it takes no room.
        for entry in [*(self._unheard | dirty if self._unheard else dirty)]:
            if 0 < size >= self.max_bytes and not self.full:
                break
            held = quota is not None and quota.holds(self._partition(entry))
            try:
                room = 0 if held else self.max_bytes - size
                if quota is not None:
                    room = min(room, quota.room)
                answer, more = self._read_one(entry, room, minimum_one=size == 0 and not held)
            except ColdReadError as cold:
                self._cold.append((entry, cold))
                size += cold.length
                continue
            found = len(answer[RECORDS] or b"")
            had_no_room = more and not found
            answers.append((entry, answer, had_no_room))
            size += found
            urgent = urgent or (more and not held) or _cannot_wait(answer)
            if quota is not None:
                quota.read(found)
            if had_no_room and not held and not self.full:
                break  # or a fetch would cost what all partitions with a backlog cost, for the little room that is left
        self._throttled_ms = quota.wait_ms if quota is not None else 0
        return answers, size, urgent

    def _quota(self) -> Quota | None:
        """What the throttle leaves to this request; None: nothing is throttled."""
        throttle = self._manager.leader_throttle
        if not throttle.is_on or not self.reader.is_follower:
            return None
        return Quota(throttle, self.reader.replica_id, self._manager.timers.now_ms())

    def _read_one(self, entry: SessionPartition, max_bytes: int, *, minimum_one: bool) -> tuple[FetchedPartition, bool]:
        refusal = self._unheard.get(entry)
        if refusal:
            return self._refused(entry, refusal), False
        partition = self._partition(entry)
        if partition is None:
            return self._refused(entry, self._manager.missing_error(entry.topic, entry.index)), False
        wait = self._warmed is not None and entry in self._warmed
        try:
            if self._near is not None and (replica := self._near(partition, entry.wanted)) >= 0:
                return elsewhere(partition, entry.wanted, replica), False
            return fetch_read.read(partition, entry.wanted, self.reader, max_bytes, minimum_one=minimum_one, wait=wait)
        except KafkaError as error:
            self._manager.note_damage(partition, error)
            return self._refused(entry, error.code), False

    def _refused(self, entry: SessionPartition, error: int) -> FetchedPartition:
        self._manager.traffic.failed_fetches += 1
        leader = self._manager.leader_of(entry.topic, entry.index) if error in MOVED else None
        if error == ErrorCode.KAFKA_STORAGE_ERROR and self.reader.version < FIRST_WITH_STORAGE_ERROR:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER  # what the client does not know it takes for the end
        return fetch_read.refused(entry.index, error, leader)

    # Answering.

    def _respond(self, answers: Answers) -> None:
        self._done = True
        self._unpark()
        session = self.session
        if self.reader.is_follower and self._manager.leader_throttle.is_on:
            self._note_throttled(answers)
        topics: dict[Topic, list[FetchedPartition]] = {}
        leaders: list[int] = []
        for entry, answer, had_no_room in answers:
            if self._settle(entry, answer, had_no_room) or self.full:
                topics.setdefault(entry.topic, []).append(answer)
                if answer[ERROR]:
                    self.request.count_errors((answer[ERROR],))
                if answer[LEADER] is not None:
                    leaders.append(answer[LEADER][0])
        endpoints = self._handler.endpoints(leaders, self.request.connection.listener_name) if leaders else ()
        self.request.respond(
            encode_fetch_response(
                self.request.version, list(topics.items()), session_id=session.id, node_endpoints=endpoints
            )
        )
        traffic = self._manager.traffic
        if self.reader.is_follower:
            traffic.replication_bytes_out += self.request.response_bytes
        else:
            traffic.bytes_out += self.request.response_bytes
        self._end()

    def _note_throttled(self, answers: Answers) -> None:
        size = sum(
            len(answer[RECORDS] or b"")
            for entry, answer, _ in answers
            if (partition := self._partition(entry)) is not None and feeds_throttled(partition, self.reader.replica_id)
        )
        self._manager.leader_throttle.passed(size, self._manager.timers.now_ms())

    def _settle(self, entry: SessionPartition, answer: FetchedPartition, had_no_room: bool) -> bool:
        """Notes what the client is told; whether it is anything."""
        session = self.session
        if session.id == NO_SESSION:
            return True
        tells = bool(answer[RECORDS]) or _cannot_wait(answer)
        if not had_no_room:
            session.served(entry, exhausted=not tells)
            if not tells:
                partition = self._partition(entry)
                if partition is not None:
                    partition.watches.watch(entry, follower=self.reader.is_follower)
        news = entry.has_news(answer[HIGH_WATERMARK], answer[LOG_START])
        if answer[DIVERGING] is not None:
            entry.was_not_heard()  # who has to truncate first adopts nothing else of the answer
        return news or tells


def _cannot_wait(answer: FetchedPartition) -> bool:
    """Whether it tells something besides records."""
    return answer[ERROR] != 0 or answer[DIVERGING] is not None or answer[PREFERRED] >= 0


def stop_watching(session: FetchSession) -> None:
    """No partition knows of the session any more."""
    for entry in session.partitions.values():
        if entry.watches is not None:
            entry.watches.unwatch(entry)
