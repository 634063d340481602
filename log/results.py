"""What a log answers: small values, one for each append, read or sync."""

import msgspec

from ottla.log.directories.names_sync import NamesSync
from ottla.log.segments.open_files import CachedFile
from ottla.runtime.disk import File


class AppendInfo(msgspec.Struct, gc=False):
    """What became of appended batches. Of a ``duplicate`` nothing was written: the offsets are the earlier batch's.

    ``log_append_time_ms`` is -1 unless the topic stamps its own times; ``first_offset`` is -1 when nothing was appended.
    """

    first_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool
    size_bytes: int


class ColdReadError(Exception):
    """The bytes are not in the page cache: `CachedFile.pin` the file, have a thread load them, and read again."""

    def __init__(self, file: CachedFile, position: int, length: int) -> None:
        super().__init__(f"{file.path} at {position}: {length} bytes are not cached")
        self.file = file
        self.position = position
        self.length = length


class LogRead(msgspec.Struct, gc=False):
    """Whole batches, empty when there is nothing below the limit; ``next_offset`` is what to ask for next."""

    data: bytes
    next_offset: int


class TimestampAndOffset(msgspec.Struct, frozen=True, gc=False):
    """A record found by its time (milliseconds since 1970) and the leader epoch that wrote it."""

    offset: int
    timestamp: int
    leader_epoch: int


class SyncTicket:
    """A sync to be made: when ``file`` was synced, everything below ``end_offset`` is stable; then `Log.mark_synced`.

    ``names_version``: of names, not of a file; -1 for a file.
    """

    __slots__ = ("end_offset", "file", "generation", "names_version")

    def __init__(self, file: File | NamesSync, end_offset: int, generation: int, names_version: int = -1) -> None:
        self.file = file
        self.end_offset = end_offset
        self.generation = generation
        self.names_version = names_version
