"""What a batch must be before a log takes it: a client's on the leader, a leader's on a follower.

A client's batch is judged by its header and CRC, and by whether its records could be in so many bytes. The records themselves are
looked at where they are compressed, for nobody could tell later whether its producer or a disk made what cannot be decompressed;
and where a rule needs each of them: keys on compacted topics, timestamps when their lower bound is set, a codec of the topic's own.
Source: Kafka's UnifiedLog and LogValidator (kraft.md 4.3), which look at all; tests/unit/log/test_batch_answers.py lists where
the answers differ, and why.
"""

from struct import Struct
from typing import NoReturn

from crc32c import crc32c

from ottla.log import batch as layout
from ottla.log.batch import (
    CONTROL,
    CRC_START,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL,
    BatchHeader,
    CorruptBatchError,
)
from ottla.log.compression import GZIP, LZ4, NONE, ZSTD, DecompressionError, codec_of_setting, compress, inflate
from ottla.log.config import FOREVER, LogConfig
from ottla.log.record_check import RecordWalk
from ottla.log.records import (
    DECOMPRESSED_BYTES_MAX,
    RECORD_BYTES_MIN,
    RecordError,
    assemble_batch,
    records_block,
    reseal,
)
from ottla.runtime.disk import Buffer
from ottla.runtime.errors import ErrorCode, KafkaError

_NO_TIMESTAMP = -1
_TIMESTAMP_MIN = -FOREVER - 1
_UNPACK = layout.HEADER.unpack_from
_MAKE = BatchHeader._make
_ATTRIBUTES_AT = 22  # their low byte
_COUNT_AT = 57
_COUNT = Struct(">i")
_HEAVY_BYTES = 32 << 10
_HEAVY_COMPRESSED_BYTES = 16 << 10
_HEAVY_RECORDS = 512

LIGHT_BYTES_MAX = 128 << 10
"""What a batch that is not `is_heavy` may inflate to before it turns out to be: well under a millisecond."""
COMPRESSED_RECORDS_MAX = 1_000_000
"""Of one compressed batch: two kilobytes can claim, and hold, any number. To look at so many takes half a second of a thread."""
_REFUSED_ATTRIBUTES = ~(layout.COMPRESSION_MASK | LOG_APPEND_TIME | TRANSACTIONAL)


def validate_client_batch(  # noqa: C901 -- flat: every batch comes through here
    view: Buffer, config: LogConfig, now_ms: int, *, inflated_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> BatchHeader:
    """Checks the records field of a Produce request, which must be exactly one batch, and returns its header.

    On LogAppendTime topics ``view`` (writable) is stamped with ``now_ms`` and its CRC made anew; the header returned is the
    one after that. Base offset and leader epoch are for the log to stamp. Raises KafkaError: CORRUPT_MESSAGE,
    INVALID_RECORD (old formats too; RecordError names the record), MESSAGE_TOO_LARGE, INVALID_TIMESTAMP,
    UNSUPPORTED_COMPRESSION_TYPE.
    """
    size = len(view)
    if size < HEADER_BYTES or view[MAGIC_AT] != MAGIC:
        _refuse_shape(view)
    header = _MAKE(_UNPACK(view))
    if header.batch_length != size - layout.LOG_OVERHEAD:
        _refuse_length(header, size)
    if size > config.max_message_bytes:
        _refuse_size(header, size, config)
    if crc32c(memoryview(view)[CRC_START:]) != header.crc:
        raise CorruptBatchError("CRC of the batch does not match")
    count = header.records_count
    attributes = header.attributes
    if (
        count <= 0
        or header.last_offset_delta != count - 1
        or header.base_offset != 0
        or attributes & _REFUSED_ATTRIBUTES
        or (header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < -1))
        or (attributes & TRANSACTIONAL and header.producer_id < 0)
    ):
        _refuse_header(header)
    if attributes & layout.COMPRESSION_MASK == NONE and count * RECORD_BYTES_MIN > size - HEADER_BYTES:
        raise RecordError(f"{count} records cannot be in {size - HEADER_BYTES} bytes")
    walk = _look_inside(view, header, config, inflated_bytes_max) if looks_inside(attributes, config) else None
    if attributes & LOG_APPEND_TIME:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "the timestamp type LogAppendTime is the broker's to set")
    if config.message_timestamp_type != "CreateTime":
        return stamp_append_time(view, header, now_ms)
    if walk is not None:
        return _check_least_and_largest(view, header, walk, config, now_ms)
    if header.max_timestamp - now_ms > config.message_timestamp_after_max_ms:
        _refuse_timestamp(header.max_timestamp, config, now_ms)
    return header


def looks_inside(attributes: int, config: LogConfig) -> bool:
    """Whether each record of a batch is looked at."""
    codec = attributes & layout.COMPRESSION_MASK
    return (
        codec != NONE
        or config.compacted
        or config.message_timestamp_before_max_ms < FOREVER
        or (config.compression_type != "producer" and codec_of_setting(config.compression_type) != codec)
    )


def _look_inside(view: Buffer, header: BatchHeader, config: LogConfig, inflated_bytes_max: int) -> RecordWalk:
    """Raises RecordError (what cannot be decompressed is its sender's doing: the CRC is sound), KafkaError."""
    codec = header.compression
    if codec > ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression codec {codec} is unknown")
    count = header.records_count
    if codec != NONE and count > COMPRESSED_RECORDS_MAX:
        message = f"{count} compressed records, {COMPRESSED_RECORDS_MAX} are the most in one batch"
        impossible = count * RECORD_BYTES_MIN > DECOMPRESSED_BYTES_MAX
        raise RecordError(message, code=ErrorCode.INVALID_RECORD if impossible else ErrorCode.MESSAGE_TOO_LARGE)
    no_time = _NO_TIMESTAMP - header.base_timestamp
    walk = RecordWalk(count, keys_required=config.compacted, no_time=no_time)
    try:
        for piece in inflate(codec, memoryview(view)[HEADER_BYTES:], inflated_bytes_max):
            walk.feed(piece)
    except DecompressionError as error:
        if error.is_size:
            raise
        raise RecordError(error.message) from error
    walk.finish()
    return walk


def _check_least_and_largest(
    view: Buffer, header: BatchHeader, walk: RecordWalk, config: LogConfig, now_ms: int
) -> BatchHeader:
    """Judges the records' own times; the header is to say the largest of them, as Kafka sees to."""
    largest = max(header.base_timestamp + walk.largest, _NO_TIMESTAMP)
    least = header.base_timestamp + walk.least
    before = config.message_timestamp_before_max_ms
    if least < _TIMESTAMP_MIN or (before < FOREVER and now_ms - least > before):
        _refuse_timestamp(least, config, now_ms)
    if largest > FOREVER or largest - now_ms > config.message_timestamp_after_max_ms:
        _refuse_timestamp(largest, config, now_ms)
    if largest == header.max_timestamp:
        return header
    assert not isinstance(view, bytes)
    layout.HEADER.pack_into(view, 0, *(header := header._replace(max_timestamp=largest)))
    return header._replace(crc=reseal(view))


def stamp_append_time(view: Buffer, header: BatchHeader, now_ms: int) -> BatchHeader:
    """Makes ``now_ms`` the time of all records of one batch, in place; the CRC covers it and is computed anew."""
    assert not isinstance(view, bytes)
    stamped = header._replace(attributes=header.attributes | LOG_APPEND_TIME, max_timestamp=now_ms)
    layout.HEADER.pack_into(view, 0, *stamped)
    return stamped._replace(crc=reseal(view))


def target_codec(header: BatchHeader, config: LogConfig) -> int | None:
    """The codec the batch must be recompressed with, or None when it may stay as it is."""
    codec = codec_of_setting(config.compression_type)
    return None if codec is None or codec == header.compression else codec


def is_compressed(view: Buffer) -> bool:
    return len(view) >= HEADER_BYTES and view[_ATTRIBUTES_AT] & layout.COMPRESSION_MASK != NONE


def is_heavy(view: Buffer, config: LogConfig) -> bool:
    """Whether `prepare` belongs on a thread: it would compress or look into 32 KB, or inflate much, or nobody knows how much.

    A small compressed batch may turn out to be heavy: `LIGHT_BYTES_MAX`.
    """
    size = len(view)
    if size < HEADER_BYTES:
        return False
    attributes = view[_ATTRIBUTES_AT]
    codec = attributes & layout.COMPRESSION_MASK
    if codec == NONE:
        return size >= _HEAVY_BYTES and looks_inside(attributes, config)
    if config.compression_type != "producer" and codec_of_setting(config.compression_type) != codec:
        return True
    return size >= _HEAVY_COMPRESSED_BYTES or _COUNT.unpack_from(view, _COUNT_AT)[0] > _HEAVY_RECORDS


def prepare(view: bytearray, config: LogConfig, now_ms: int) -> tuple[bytearray, BatchHeader]:
    """`validate_client_batch` and `recompress`: the batch as the log takes it, and its header. Raises as they do."""
    header = validate_client_batch(view, config, now_ms)
    if target_codec(header, config) is None:
        return view, header
    batch = recompress(view, header, config)
    return batch, layout.read_header(batch)


def recompress(
    view: Buffer, header: BatchHeader, config: LogConfig, *, inflated_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> bytearray:
    """The validated batch in the topic's own ``compression.type``: a new buffer, same records, same offsets.

    Takes milliseconds for large batches: callers put it on a thread from 32 KB on. Raises KafkaError, MESSAGE_TOO_LARGE too.
    """
    codec = target_codec(header, config)
    if codec is None:
        return bytearray(view)
    block = records_block(view, header, inflated_bytes_max)
    attributes = header.attributes & ~layout.COMPRESSION_MASK | codec
    packed = block if codec == NONE else compress(codec, block, _level(codec, config))
    batch = assemble_batch(header._replace(attributes=attributes), packed)
    if len(batch) > config.max_message_bytes:
        message = f"recompressed batch of {len(batch)} bytes, max.message.bytes is {config.max_message_bytes}"
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, message)
    return batch


def _level(codec: int, config: LogConfig) -> int | None:
    levels = {
        GZIP: config.compression_gzip_level,
        LZ4: config.compression_lz4_level,
        ZSTD: config.compression_zstd_level,
    }
    return levels.get(codec)


def validate_follower_batches(
    view: Buffer, log_end_offset: int, leader_epoch: int | None = None
) -> tuple[list[tuple[int, BatchHeader]], int]:
    """Checks batches a leader sent: ([(position, header)], bytes to append from the front of ``view``).

    A partial batch at the end is left out, and so are a batch of an epoch above ``leader_epoch`` (the epoch that was fetched
    from) and all behind it: they would be another leader's. Raises CorruptBatchError, or KafkaError (OFFSET_OUT_OF_RANGE)
    when offsets go back.
    """
    batches: list[tuple[int, BatchHeader]] = []
    end = 0
    for position, header in layout.headers(view):
        if leader_epoch is not None and header.leader_epoch > leader_epoch:
            break
        if header.base_offset < log_end_offset or header.last_offset_delta < 0:
            message = (
                f"batch {header.base_offset}..{header.last_offset} does not follow log end offset {log_end_offset}"
            )
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        layout.check_crc(view, header, position)
        batches.append((position, header))
        log_end_offset = header.last_offset + 1
        end = position + header.size_bytes
    return batches, end


def _refuse_shape(view: Buffer) -> NoReturn:
    if len(view) > MAGIC_AT and view[MAGIC_AT] in (0, 1):
        message = f"message format {view[MAGIC_AT]} is no longer supported; use record batches (version 2)"
        raise RecordError(message)  # as ProduceRequest.validateRecords says it
    if len(view) == 0:
        raise RecordError("no batch where exactly one was expected")
    if len(view) < HEADER_BYTES:
        raise RecordError(f"batch cut off: {len(view)} bytes")
    raise CorruptBatchError(f"batch of unknown version {view[MAGIC_AT]}")


def _refuse_length(header: BatchHeader, size: int) -> NoReturn:
    if HEADER_BYTES <= header.size_bytes < size:
        raise RecordError(f"{size - header.size_bytes} bytes after the batch: exactly one batch is taken")
    if header.size_bytes > size:
        raise RecordError(f"batch of {header.size_bytes} bytes, {size} were sent")
    raise CorruptBatchError(f"batch of {header.size_bytes} bytes")


def _refuse_size(header: BatchHeader, size: int, config: LogConfig) -> NoReturn:
    if header.base_offset != 0:
        _refuse_header(header)
    message = f"batch of {size} bytes, max.message.bytes is {config.max_message_bytes}"
    raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, message)


def _refuse_header(header: BatchHeader) -> NoReturn:
    if header.base_offset != 0:
        raise RecordError(f"base offset is {header.base_offset}, producers send 0")
    if header.records_count <= 0 or header.last_offset_delta != header.records_count - 1:
        raise RecordError(f"{header.records_count} records with last offset delta {header.last_offset_delta}")
    if header.attributes & CONTROL:
        raise RecordError("control batches are the broker's to write")
    if header.attributes & _REFUSED_ATTRIBUTES:
        raise RecordError(f"attributes {header.attributes:#06x} are not for producers to set")
    if header.producer_id >= 0 and header.base_sequence >= 0 and header.producer_epoch < -1:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, f"producer epoch {header.producer_epoch}")
    raise RecordError(
        f"producer {header.producer_id} with base sequence {header.base_sequence}, attributes {header.attributes:#06x}"
    )


def _refuse_timestamp(timestamp: int, config: LogConfig, now_ms: int) -> NoReturn:
    before, after = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
    message = f"timestamp {timestamp} is outside now - {before} .. now + {after} ms (now is {now_ms})"
    raise KafkaError(ErrorCode.INVALID_TIMESTAMP, message)
