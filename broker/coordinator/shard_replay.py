"""A partition's records on their way into a shard that loads, in pieces: one a turn of the loop, while everybody's requests wait.

Of what is no part of a transaction only the last record of each key is replayed, where it stands: that is what compaction would have
left, and a log that was not compacted yet may say a thousand times how far a group has read. Only a tombstone is replayed before
what follows it: it also ends what a transaction, which is not decided, has said of its key.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Protocol

from ottla.broker.coordinator.decisions.effects import Record, Undo
from ottla.broker.wire.errors import WireError
from ottla.log.batch import headers
from ottla.log.plain_batch import read_pairs
from ottla.log.records import read_end_marker
from ottla.runtime.errors import KafkaError

RECORDS_A_TURN = 250
"""So many are replayed at once: a millisecond or two."""
READ_A_TURN = 1_000
"""So many are only read."""
KEYS_MAX = 100_000
"""So many wait to be superseded: of more keys the log is replayed in parts."""

logger = logging.getLogger(__name__)


class Replaying(Protocol):
    """The shard."""

    def replay(self, record: Record, place: int, producer_id: int = -1) -> Undo: ...

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None: ...


class ShardReplay:
    """What is taken is in the shard when `finish` is gone through."""

    def __init__(self, name: object, shard: Replaying, next_place: Callable[[], int]) -> None:
        """``name``: of the partition, for the log."""
        self._name = name
        self._shard = shard
        self._next_place = next_place
        self._latest: dict[bytes, tuple[int, bytes | None]] = {}
        """Offset and value by key, in the order of the log."""
        self.read = 0
        """How many records there were."""

    def take(self, data: bytes, offset: int, next_offset: int) -> Iterator[None]:
        """Whole batches, of which the records from ``offset`` on count. To be gone through to the end."""
        for at, header in headers(data):
            try:
                if header.is_control:
                    yield from self.finish()
                    marker = read_end_marker(data, header, at)
                    if marker is not None:
                        self._shard.end_transaction(header.producer_id, is_commit=marker.committed)
                    continue
                records = (each for each in read_pairs(data, header, at) if each[0] >= offset and each[1] is not None)
                if header.is_transactional:
                    yield from self.finish()
                    yield from self._replay_all(records, header.producer_id)
                else:
                    yield from self._note(records)
            except KafkaError as error:
                # Its checksum is right, so every replica has the same: to wait for better bytes would be to wait for ever.
                logger.error(
                    "%s: what is left of the batch at %d, up to %d, cannot be read and is passed over: %s",
                    self._name,
                    header.base_offset,
                    header.last_offset,
                    error,
                )

    def finish(self) -> Iterator[None]:
        """Replays what waited."""
        latest, self._latest = self._latest, {}
        return self._replay_all((offset, key, value) for key, (offset, value) in latest.items())

    def _note(self, records: Iterator[tuple[int, bytes | None, bytes | None]]) -> Iterator[None]:
        for offset, key, value in records:
            assert key is not None
            before = self._latest.get(key)
            if before is not None:
                if before[1] is None and value is not None:
                    yield from self.finish()
                else:
                    del self._latest[key]
            self._latest[key] = offset, value
            self.read += 1
            if not self.read % READ_A_TURN:
                yield
        if len(self._latest) >= KEYS_MAX:
            yield from self.finish()

    def _replay_all(
        self, records: Iterator[tuple[int, bytes | None, bytes | None]], producer_id: int = -1
    ) -> Iterator[None]:
        for count, (offset, key, value) in enumerate(records, 1):
            assert key is not None
            self._replay(Record(key, value), offset, producer_id)
            if not count % RECORDS_A_TURN:
                yield

    def _replay(self, record: Record, offset: int, producer_id: int) -> None:
        try:
            self._shard.replay(record, self._next_place(), producer_id)
        except (WireError, ValueError) as error:
            # Passed over, as Kafka does it: one record that nobody can read must not take all groups of the shard away.
            logger.error("%s: the record at %d cannot be read and is passed over: %s", self._name, offset, error)
