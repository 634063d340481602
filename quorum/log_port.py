"""What the quorum needs of its log: `ottla.log.log.Log` offers it, and the tests' log in memory."""

from typing import Protocol

from ottla.runtime.disk import File


class ReadResult(Protocol):
    @property
    def data(self) -> bytes: ...


class EpochEntries(Protocol):
    def entries(self) -> tuple[tuple[int, int], ...]:
        """(epoch, first offset), ascending."""
        ...


class MetadataLog(Protocol):
    """The metadata log, as the quorum uses it. Offsets as in the core: ends are exclusive. What is appended is durable once
    ``active_file`` was synced afterwards (a roll syncs the file it leaves)."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def epochs(self) -> EpochEntries: ...

    @property
    def active_file(self) -> File: ...

    def append_as_follower(self, view: memoryview | bytes, leader_epoch: int) -> object:
        """Appends whole batches that carry their offsets, from the log end on."""
        ...

    def read(self, offset: int, max_bytes: int, limit_offset: int, *, minimum_one: bool) -> ReadResult: ...

    def bytes_between(self, start_offset: int, end_offset: int) -> int:
        """About how many bytes lie between."""
        ...

    def truncate_to(self, offset: int) -> object: ...

    def truncate_fully_and_start_at(self, offset: int) -> object: ...

    def roll(self) -> object:
        """Ends the active segment."""
        ...

    def advance_log_start(self, offset: int) -> object:
        """What lies below ``offset`` (at most the high watermark) may go."""
        ...

    def delete_old_segments(self, now_ms: int) -> object:
        """Renames the segments below the log start; ``now_ms`` since 1970."""
        ...

    def purge(self, now_ms: int) -> object:
        """Unlinks what was seen renamed ``file.delete.delay.ms`` ago, by any clock that does not jump."""
        ...

    def set_high_watermark(self, offset: int) -> object: ...

    def mark_synced(self, synced: int) -> object:
        """``active_file`` was synced since the log ended there."""
        ...

    def flush(self) -> object:
        """Makes everything durable before it returns."""
        ...
