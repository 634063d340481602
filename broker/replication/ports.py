"""What replication needs of the log, as it needs it. `ottla.log.log` and `ottla.log.manager` are the real ones."""

from collections.abc import Sequence
from typing import Protocol

from ottla.log.batch import BatchHeader
from ottla.log.config import LogConfig
from ottla.log.directory import DirectoryState
from ottla.log.log import SyncTicket
from ottla.log.names import TopicPartition
from ottla.log.results import TimestampAndOffset
from ottla.log.transactions import AbortedTransaction
from ottla.runtime.disk import Buffer

__all__ = ["Appended", "Epochs", "LogStore", "PartitionLog", "Read", "SyncTicket"]


class Appended(Protocol):
    """What an append did; ``log_append_time_ms`` is -1 unless the topic stamps its own."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool
    size_bytes: int


class Read(Protocol):
    """``data`` holds whole batches, the first of which may begin before the offset asked for; ``next_offset`` follows them."""

    data: bytes
    next_offset: int


class Epochs(Protocol):
    latest_epoch: int

    def assign(self, epoch: int, start_offset: int) -> None: ...
    def epoch_for_offset(self, offset: int) -> int: ...
    def truncate_from_end(self, end_offset: int) -> None: ...


class PartitionLog(Protocol):
    """One replica's log. Synchronous. A disk that fails is a KafkaError (StorageError) here."""

    partition: TopicPartition
    config: LogConfig
    must_sync: bool
    abandoned: bool

    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def last_stable_offset(self) -> int: ...
    @property
    def epochs(self) -> Epochs: ...
    @property
    def recovery_point(self) -> int: ...
    @property
    def root(self) -> DirectoryState: ...

    def append_as_leader(self, view: memoryview, leader_epoch: int, now_ms: int) -> Appended: ...
    def append_prepared(
        self, view: memoryview | bytearray, header: BatchHeader, leader_epoch: int, now_ms: int
    ) -> Appended: ...
    def append_as_follower(self, view: Buffer, leader_epoch: int) -> Appended: ...
    def read(self, offset: int, max_bytes: int, limit_offset: int, *, minimum_one: bool, wait: bool = True) -> Read: ...
    def recheck(self, offset: int, max_bytes: int) -> None: ...
    def bytes_between(self, start_offset: int, end_offset: int) -> int: ...
    def truncate_to(self, offset: int) -> bool: ...
    def truncate_fully_and_start_at(self, offset: int) -> None: ...
    def set_high_watermark(self, offset: int) -> None: ...
    def advance_log_start(self, offset: int) -> None: ...
    def unsynced(self) -> SyncTicket | None: ...
    def mark_synced(self, synced: SyncTicket) -> None: ...
    def configure(self, config: LogConfig) -> None: ...
    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]: ...
    def offset_for_timestamp(self, timestamp: int) -> TimestampAndOffset | None: ...
    def max_timestamp_offset(self) -> TimestampAndOffset | None: ...
    def aborted_transactions(self, start_offset: int, end_offset: int) -> Sequence[AbortedTransaction]: ...


class LogStore(Protocol):
    """The logs of a broker, over its directories."""

    def get_or_create(
        self,
        partition: TopicPartition,
        config: LogConfig,
        topic_id: bytes,
        directory_id: bytes | None = None,
        *,
        is_new: bool = True,
    ) -> PartitionLog: ...
    def delete(self, partition: TopicPartition) -> None: ...
    def checkpoint_high_watermarks(self) -> None: ...
