"""Between the log's bytes and what the core and the application see of them."""

from collections.abc import Iterator, Sequence

from ottla.log.batch import BatchHeader, check_crc, headers
from ottla.log.records import ControlType, Record, control_type_of, decode_records, encode_batch
from ottla.quorum.control_records import check_kraft_version, decode_voters, mark_of
from ottla.quorum.listener import CommittedBatch
from ottla.quorum.raft.messages import NO_RECORDS, BatchInfo, Records
from ottla.quorum.raft.voters import VoterSet

CAUSE_HEADER = "cause"


def encode_values(values: Sequence[bytes], base_offset: int, epoch: int, now_ms: int, cause: str) -> bytearray:
    """The bytes of one batch: all of it is committed or nothing. The cause (who or what asked) rides on its first record."""
    causes = ((CAUSE_HEADER, cause.encode()),) if cause else ()
    records = [
        Record(base_offset + index, now_ms, None, value, causes if index == 0 else ())
        for index, value in enumerate(values)
    ]
    return encode_batch(records, base_offset=base_offset, leader_epoch=epoch)


def parse_batches(data: bytes) -> Records:
    """Whole batches with their headers; a partial one at the end is cut off. Raises CorruptBatchError on a wrong CRC."""
    if not data:
        return NO_RECORDS
    found, end = [], 0
    for position, header in headers(data):
        check_crc(data, header, position)
        voters, mark = batch_voters(data, header, position), batch_mark(data, header, position)
        found.append(BatchInfo(header.base_offset, header.last_offset, header.leader_epoch, voters, mark))
        end = position + header.size_bytes
    return Records(data[:end], tuple(found))


def batch_voters(data: bytes, header: BatchHeader, position: int) -> VoterSet | None:
    """The voter set a control batch brings, if it does. Raises UnreadableLevelError for a level of kraft.version beyond ours."""
    if not header.is_control:
        return None
    voters = None
    for record in decode_records(data, header, position=position):
        kind, value = control_type_of(record.key), record.value or b""
        if kind == ControlType.KRAFT_VERSION:
            check_kraft_version(value)
        elif kind == ControlType.KRAFT_VOTERS:
            voters = decode_voters(value)
    return voters


def batch_mark(data: bytes, header: BatchHeader, position: int) -> int:
    """The mark of the epoch that begins with a control batch; 0 where there is none."""
    if not header.is_control:
        return 0
    return next((mark_of(record) for record in decode_records(data, header, position=position)), 0)


def committed_batches(data: bytes, from_offset: int) -> Iterator[CommittedBatch]:
    """The batches in ``data`` that begin at ``from_offset`` or later, decoded for the application."""
    for position, header in headers(data):
        if header.base_offset < from_offset:
            continue
        values: list[bytes] = []
        cause = ""
        if not header.is_control:
            records = decode_records(data, header, position=position)
            values = [record.value or b"" for record in records]
            cause = cause_of(records[0]) if records else ""
        yield CommittedBatch(
            header.base_offset, header.last_offset, header.leader_epoch, header.max_timestamp, values, cause
        )


def cause_of(record: Record) -> str:
    return next((value.decode(errors="replace") for key, value in record.headers if key == CAUSE_HEADER and value), "")
