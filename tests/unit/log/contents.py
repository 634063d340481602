"""What is in a log, as a reader finds it."""

from ottla.log.batch import read_header
from ottla.log.log import Log
from ottla.log.records import decode_records


def values(log: Log) -> list[tuple[int, bytes | None]]:
    """(offset, value) of each record."""
    found: list[tuple[int, bytes | None]] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, 1 << 20)
        at = 0
        while at < len(read.data):
            header = read_header(read.data, at)
            found += [(record.offset, record.value) for record in decode_records(read.data, header, position=at)]
            at += header.size_bytes
        offset = read.next_offset
    return found
