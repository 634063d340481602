"""What a broker writes by itself to a partition that it leads: a coordinator's records."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.replication.appending import OnCommitted, OwnAppend, append_own
from ottla.log.batch import HEADER_BYTES
from ottla.log.compression import NONE
from ottla.log.plain_batch import KeyValue, encode_pairs
from ottla.log.results import AppendInfo
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.timers import Timer

if TYPE_CHECKING:
    from ottla.broker.replication.partition import Partition

OnWritten = Callable[[int], None]
"""Told the offset of the first of the records."""

Undo = Callable[[], None]
"""Told that the records were not written."""

RECORD_OVERHEAD_BYTES = 35
"""The most that a record has besides its key and its value: seven varints, five bytes each."""

Expires = Callable[[Callable[[], None]], Timer]
"""Calls back when a batch has waited long enough for its replicas."""

logger = logging.getLogger(__name__)


def _no_proof() -> None:
    """None is needed."""


class OwnAppends:
    """The appends of a leader's epoch. Those of one turn of the loop are written at its end, in as few batches as they fit in.

    What is given together stands in one batch: it is written whole or not at all. When a batch cannot be written, what comes after
    it in that turn is not written either, and then all that is not is undone, the last first: so whoever changes a state as soon
    as it gives the records has the state that is in the log again. Nobody is told of any batch before that: what he then gives is not
    built on what is undone.
    """

    def __init__(
        self,
        partition: "Partition",
        leader_epoch: int,
        wall_ms: Callable[[], int],
        now_ms: Callable[[], int],
        expires: Expires | None = None,
        codec: int = NONE,
    ) -> None:
        """``expires``: what is written and not committed by then ends with REQUEST_TIMED_OUT. By default it may wait for ever.
        ``codec``: of the batches that are made here."""
        self._codec = codec
        self.expires = expires
        self._partition = partition
        self._leader_epoch = leader_epoch
        self._wall_ms = wall_ms
        self._now_ms = now_ms
        self._waiting: list[_Entry] = []
        self.under_way: dict[_Batch, None] = {}
        """What stands in the log and is not done."""
        self.closed = False

    def append(
        self,
        records: Sequence[KeyValue],
        on_written: OnWritten | None,
        on_done: OnCommitted,
        undo: Undo | None = None,
        size: int = -1,
    ) -> None:
        """Writes (key, value) records, in this order, behind what was given before; no callback comes before this returns.

        ``on_written`` is called when they stand in the log, where they will be read by whoever loads the partition next, or else
        ``undo``; then ``on_done`` as `append_own` says, MESSAGE_TOO_LARGE when they fit in no batch: who gives an ``undo``
        asks `has_room_for` before. ``size``: of the records, if it is known.
        """
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._write)
        self._waiting.append(_Entry(records, size if size >= 0 else size_of(records), on_written, on_done, undo))

    def append_now(
        self,
        batch: bytearray,
        on_written: OnWritten,
        on_done: OnCommitted,
        *,
        proof: Callable[[], None] = _no_proof,
        transaction_version: int = 0,
    ) -> None:
        """Writes a batch of a transaction before this returns, behind all that was given before: what cannot be written of it is
        nobody else's failure. Raises KafkaError if it is not written; then no callback comes.

        ``on_written`` is called with the offset, or not at all where the batch stood there already; ``on_done`` as for `append`.
        ``proof`` is asked right before, and raises KafkaError where there is none.
        """
        self._write()
        proof()
        sent = _Batch(self, [_Entry((), 0, on_written, on_done, None)])
        info = self._send(batch, sent, self._wall_ms(), transaction_version)
        if info.duplicate:
            sent.stands()
        else:
            sent.written(info.first_offset)

    def has_room_for(self, size: int) -> bool:
        """Whether records of that size fit in one batch."""
        return HEADER_BYTES + size <= self._partition.log.config.max_message_bytes

    @property
    def has_unwritten(self) -> bool:
        return bool(self._waiting)

    def close(self) -> None:
        """The epoch is over: all that is not done ends with NOT_LEADER_OR_FOLLOWER, and so does what comes later. What is being written
        this moment (the disk fails under it, and so the epoch ends) is told of when it is known whether it stands."""
        self.closed = True
        for batch in list(self.under_way):
            batch.settle(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._write()

    def _write(self) -> None:
        waiting, self._waiting = self._waiting, []
        batches = [_Batch(self, entries) for entries in self._gathered(waiting)]
        outcomes: list[Callable[[], None]] = []
        for index, batch in enumerate(batches):
            try:
                info = self._write_batch(batch)
            except KafkaError as error:
                outcomes.append(partial(batch.settle, error.code))
                if error.code is ErrorCode.MESSAGE_TOO_LARGE and batch.entries[0].undo is None:
                    continue  # it is alone in its batch, and nothing was built on it
                for each in reversed(batches[index:]):
                    each.undo()
                outcomes += [partial(each.settle, error.code) for each in batches[index + 1 :]]
                break
            outcomes.append(partial(batch.written, info.first_offset))
        for tell in outcomes:
            tell()

    def _gathered(self, waiting: "list[_Entry]") -> "Iterator[list[_Entry]]":
        size_max = self._partition.log.config.max_message_bytes
        entries: list[_Entry] = []
        size = HEADER_BYTES
        for entry in waiting:
            if entries and size + entry.size > size_max:
                yield entries
                entries, size = [], HEADER_BYTES
            entries.append(entry)
            size += entry.size
        if entries:
            yield entries

    def _write_batch(self, batch: "_Batch") -> AppendInfo:
        wall_ms = self._wall_ms()
        return self._send(_encoded(batch.entries, wall_ms, self._codec), batch, wall_ms)

    def _send(self, encoded: bytearray, batch: "_Batch", wall_ms: int, transaction_version: int = 0) -> AppendInfo:
        if self.closed:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the leader's epoch is over")
        size_max = self._partition.log.config.max_message_bytes
        if len(encoded) > size_max:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"{len(encoded)} bytes, at most {size_max} are taken")
        batch.append = append_own(
            self._partition, encoded, self._leader_epoch, wall_ms, self._now_ms(), batch.committed, transaction_version
        )
        return batch.append.info


class _Entry(NamedTuple):
    records: Sequence[KeyValue]
    size: int
    on_written: OnWritten | None
    on_done: OnCommitted
    undo: Undo | None


class _Batch:
    """Tells those who share a batch, each once, first that it is written."""

    def __init__(self, appends: OwnAppends, entries: list[_Entry]) -> None:
        self.entries = entries
        self.append: OwnAppend | None = None
        self._appends = appends
        self._is_written = False
        self._is_settled = False
        self._outcome: int | None = None
        self._timer: Timer | None = None

    def written(self, first_offset: int) -> None:
        offset = first_offset
        for entry in self.entries:
            if entry.on_written is not None:
                _call(entry.on_written, offset)
            offset += len(entry.records)
        self.stands()

    def stands(self) -> None:
        """It is in the log, and those who have to know that do; its replicas may take as long as ``expires`` says."""
        self._is_written = True
        if self._outcome is not None:  # one replica: it was committed as soon as it was written
            self.settle(self._outcome)
        elif self._appends.closed:
            self.settle(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            self._appends.under_way[self] = None
            if self._appends.expires is not None:
                self._timer = self._appends.expires(partial(self.settle, ErrorCode.REQUEST_TIMED_OUT))

    def undo(self) -> None:
        for entry in reversed(self.entries):
            if entry.undo is not None:
                _call(entry.undo)

    def committed(self, error: int) -> None:
        self._outcome = error
        if self._is_written:
            self.settle(error)

    def settle(self, error: int) -> None:
        if not self._is_settled:
            self._is_settled = True
            self._appends.under_way.pop(self, None)
            if self._timer is not None:
                self._timer.cancel()
            append, self.append = self.append, None  # which knows this
            if append is not None:
                append.done = True  # the partition need not keep it, nor who waits behind it
            for entry in self.entries:
                _call(entry.on_done, error)


def size_of(records: Sequence[KeyValue]) -> int:
    """At most so many bytes they take in a batch."""
    size = RECORD_OVERHEAD_BYTES * len(records)
    for record in records:
        size += len(record[0] or b"") + len(record[1] or b"")
    return size


def _encoded(entries: list[_Entry], wall_ms: int, codec: int) -> bytearray:
    return encode_pairs([record for entry in entries for record in entry.records], wall_ms, codec)


def _call(callback: Callable[..., None], *values: int) -> None:
    """One that fails keeps nobody else from being told."""
    try:
        callback(*values)
    except Exception:
        logger.exception("Who appended records failed at hearing of them, which is our mistake")
