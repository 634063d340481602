"""Finding records by time: ListOffsets (kraft.md 4.10)."""

from typing import TYPE_CHECKING

from ottla.log.batch import LOG_APPEND_TIME, BatchHeader, check_crc
from ottla.log.config import FOREVER
from ottla.log.errors import DamagedLogError
from ottla.log.records import Record, decode_records
from ottla.log.results import TimestampAndOffset
from ottla.log.segment import Segment
from ottla.runtime.errors import KafkaError

if TYPE_CHECKING:
    from ottla.log.log import Log


def offset_for_timestamp(log: "Log", timestamp: int) -> TimestampAndOffset | None:
    """See `Log.offset_for_timestamp`."""
    for segment in log.segments[log.segments.index(log.segment_of(log.log_start_offset)) :]:
        if segment.largest_timestamp() >= timestamp:
            found = _first_at_or_after(log, segment, timestamp)
            if found is not None:
                return found
    return None


def max_timestamp_offset(log: "Log") -> TimestampAndOffset | None:
    """See `Log.max_timestamp_offset`."""
    segments = log.segments[log.segments.index(log.segment_of(log.log_start_offset)) :]
    largest = max(segment.largest_timestamp() for segment in segments)
    return None if largest < 0 else offset_for_timestamp(log, largest)


def _first_at_or_after(log: "Log", segment: Segment, timestamp: int) -> TimestampAndOffset | None:
    position = segment.find(max(segment.offset_before_time(timestamp), log.log_start_offset))[0]
    for at, header in segment.walk_from(position):
        if header.max_timestamp >= timestamp:
            found = _in_batch(segment, at, header, timestamp, log.log_start_offset)
            if found is not None:
                return found
    return None


def _in_batch(
    segment: Segment, position: int, header: BatchHeader, timestamp: int, lowest_offset: int
) -> TimestampAndOffset | None:
    """The batch's first record at or after the time, not below ``lowest_offset``."""
    if header.attributes & LOG_APPEND_TIME and header.base_offset >= lowest_offset:
        return TimestampAndOffset(header.base_offset, header.max_timestamp, header.leader_epoch)
    for record in _records(segment, position, header):
        if timestamp <= record.timestamp < FOREVER and record.offset >= lowest_offset:
            return TimestampAndOffset(record.offset, record.timestamp, header.leader_epoch)
    return None


def _records(segment: Segment, position: int, header: BatchHeader) -> list[Record]:
    batch = segment.handle.open().read_at(header.size_bytes, position)
    try:
        check_crc(batch, header)
        return decode_records(batch, header)
    except KafkaError as error:
        raise DamagedLogError(segment.path, position, header.base_offset, error.message) from error
