"""One shard of a coordinator at work: its partition is read, then what it decides is appended there.

The decider's hands (`Effects`): nothing here knows what a group is.
"""

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Protocol
from uuid import UUID

from ottla.broker.coordinator.decisions.append_errors import told
from ottla.broker.coordinator.decisions.effects import Done, ProducerBatch, Record, Undo
from ottla.broker.coordinator.notes import Notes
from ottla.broker.coordinator.shard_replay import ShardReplay
from ottla.broker.replication.appending import OnCommitted
from ottla.broker.replication.markers import Marker
from ottla.broker.replication.own_appends import OwnAppends, size_of
from ottla.broker.replication.own_reads import Loads, PartitionReading, log_end
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.verified_appends import require_proof
from ottla.log.compression import NONE
from ottla.log.plain_batch import COMPRESSED_BYTES_MAX
from ottla.log.records import Record as LogRecord
from ottla.log.records import encode_batch
from ottla.runtime.clock import Clock
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.one_a_turn import OneATurn
from ottla.runtime.timers import LoopTimers, Timer

SLICE_BYTES = 64 << 10
TIMERS_A_TURN = 2_000
AFTER_LOADING = 1 << 62
"""The weight of what nobody waits for: more than any partition has records."""

logger = logging.getLogger(__name__)


def _unhealed(partition: Partition, error: KafkaError) -> None:
    """Nobody heals."""


class Shard(Protocol):
    """A state machine over the records of one partition."""

    def replay(self, record: Record, place: int, producer_id: int = -1) -> Undo: ...

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None: ...

    def begin(self) -> Iterable[object] | None:
        """All is replayed. In pieces, where there is much to do: one a turn of the loop, and nobody asks before the last."""
        ...

    def end(self, error: ErrorCode) -> Iterable[object] | None:
        """Nobody asks any more, and nothing more is written; perhaps it has only begun to begin. In pieces, as `begin`."""
        ...


@dataclass(slots=True, frozen=True)
class Surroundings:
    """What every shard of a node works with."""

    timers: LoopTimers
    clock: Clock
    rng: Random
    loads: Loads
    write_timeout_ms: int
    """How long an answer waits for its records (`offsets.commit.timeout.ms`)."""
    turns: OneATurn = field(default_factory=OneATurn)
    """What takes long is done here, of all shards of the node one piece a turn."""
    codec: int = NONE
    """Of the batches: for groups `offsets.topic.compression.codec`, else none."""
    notes: Notes = field(default_factory=Notes)
    note_damage: Callable[[Partition, KafkaError], None] = _unhealed
    """Told what came of a read that failed (`ReplicaManager.note_damage`)."""


class ShardHost:
    """From an election to the resignation after it."""

    def __init__(self, partition: Partition, leader_epoch: int, surroundings: Surroundings) -> None:
        self.partition = partition
        self._leader_epoch = leader_epoch
        self._around = surroundings
        self._shard: Shard | None = None
        self._reading: PartitionReading | None = None
        timers = surroundings.timers
        expires = partial(timers.call_later_ms, surroundings.write_timeout_ms)
        self._own = OwnAppends(partition, leader_epoch, self._time_ms, timers.now_ms, expires, surroundings.codec)
        self._reminders: dict[Hashable, Timer] = {}
        self._readers: dict[_Waiter, None] = {}
        """Who waits for what others wrote: the partition tells them nothing where its leader stays in another epoch."""
        self._places = 0
        self._begun_ms = surroundings.timers.now_ms()
        self.is_loaded = self.is_over = self.has_begun = False
        self.load_ms = 0
        """How long it took."""

    # --- loading ------------------------------------------------------------------------------------------------------

    def load(self, shard: Shard, on_loaded: Callable[[KafkaError | None], None]) -> None:
        """Reads the partition from its start. All that the leader has counts: it will be committed unless another leads before, and
        nobody is answered from it before it is. Where there is nothing to read it is loaded when this returns: who had the topic
        made asks next, and a client that is told to wait waits long (librdkafka up to three seconds)."""
        self._shard = shard
        partition, around = self.partition, self._around

        replay = ShardReplay(partition, shard, self._next_place)

        def ended(error: KafkaError | None) -> None:
            self._reading = None
            if error is None:
                around.turns.go_through(self._begun(shard, replay, on_loaded))
            else:
                around.note_damage(partition, error)
                on_loaded(error)

        log = partition.log
        if partition.usable and log.log_start_offset == log.log_end_offset:
            begun = self._begun(shard, replay, on_loaded)
            if next(begun, self) is not self:
                around.turns.go_through(begun)
            return
        plan = partial(around.turns.plan, weight=log.log_end_offset - log.log_start_offset)
        self._reading = PartitionReading(partition, 0, log_end, around.loads, replay.take, ended, SLICE_BYTES, plan)

    def _begun(
        self, shard: Shard, replay: ShardReplay, on_loaded: Callable[[KafkaError | None], None]
    ) -> Iterator[None]:
        for pieces in (replay.finish, partial(self._begin, shard)):
            for _ in pieces() or ():
                yield
                if self.is_over:
                    return
        self.is_loaded = True
        self.load_ms = self.clock_ms - self._begun_ms
        logger.info(
            "%s: loaded in epoch %d, %d records in %d ms",
            self.partition,
            self._leader_epoch,
            replay.read,
            self.load_ms,
        )
        on_loaded(None)

    def _begin(self, shard: Shard) -> Iterable[object] | None:
        self.has_begun = True
        return shard.begin()

    def _next_place(self) -> int:
        self._places += 1
        return self._places

    # --- transactions -------------------------------------------------------------------------------------------------

    def end_transaction(self, marker: Marker, on_done: OnCommitted) -> None:
        """Writes a marker behind all that was decided before it; ``on_done`` as `append_own` says. Raises KafkaError if it is
        not written."""
        shard = self._shard
        if self.is_over or shard is None or not self.is_loaded:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.partition} is being loaded")

        def written(_offset: int) -> None:
            shard.end_transaction(marker.producer_id, is_commit=marker.is_commit)

        batch = marker.batch(self._time_ms())
        self._own.append_now(batch, written, on_done, transaction_version=marker.transaction_version)

    # --- the end ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Another leads, or nobody: whoever waits is told, and nothing of this is left."""
        if self.is_over:
            return
        self.is_over = True
        if self._reading is not None:
            self._reading.cancel()
        self._own.close()
        for reader in list(self._readers):
            reader.settle(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        pieces = self._shard.end(ErrorCode.NOT_COORDINATOR) if self._shard is not None and self.has_begun else None
        self._around.turns.go_through(self._wind_up(pieces or ()))

    def _wind_up(self, pieces: Iterable[object]) -> Iterator[object]:
        """Reminders that are due meanwhile do not come any more."""
        yield from pieces
        for count, timer in enumerate(self._reminders.values(), 1):
            timer.cancel()
            if not count % TIMERS_A_TURN:
                yield count
        self._reminders.clear()

    # --- effects ------------------------------------------------------------------------------------------------------

    @property
    def clock_ms(self) -> int:
        return self._around.timers.now_ms()

    @property
    def time_ms(self) -> int:
        return self._time_ms()

    def _time_ms(self) -> int:
        return self._around.clock.wall_ms()

    def new_id(self) -> str:
        return str(UUID(int=self._around.rng.getrandbits(128), version=4))

    def has_room_for(self, records: Sequence[Record]) -> bool:
        return self._own.has_room_for(size_of(records))

    def write(self, records: Sequence[Record], done: Done) -> None:
        shard = self._shard
        if self.is_over or shard is None:
            done(ErrorCode.NOT_COORDINATOR)
            return
        if not records:
            self._when_all_is_committed(done)
            return
        size = size_of(records)
        if not self._own.has_room_for(size):
            done(told(ErrorCode.MESSAGE_TOO_LARGE))
            return
        undoes = [shard.replay(each, self._next_place()) for each in records]
        undo = undoes[0] if len(undoes) == 1 else partial(_undo, undoes)
        self._own.append(records, None, partial(_tell, done), undo, size)

    def _when_all_is_committed(self, done: Done) -> None:
        """What is in the state is committed when the high watermark has passed the log's end, and what waits to be written."""
        partition = self.partition
        if self._own.has_unwritten:
            self._own.append((), None, partial(_tell, done))
            return
        leader, end = partition.leader, partition.log.log_end_offset
        if leader is None or leader.epoch != self._leader_epoch:
            _tell(done, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif leader.high_watermark >= end:
            done(ErrorCode.NONE)
        else:
            waiter = _Waiter(done, self._readers)
            waiter.expires(self._around)
            partition.produce_waiters.wait_for(end, waiter, 0)

    def write_transactional(self, records: Sequence[Record], batch: ProducerBatch, guard: int, done: Done) -> None:
        shard = self._shard
        if self.is_over or shard is None:
            done(ErrorCode.NOT_COORDINATOR)
            return

        def written(_offset: int) -> None:
            for each in records:
                shard.replay(each, self._next_place(), batch.producer_id)

        encoded = _transactional(records, batch, self._time_ms(), self._around.codec)
        try:
            self._own.append_now(
                encoded, written, partial(_tell, done), proof=partial(require_proof, self.partition, batch, guard)
            )
        except KafkaError as error:
            done(told(error.code))

    def note(self, fact: str) -> None:
        self._around.notes.tell(self.clock_ms, f"{self.partition}, epoch {self._leader_epoch}: {fact}")

    def remind(self, name: Hashable, in_ms: int, call: Callable[[], None]) -> None:
        self.forget(name)
        if self.is_over:
            return

        self._reminders[name] = self._around.timers.call_later_ms(max(in_ms, 0), partial(self._due, name, call))

    def _due(self, name: Hashable, call: Callable[[], None]) -> None:
        """Of one that was replaced or forgotten nothing is heard: its timer is cancelled."""
        if not self.is_over:
            del self._reminders[name]
            call()

    def soon(self, call: Callable[[], None]) -> None:
        def next_turn() -> None:
            if not self.is_over:
                call()

        self._around.turns.plan(next_turn, weight=AFTER_LOADING)

    def forget(self, name: Hashable) -> None:
        if self.is_over:
            return
        timer = self._reminders.pop(name, None)
        if timer is not None:
            timer.cancel()


class _Waiter:
    """Who waits for what others wrote to be committed, no longer than it was said; in the shape of `partition.produce_waiters`."""

    __slots__ = ("_all", "_tell", "_timer", "done")

    def __init__(self, tell: Done, all_that_wait: "dict[_Waiter, None]") -> None:
        self._tell = tell
        self._all = all_that_wait
        self._timer: Timer | None = None
        self.done = False

    def expires(self, around: Surroundings) -> None:
        self._all[self] = None
        self._timer = around.timers.call_later_ms(
            around.write_timeout_ms, partial(self.settle, ErrorCode.REQUEST_TIMED_OUT)
        )

    def settle(self, *outcome: int) -> None:
        """With the error last."""
        if not self.done:
            self.done = True
            del self._all[self]
            if self._timer is not None:
                self._timer.cancel()
            _tell(self._tell, outcome[-1])


def _transactional(records: Sequence[Record], batch: ProducerBatch, wall_ms: int, codec: int) -> bytearray:
    return encode_batch(
        [LogRecord(offset, wall_ms, each.key, each.value) for offset, each in enumerate(records)],
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        transactional=True,
        compression=codec if size_of(records) <= COMPRESSED_BYTES_MAX else NONE,
    )


def _tell(done: Done, error: int) -> None:
    done(told(ErrorCode(error)) if error else ErrorCode.NONE)


def _undo(undoes: Sequence[Undo]) -> None:
    for undo in reversed(undoes):
        undo()
