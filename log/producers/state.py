"""What a partition knows of its idempotent and transactional producers.

The leader asks `check` before it writes a batch (is it a repetition, does it follow on, is its producer fenced) and calls
`update` once it is written; followers and recovery only `update`. Open transactions bound the last stable offset.
Source: Kafka's ProducerStateManager and ProducerAppendInfo (kraft.md 4.8). Time is given; files go through a Disk.
"""

from contextlib import suppress
from enum import IntEnum
from typing import NamedTuple

from ottla.log.batch import CONTROL, TRANSACTIONAL, BatchHeader
from ottla.log.producers import snapshot as producer_snapshot
from ottla.log.producers.entry import NO_EPOCH, SEQUENCE_MAX, CachedBatch, ProducerEntry
from ottla.log.records import EndMarker, read_end_marker
from ottla.runtime.disk import Buffer, Disk
from ottla.runtime.errors import ErrorCode, KafkaError

Duplicate = CachedBatch


class Origin(IntEnum):
    """Who appends: it decides which rules hold."""

    CLIENT = 0  # everything is checked
    COORDINATOR = 1  # markers and coordinators' own records: no sequences
    REPLICATION = 2  # decided by the leader already: nothing is refused


class CompletedTransaction(NamedTuple):
    """A transaction whose marker was written at ``last_offset``; the last stable offset is the log's right after that."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool
    last_stable_offset: int


_NOBODY: dict[int, ProducerEntry] = {}
_NONE: dict[int, int] = {}
"""Both stay empty: what all partitions have that no producer with an id, and no transaction, ever touched."""


class ProducerStateManager:
    """The producers of one partition. `first_unstable_offset` is an attribute: it is read on every fetch."""

    __slots__ = ("_entries", "_open", "_unreplicated", "first_unstable_offset")

    def __init__(self) -> None:
        self._entries = _NOBODY
        self._open = _NONE  # first offset -> producer id; offsets only rise, so the first key is the least
        self._unreplicated = _NONE  # ended, marker not yet below the high watermark: first -> last offset
        self.first_unstable_offset: int | None = None

    @property
    def producer_ids(self) -> list[int]:
        return list(self._entries)

    def entry(self, producer_id: int) -> ProducerEntry | None:
        """One producer's entry, for DescribeProducers and tests; not to be changed."""
        return self._entries.get(producer_id)

    def has_open(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a transaction of the producer's epoch is under way here."""
        entry = self._entries.get(producer_id)
        return entry is not None and entry.transaction_first_offset >= 0 and entry.epoch == producer_epoch

    def has_late(self, wrote_before_ms: int) -> bool:
        """Whether the oldest transaction that is open here has not been written to since then."""
        producer_id = next(iter(self._open.values()), None)
        return producer_id is not None and self._entries[producer_id].last_timestamp < wrote_before_ms

    @property
    def first_open_offset(self) -> int | None:
        """Where the oldest transaction begins that nothing in the log has ended."""
        return next(iter(self._open), None)

    @property
    def has_ended_any(self) -> bool:
        """Whether any of its producers has had a transaction ended."""
        return any(entry.coordinator_epoch >= 0 for entry in self._entries.values())

    def last_records(self) -> dict[int, tuple[int, int]]:
        """(last data offset or -1, epoch) of every producer known: what compaction must leave standing of them."""
        return {producer_id: (entry.last_offset, entry.epoch) for producer_id, entry in self._entries.items()}

    def check(self, header: BatchHeader, origin: Origin = Origin.CLIENT) -> Duplicate | None:
        """Whether a data batch may be appended. Returns the earlier batch that it repeats, which is answered, not written.

        Raises KafkaError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE.
        """
        if header.producer_id < 0 or origin is Origin.REPLICATION:
            return None
        entry = self._entries.get(header.producer_id)
        if entry is None:
            return None  # unknown or forgotten producer: any sequence may be its first here
        epoch = header.producer_epoch
        in_order = epoch == entry.epoch and header.base_sequence == entry.next_sequence
        if not in_order and origin is Origin.CLIENT:
            duplicate = entry.find_duplicate(header)
            if duplicate is not None:
                return duplicate
        if epoch < entry.epoch:
            raise _fenced(header, entry)
        if not in_order and origin is Origin.CLIENT:
            _check_sequence(header, entry)
        if entry.transaction_first_offset >= 0 and not header.attributes & TRANSACTIONAL:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has a transaction open; this batch is not of it",
            )
        return None

    def check_marker(self, header: BatchHeader, marker: EndMarker, transaction_version: int = 0) -> bool:
        """Whether an end marker may be written; False when it was already (a retry: answered, not written again).

        From transaction version 2 on, a marker carries an epoch above the one its transaction was written with.
        Raises KafkaError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        entry = self._entries.get(header.producer_id)
        if entry is None:
            return True
        epoch = header.producer_epoch
        if epoch < entry.epoch:
            raise _fenced(header, entry)
        if transaction_version >= 2 and epoch == entry.epoch:
            if entry.transaction_first_offset < 0:
                return False
            raise _fenced(header, entry)
        if marker.coordinator_epoch < entry.coordinator_epoch:
            message = f"marker of coordinator epoch {marker.coordinator_epoch}, {entry.coordinator_epoch} was seen"
            raise KafkaError(ErrorCode.TRANSACTION_COORDINATOR_FENCED, message)
        return True

    def update(
        self, header: BatchHeader, first_offset: int, marker: EndMarker | None = None
    ) -> CompletedTransaction | None:
        """Notes a batch now in the log at ``first_offset``. Control batches need their ``marker`` (None: not a transaction's).

        Returns the transaction that a marker completed, to be put into the transaction index when it was aborted.
        """
        producer_id = header.producer_id
        if producer_id < 0:
            return None
        if header.attributes & CONTROL:
            return None if marker is None else self._end(header, first_offset, marker)
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._new_entry(producer_id)
        base_sequence, delta = header.base_sequence, header.last_offset_delta
        batch = CachedBatch(
            base_sequence,
            (base_sequence + delta) & SEQUENCE_MAX,
            first_offset,
            first_offset + delta,
            header.max_timestamp,
        )
        entry.add(header.producer_epoch, batch)
        if header.attributes & TRANSACTIONAL and entry.transaction_first_offset < 0:
            entry.transaction_first_offset = first_offset
            self._open = _with(self._open, first_offset, producer_id)
            self._find_first_unstable()
        return None

    def replay(self, batch: Buffer, header: BatchHeader, position: int = 0) -> CompletedTransaction | None:
        """`update` for a batch that is in the log (recovery, followers): reads the marker itself. Raises RecordError."""
        if header.producer_id < 0:
            return None
        marker = read_end_marker(batch, header, position) if header.attributes & CONTROL else None
        return self.update(header, header.base_offset, marker)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Ended transactions whose marker lies below the high watermark no longer hold the last stable offset back."""
        if self._unreplicated:
            done = [first for first, last in self._unreplicated.items() if last < high_watermark]
            for first in done:
                del self._unreplicated[first]
            self._find_first_unstable()

    def hold_back(self, other: "ProducerStateManager") -> None:
        """The last stable offset waits for the markers that ``other`` waits for."""
        self._unreplicated = other._unreplicated
        self._find_first_unstable()

    def expire(self, now_ms: int, idle_ms_max: int) -> int:
        """Forgets producers idle for ``idle_ms_max`` or longer that have no transaction open; returns how many. Nor does it forget who had
        one ended, while a marker is not replicated: a start looks for such where anybody is known who did (`has_ended_any`).

        Their batches' timestamps alone do not say when they wrote: who copies old records would be forgotten while he does, and a
        repetition then taken for something new. So one that has written since the last look has been seen now.
        """
        gone = []
        for producer_id, entry in self._entries.items():
            last_offset = entry.last_offset
            if last_offset > entry.seen_offset:
                entry.seen_offset, entry.seen_ms = last_offset, now_ms
            is_idle = now_ms - max(entry.last_timestamp, entry.seen_ms) >= idle_ms_max
            is_held = self._unreplicated and entry.coordinator_epoch >= 0
            if is_idle and entry.transaction_first_offset < 0 and not is_held:
                gone.append(producer_id)
        for producer_id in gone:
            del self._entries[producer_id]
        return len(gone)

    def take_snapshot(self, disk: Disk, directory: str, offset: int, *, durable: bool = True) -> None:
        """Writes the state as it is at ``offset`` (the log end offset). Not ``durable``: the CRC tells a torn file later."""
        path, data = producer_snapshot.path_of(directory, offset), producer_snapshot.encode(self._entries)
        if durable:
            disk.write_atomically(path, data)
            return
        file = disk.open(path, create=True)
        try:
            file.truncate(0)
            file.write_at([data], 0)
        except OSError:
            with suppress(OSError):
                disk.unlink(path)  # a torn one would stand before the sound one that is older
            raise
        finally:
            file.close()

    def load(self, disk: Disk, directory: str, *, first_offset: int, log_end_offset: int) -> int:
        """Starts anew from the newest sound snapshot at or below the log end; returns the offset to `replay` from.

        Snapshots beyond the log end and unsound ones are removed. Also what truncation does. ``first_offset``: of the batches that
        are there, also of those below the log start.
        """
        self.clear()
        for offset in reversed(producer_snapshot.offsets(disk, directory)):
            path = producer_snapshot.path_of(directory, offset)
            if offset <= log_end_offset:
                try:
                    self._restore(producer_snapshot.decode(disk.read_bytes(path)))
                except producer_snapshot.SnapshotError:
                    pass
                else:
                    if offset < first_offset:
                        self._forget_open()
                    return max(offset, first_offset)
            disk.unlink(path)
        return first_offset

    def resume(self, disk: Disk, directory: str, offset: int) -> int:
        """Starts anew from the newest sound snapshot at or below ``offset`` and returns where it was taken, 0 for none."""
        self.clear()
        for taken in reversed(producer_snapshot.offsets(disk, directory)):
            if taken <= offset:
                try:
                    self._restore(
                        producer_snapshot.decode(disk.read_bytes(producer_snapshot.path_of(directory, taken)))
                    )
                except producer_snapshot.SnapshotError:
                    continue
                return taken
        return 0

    def clear(self) -> None:
        self._entries, self._open, self._unreplicated = _NOBODY, _NONE, _NONE
        self.first_unstable_offset = None

    def _restore(self, entries: dict[int, ProducerEntry]) -> None:
        self._entries = entries
        first_offsets = sorted(
            (e.transaction_first_offset, pid) for pid, e in entries.items() if e.transaction_first_offset >= 0
        )
        self._open = dict(first_offsets)
        self._find_first_unstable()

    def _forget_open(self) -> None:
        """Batches behind the snapshot are gone, and markers with them: what is open goes by those that are left, from where the replay
        begins. Of what is open in the snapshot nothing else can be read any more."""
        for producer_id in self._open.values():
            self._entries[producer_id].transaction_first_offset = -1
        self._open = _NONE
        self._find_first_unstable()

    @property
    def open_transactions(self) -> dict[int, int]:
        """First offset -> producer id of each transaction that is open; rising."""
        return dict(self._open)

    def begin_open_at(self, producer_id: int, first_offset: int | None) -> None:
        """The producer's open transaction begins there; None: nothing of it is left, and it is not open."""
        entry = self._entries[producer_id]
        del self._open[entry.transaction_first_offset]
        entry.transaction_first_offset = -1 if first_offset is None else first_offset
        if first_offset is not None:
            self._open[first_offset] = producer_id
            self._open = dict(sorted(self._open.items()))
        self._find_first_unstable()

    def _new_entry(self, producer_id: int) -> ProducerEntry:
        if self._entries is _NOBODY:
            self._entries = {}
        entry = self._entries[producer_id] = ProducerEntry()
        return entry

    def _end(self, header: BatchHeader, offset: int, marker: EndMarker) -> CompletedTransaction | None:
        producer_id = header.producer_id
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._new_entry(producer_id)
        entry.set_epoch(header.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = header.max_timestamp
        first_offset = entry.transaction_first_offset
        if first_offset < 0:
            return None  # nothing of it is in this partition, so nobody needs to know
        entry.transaction_first_offset = -1
        self._open.pop(first_offset, None)
        self._unreplicated = _with(self._unreplicated, first_offset, offset)
        self._find_first_unstable()
        last_stable_offset = next(iter(self._open), offset + 1)
        return CompletedTransaction(producer_id, first_offset, offset, not marker.committed, last_stable_offset)

    def _find_first_unstable(self) -> None:
        first_open = next(iter(self._open), None)
        first_ended = min(self._unreplicated, default=None)
        if first_open is None or first_ended is None:
            self.first_unstable_offset = first_ended if first_open is None else first_open
        else:
            self.first_unstable_offset = min(first_open, first_ended)


def _with(offsets: dict[int, int], offset: int, value: int) -> dict[int, int]:
    if offsets is _NONE:
        return {offset: value}
    offsets[offset] = value
    return offsets


def _fenced(header: BatchHeader, entry: ProducerEntry) -> KafkaError:
    message = f"producer {header.producer_id} has epoch {header.producer_epoch}, {entry.epoch} is current"
    return KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, message)


def _check_sequence(header: BatchHeader, entry: ProducerEntry) -> None:
    """A new epoch begins at 0; the same epoch goes on where it stood."""
    sequence = header.base_sequence
    if header.producer_epoch != entry.epoch:
        expected, wrong = 0, sequence != 0 and entry.epoch != NO_EPOCH
    else:
        expected, wrong = entry.next_sequence, sequence != entry.next_sequence
    if wrong:
        message = f"producer {header.producer_id}, epoch {header.producer_epoch}: sequence {sequence} where {expected} was expected"
        raise KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, message)
