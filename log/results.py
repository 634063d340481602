"""What a log answers: small values, one for each append or read."""

import msgspec

from ottla.log.segments.open_files import CachedFile


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
