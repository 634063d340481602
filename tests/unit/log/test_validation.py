"""What a leader refuses from clients and a follower from leaders (kraft.md 4.3)."""

import struct
from random import Random

import pytest

from ottla.log.batch import HEADER, LOG_APPEND_TIME, BatchHeader, CorruptBatchError, check_crc, read_header
from ottla.log.compression import DecompressionError, compress
from ottla.log.config import LogConfig
from ottla.log.records import (
    EndMarker,
    Record,
    RecordError,
    assemble_batch,
    decode_records,
    encode_batch,
    encode_records,
    end_marker_batch,
    reseal,
)
from ottla.log.validation import (
    COMPRESSED_RECORDS_MAX,
    is_heavy,
    prepare,
    recompress,
    target_codec,
    validate_client_batch,
    validate_follower_batches,
)
from ottla.runtime.errors import ErrorCode, KafkaError

NOW = 1_700_000_000_000
CONFIG = LogConfig()
COMPACTED = LogConfig(cleanup_policy=("compact",))
APPEND_TIME = LogConfig(message_timestamp_type="LogAppendTime")
RECORDS = [Record(i, NOW + i, b"k%d" % i, b"value") for i in range(3)]


def batch_of(records: list[Record] | None = None, **changes: int) -> bytearray:
    """A sound batch whose header then gets ``changes``, with a CRC that matches."""
    batch = encode_batch(RECORDS if records is None else records)
    header = read_header(batch)._replace(**changes)
    HEADER.pack_into(batch, 0, *header)
    reseal(batch)
    return batch


def refusal(batch: bytes | bytearray | memoryview, config: LogConfig = CONFIG) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        validate_client_batch(batch, config, NOW)
    return caught.value


def test_a_sound_batch_passes_untouched() -> None:
    batch = encode_batch(RECORDS)
    before = bytes(batch)
    assert validate_client_batch(memoryview(batch), CONFIG, NOW) == read_header(batch)
    assert batch == before


def test_nothing_and_less_than_a_header_are_refused() -> None:
    assert refusal(b"").code is ErrorCode.INVALID_RECORD
    assert refusal(bytes(encode_batch(RECORDS)[:60])).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats_are_refused_by_name(magic: int) -> None:
    for size in (17, 26, 100):
        data = bytearray(size)
        data[16] = magic
        error = refusal(data)
        assert error.code is ErrorCode.INVALID_RECORD
        assert f"message format {magic}" in error.message


def test_a_version_of_the_future_is_refused() -> None:
    batch = encode_batch(RECORDS)
    batch[16] = 3
    assert refusal(batch).code is ErrorCode.CORRUPT_MESSAGE


def test_exactly_one_batch_is_taken() -> None:
    batch = encode_batch(RECORDS)
    assert refusal(batch + batch).code is ErrorCode.INVALID_RECORD
    assert refusal(batch + b"\x00").code is ErrorCode.INVALID_RECORD


def test_a_batch_cut_off_is_none_and_one_with_a_senseless_length_corrupt() -> None:
    batch = encode_batch(RECORDS)
    assert refusal(batch[:-1]).code is ErrorCode.INVALID_RECORD
    for length in (-1, 0, 48):
        struct.pack_into(">i", batch, 8, length)
        assert refusal(batch).code is ErrorCode.CORRUPT_MESSAGE


def test_a_flipped_bit_is_corrupt() -> None:
    batch = encode_batch(RECORDS)
    batch[-1] ^= 1
    assert refusal(batch).code is ErrorCode.CORRUPT_MESSAGE


def test_max_message_bytes_counts_the_whole_batch() -> None:
    batch = encode_batch(RECORDS)
    validate_client_batch(batch, LogConfig(max_message_bytes=len(batch)), NOW)
    assert refusal(batch, LogConfig(max_message_bytes=len(batch) - 1)).code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    "changes",
    [
        {"base_offset": 1},
        {"records_count": 0, "last_offset_delta": -1},
        {"records_count": -1, "last_offset_delta": -2},
        {"records_count": 2},
        {"last_offset_delta": 5},
        {"attributes": 0x20},
        {"attributes": 0x40},
        {"attributes": 0x80},
        {"attributes": 0x10},
        {"producer_id": 5, "producer_epoch": 0, "base_sequence": -1},
    ],
)
def test_headers_that_no_producer_sends_are_refused(changes: dict[str, int]) -> None:
    assert refusal(batch_of(None, **changes)).code is ErrorCode.INVALID_RECORD


def test_control_batches_are_refused_from_clients() -> None:
    batch = end_marker_batch(EndMarker(True, 0), producer_id=1, producer_epoch=0, timestamp=NOW)
    assert refusal(batch).code is ErrorCode.INVALID_RECORD


def test_a_producer_epoch_below_none_is_refused() -> None:
    producer = {"producer_id": 5, "base_sequence": 0}
    validate_client_batch(batch_of(None, producer_epoch=-1, **producer), CONFIG, NOW)
    assert refusal(batch_of(None, producer_epoch=-2, **producer)).code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_unknown_codec_is_unsupported() -> None:
    assert refusal(batch_of(attributes=5)).code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_a_transactional_batch_of_a_producer_passes() -> None:
    validate_client_batch(batch_of(attributes=0x10, producer_id=5, producer_epoch=0, base_sequence=0), CONFIG, NOW)


def test_log_append_time_is_not_the_clients_to_claim() -> None:
    assert refusal(batch_of(attributes=LOG_APPEND_TIME)).code is ErrorCode.INVALID_TIMESTAMP


def test_time_stamps_too_far_in_the_future_are_refused() -> None:
    edge = NOW + CONFIG.message_timestamp_after_max_ms
    validate_client_batch(batch_of([Record(0, edge, None, b"")]), CONFIG, NOW)
    assert refusal(batch_of([Record(0, edge + 1, None, b"")])).code is ErrorCode.INVALID_TIMESTAMP


def test_the_lower_bound_looks_at_every_record() -> None:
    config = LogConfig(message_timestamp_before_max_ms=1000)
    late = [Record(0, NOW, None, b""), Record(1, NOW - 1000, None, b"")]
    validate_client_batch(batch_of(late), config, NOW)
    too_late = [Record(0, NOW, None, b""), Record(1, NOW - 1001, None, b"")]
    assert refusal(batch_of(too_late), config).code is ErrorCode.INVALID_TIMESTAMP
    validate_client_batch(batch_of(too_late), CONFIG, NOW)


def test_times_that_no_log_can_hold_are_refused() -> None:
    batch = batch_of([Record(0, NOW, b"k", b""), Record(1, NOW + 2**62, b"k", b"")], base_timestamp=2**62 + NOW)
    config = LogConfig(message_timestamp_after_max_ms=2**63 - 1, cleanup_policy=("compact",))
    assert refusal(batch, config).code is ErrorCode.INVALID_TIMESTAMP


def test_records_without_a_time_stamp_are_within_any_bounds() -> None:
    mixed = [Record(0, -1, None, b""), Record(1, NOW - 5, None, b"")]
    assert refusal(batch_of(mixed), LogConfig(message_timestamp_before_max_ms=1)).code is ErrorCode.INVALID_TIMESTAMP
    validate_client_batch(batch_of([Record(0, -1, None, b"")]), LogConfig(message_timestamp_before_max_ms=1), NOW)


@pytest.mark.parametrize("compression", range(5))
@pytest.mark.parametrize("time_type", ["CreateTime", "LogAppendTime"])
def test_compacted_topics_need_keys_and_the_record_is_named(compression: int, time_type: str) -> None:
    config = LogConfig(cleanup_policy=("compact", "delete"), message_timestamp_type=time_type)
    validate_client_batch(encode_batch(RECORDS, compression=compression), config, NOW)
    error = refusal(encode_batch([*RECORDS, Record(3, NOW, None, b"")], compression=compression), config)
    assert isinstance(error, RecordError)
    assert (error.code, error.batch_index) == (ErrorCode.INVALID_RECORD, 3)


def test_an_empty_key_is_a_key() -> None:
    validate_client_batch(encode_batch([Record(0, NOW, b"", b"")]), COMPACTED, NOW)


def test_a_bomb_is_refused_when_records_must_be_walked() -> None:
    batch = encode_batch([Record(0, NOW, b"k", bytes(1_000_000))], compression=4)
    with pytest.raises(KafkaError) as caught:
        validate_client_batch(batch, COMPACTED, NOW, inflated_bytes_max=10_000)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"\x0c\x00\x00\x02\x02a\x00",
        b"\x0c\x00\x00\x00\x02a",
        b"\x7e\x00\x00\x00\x02a\x00",
        b"\x0e\x00\x00\x00\x02a\x00\x00\x00",
        b"\x0a\x00\x00\x00\x02a\x00",
        b"\x0a\x00\x00\x00\x02a",  # five bytes, as it says; no record has fewer than six
    ],
)
def test_records_that_do_not_fit_their_header_are_refused_when_walked(block: bytes) -> None:
    header = read_header(encode_batch([Record(0, NOW, b"k", b"")]))
    assert refusal(assemble_batch(header, block), COMPACTED).code is ErrorCode.INVALID_RECORD


def test_a_record_that_passes_the_end_of_its_batch_is_named() -> None:
    header = read_header(encode_batch([Record(0, NOW, b"k", b"")]))
    error = refusal(assemble_batch(header, b"\x7e\x00\x00\x00\x02a\x00"), COMPACTED)
    assert isinstance(error, RecordError)
    assert error.batch_index == 0


def packed(block: bytes, codec: int, count: int = 1, **changes: int) -> bytearray:
    """A batch that says it holds ``count`` records, whatever is in it."""
    header = read_header(encode_batch(RECORDS))._replace(
        attributes=codec, records_count=count, last_offset_delta=count - 1, **changes
    )
    return assemble_batch(header, block)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_what_cannot_be_decompressed_is_refused_from_its_producer(codec: int) -> None:
    for garbage in (b"", b"this is not compressed", bytes(encode_records(RECORDS, 0, NOW))):
        error = refusal(packed(garbage, codec, 3))
        assert isinstance(error, RecordError)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_compressed_records_are_as_many_as_their_header_says(codec: int) -> None:
    block = compress(codec, encode_records(RECORDS, 0, NOW))
    validate_client_batch(packed(block, codec, 3, max_timestamp=NOW + 2), CONFIG, NOW)
    for count in (1, 2, 4, 1000):
        assert isinstance(refusal(packed(block, codec, count)), RecordError)


@pytest.mark.parametrize("count", [2, 2**31 - 1])
def test_more_records_than_bytes_have_room_for_are_refused(count: int) -> None:
    assert refusal(packed(b"", 0, count)).code is ErrorCode.INVALID_RECORD
    smallest = bytes(encode_records([Record(0, NOW, None, None)], 0, NOW))
    assert len(smallest) == 7
    validate_client_batch(packed(smallest, 0), CONFIG, NOW)
    assert refusal(packed(smallest + bytes(6), 0, count)).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_few_bytes_do_not_become_hundreds_of_megabytes(codec: int) -> None:
    block = compress(codec, encode_records([Record(0, NOW, None, bytes(100_000))], 0, NOW))
    with pytest.raises(DecompressionError) as caught:
        validate_client_batch(packed(block, codec), CONFIG, NOW, inflated_bytes_max=99_999)
    assert caught.value.is_size


def test_compressed_records_have_a_limit_that_no_client_reaches() -> None:
    error = refusal(packed(b"", 4, COMPRESSED_RECORDS_MAX + 1))
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_the_largest_time_of_compressed_records_is_theirs_and_not_the_headers(codec: int) -> None:
    block = compress(codec, encode_records(RECORDS, 0, NOW))
    batch = packed(block, codec, 3, base_timestamp=NOW, max_timestamp=NOW + 99)
    header = validate_client_batch(batch, CONFIG, NOW)
    assert header == read_header(batch)
    assert header.max_timestamp == NOW + 2
    check_crc(batch, header)
    late = packed(block, codec, 3, base_timestamp=NOW + CONFIG.message_timestamp_after_max_ms - 1, max_timestamp=NOW)
    assert refusal(late).code is ErrorCode.INVALID_TIMESTAMP


def test_log_append_time_is_stamped_in_place_and_sealed() -> None:
    batch = encode_batch(RECORDS)
    header = validate_client_batch(memoryview(batch), APPEND_TIME, NOW + 500)
    assert header == read_header(batch)
    check_crc(batch, header)
    assert header.attributes & LOG_APPEND_TIME
    assert {record.timestamp for record in decode_records(batch, header)} == {NOW + 500}


@pytest.mark.parametrize("source", range(5))
@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_recompression_keeps_the_records(source: int, target: str) -> None:
    batch = encode_batch(RECORDS, compression=source, producer_id=1, producer_epoch=2, base_sequence=3)
    config = LogConfig(compression_type=target)
    found = recompress(memoryview(batch), read_header(batch), config)
    header = read_header(found)
    check_crc(found, header)
    assert target_codec(header, config) is None
    assert decode_records(found, header) == RECORDS
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1, 2, 3)


def test_the_producers_codec_is_kept_when_the_topic_says_so() -> None:
    batch = encode_batch(RECORDS, compression=2)
    assert target_codec(read_header(batch), CONFIG) is None
    assert recompress(batch, read_header(batch), CONFIG) == batch


def test_recompression_checks_size_and_records_again() -> None:
    batch = encode_batch([Record(0, NOW, None, bytes(10_000))], compression=1)
    with pytest.raises(KafkaError) as caught:
        recompress(batch, read_header(batch), LogConfig(compression_type="uncompressed", max_message_bytes=5_000))
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    with pytest.raises(RecordError):
        prepare(batch_of([Record(1, NOW, None, b"")]), LogConfig(compression_type="gzip"), NOW)


@pytest.mark.parametrize(
    ("codec", "setting", "worst", "best"),
    [("gzip", "compression_gzip_level", 1, 9), ("lz4", "compression_lz4_level", 9, 12), ("zstd", "compression_zstd_level", 1, 19)],
)  # fmt: skip
def test_the_topics_compression_level_is_used(codec: str, setting: str, worst: int, best: int) -> None:
    batch = encode_batch([Record(n, NOW, b"%d" % n, b"%d bottles of beer %x" % (n, n * n)) for n in range(3_000)])
    sizes = [
        len(recompress(batch, read_header(batch), LogConfig(compression_type=codec, **{setting: level})))  # type: ignore[arg-type]  # one keyword, an int
        for level in (worst, best)
    ]
    assert sizes[1] < sizes[0]


def heavy(batch: bytes | bytearray, **config: object) -> bool:
    return is_heavy(batch, LogConfig(**config))  # type: ignore[arg-type]  # keywords of the struct


def test_what_takes_long_is_prepared_elsewhere() -> None:
    small, large = encode_batch(RECORDS), encode_batch([Record(0, NOW, b"k", bytes(32 << 10))])
    packed = encode_batch(RECORDS, compression=1)
    assert [heavy(each, compression_type="lz4") for each in (small, large, packed)] == [False, True, True]
    assert [heavy(each, compression_type="gzip") for each in (small, large, packed)] == [False, True, False]
    assert [heavy(each, compression_type="uncompressed") for each in (small, large, packed)] == [False, False, True]
    assert [heavy(each, cleanup_policy=("compact",)) for each in (small, large, packed)] == [False, True, False]
    assert [heavy(each, message_timestamp_before_max_ms=1) for each in (small, large, packed)] == [False, True, False]
    assert [heavy(each) for each in (small, large, packed, b"")] == [False] * 4
    assert not heavy(b"", compression_type="gzip")


def test_many_compressed_bytes_or_records_take_long() -> None:
    noise = Random(1).randbytes(16 << 10)
    many = [Record(number, NOW, None, b"") for number in range(513)]
    assert heavy(encode_batch([Record(0, NOW, None, noise)], compression=3))
    assert [heavy(encode_batch(many[:count], compression=4)) for count in (512, 513)] == [False, True]


def test_a_prepared_batch_is_checked_and_in_the_topics_codec() -> None:
    config = LogConfig(compression_type="zstd")
    batch, header = prepare(encode_batch(RECORDS), config, NOW)
    assert (header, header.compression) == (read_header(batch), 4)
    assert prepare(batch, config, NOW) == (batch, header)
    batch[-1] ^= 1
    with pytest.raises(CorruptBatchError):
        prepare(batch, config, NOW)


def placed(base_offset: int, leader_epoch: int = 0) -> bytearray:
    records = [record._replace(offset=base_offset + record.offset) for record in RECORDS]
    return encode_batch(records, base_offset=base_offset, leader_epoch=leader_epoch)


def bases(found: list[tuple[int, BatchHeader]]) -> list[int]:
    return [header.base_offset for _, header in found]


def test_a_follower_takes_whole_batches_and_leaves_the_rest() -> None:
    first, second = placed(10), placed(13)
    found, size = validate_follower_batches(first + second + placed(16)[:-1], 10)
    assert bases(found) == [10, 13]
    assert size == len(first) + len(second)


def test_a_follower_takes_gaps_but_never_offsets_that_go_back() -> None:
    assert bases(validate_follower_batches(placed(10) + placed(20), 5)[0]) == [10, 20]
    for data, end in [(placed(10), 11), (placed(10) + placed(12), 10)]:
        with pytest.raises(KafkaError) as caught:
            validate_follower_batches(data, end)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_follower_takes_no_batch_that_ends_before_it_begins() -> None:
    batch = placed(10)
    HEADER.pack_into(batch, 0, *read_header(batch)._replace(last_offset_delta=-1))
    reseal(batch)
    with pytest.raises(KafkaError) as caught:
        validate_follower_batches(batch, 10)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_follower_checks_every_crc() -> None:
    damaged = placed(13)
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatchError):
        validate_follower_batches(placed(10) + damaged, 10)


def test_a_follower_drops_batches_of_a_later_epoch_and_all_behind() -> None:
    data = placed(10, 4) + placed(13, 6) + placed(16, 4)
    found, size = validate_follower_batches(data, 10, leader_epoch=5)
    assert bases(found) == [10]
    assert size == len(placed(10))
    assert len(validate_follower_batches(data, 10)[0]) == 3
