"""Batches as no good client sends them, one for each seed: a sound CRC (mostly), and something wrong inside.

What compressors make of the same bytes differs between their versions, so records are spoilt before they are compressed, and what
is done to compressed bytes has the same end whatever they are: cut in half, doubled, taken for another codec's.
"""

from collections.abc import Callable
from random import Random
from struct import Struct, pack
from zlib import crc32

import msgspec

from ottla.log.batch import BatchHeader
from ottla.log.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress
from ottla.log.config import LogConfig
from ottla.log.records import append_varint, assemble_batch

NOW = 1_700_000_000_000
SETTINGS = (
    "-",
    "cleanup.policy=compact",
    "message.timestamp.type=LogAppendTime",
    "message.timestamp.before.max.ms=1000,message.timestamp.after.max.ms=500",
    "max.message.bytes=130",
    "compression.type=lz4",
)
"""Of the topic, by Kafka's names; ``-`` for none."""
CONFIGS = {
    "-": LogConfig(),
    "cleanup.policy=compact": LogConfig(cleanup_policy=("compact",)),
    "message.timestamp.type=LogAppendTime": LogConfig(message_timestamp_type="LogAppendTime"),
    "message.timestamp.before.max.ms=1000,message.timestamp.after.max.ms=500": LogConfig(
        message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=500
    ),
    "max.message.bytes=130": LogConfig(max_message_bytes=130),
    "compression.type=lz4": LogConfig(compression_type="lz4"),
}

_INT64 = (-(2**63), -(2**31), -2, -1, 0, 1, 2, 2**31, 2**63 - 1)
_INT32 = (-(2**31), -2, -1, 0, 1, 2, 1000, 2**31 - 1)
_INT16 = (-(2**15), -2, -1, 0, 1, 2**15 - 1)
_FIELDS = {
    "base_offset": _INT64,
    "leader_epoch": _INT32,
    "magic": (-128, -1, 0, 1, 3, 127),
    "attributes": (*(1 << bit for bit in range(15)), -(2**15), 5, 6, 7, 0x18, 0x30, 0x28),
    "last_offset_delta": _INT32,
    "base_timestamp": (*_INT64, NOW - 2000, NOW + 10**9),
    "max_timestamp": (*_INT64, NOW - 2000, NOW + 10**9),
    "producer_epoch": _INT16,
    "base_sequence": _INT32,
    "records_count": _INT32,
}
_OLD_MESSAGE = {0: Struct(">Bb"), 1: Struct(">Bbq")}


class StrangeBatch(msgspec.Struct):
    """``wrong`` names what was done to it; ``plain`` is all of it that does not depend on a compressor."""

    seed: int
    settings: str
    data: bytes
    codec: int
    wrong: tuple[str, ...]
    plain: bytes

    @property
    def config(self) -> LogConfig:
        return CONFIGS[self.settings]


class _Record(msgspec.Struct):
    """The parts of a record, each to be spoilt."""

    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]
    attributes: int = 0
    key_length: int | None = None
    value_length: int | None = None
    header_count: int | None = None
    header_key_length: int | None = None
    extra: bytes = b""
    length: int = 0
    wide: bool = False

    def encode(self) -> bytes:
        body = bytearray([self.attributes])
        _varint(body, self.timestamp_delta, wide=self.wide)
        _varint(body, self.offset_delta, wide=self.wide)
        _field(body, self.key, self.key_length)
        _field(body, self.value, self.value_length)
        append_varint(body, len(self.headers) if self.header_count is None else self.header_count)
        for key, value in self.headers:
            _field(body, key, self.header_key_length)
            _field(body, value, None)
        body += self.extra
        out = bytearray()
        _varint(out, len(body) + self.length, wide=self.wide)
        return bytes(out + body)


def _varint(out: bytearray, value: int, *, wide: bool) -> None:
    append_varint(out, value)
    if wide:  # longer than it need be
        out[-1] |= 0x80
        out.append(0)


def _field(out: bytearray, data: bytes | None, length: int | None) -> None:
    append_varint(out, (-1 if data is None else len(data)) if length is None else length)
    out += data or b""


def strange_batch(seed: int) -> StrangeBatch:
    """The batch of that seed: a sound one in every twelve."""
    rng = Random(seed)
    codec = rng.choice((NONE, NONE, NONE, GZIP, SNAPPY, LZ4, ZSTD))
    records = [_record(rng, index) for index in range(rng.randrange(1, 5))]
    header = _header(rng, seed, records)._replace(attributes=codec)
    settings = rng.choice(SETTINGS)
    wrong: list[str] = []
    tail = b""
    for _ in range(rng.choice((0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2))):
        kind = rng.choice(("field", "record", "record", "count", "block", "whole"))
        if kind == "field":
            name = rng.choice(list(_FIELDS))
            header = header._replace(**{name: rng.choice(_FIELDS[name])})
            wrong.append(name)
        elif kind == "record":
            name = rng.choice(list(_RECORD_FAULTS))
            _RECORD_FAULTS[name](rng, rng.choice(records))
            wrong.append(name)
        elif kind == "count":
            change = rng.choice((-1, 1, 5))
            count = min(max(header.records_count + change, -(2**31)), 2**31 - 1)
            header = header._replace(records_count=count, last_offset_delta=max(count - 1, -(2**31)))
            wrong.append("count and delta")
        elif kind == "block":
            tail = rng.choice((b"\0", b"\0" * 7, b"\x0c\0\0\0\1\1\0"))
            wrong.append("tail")
        else:
            wrong.append(rng.choice(list(_WHOLE_FAULTS)))
    block = b"".join(record.encode() for record in records) + tail
    faults = [fault for fault in wrong if fault in _WHOLE_FAULTS]
    plain = repr((settings, header, block, faults)).encode()
    data = _assembled(header, block, faults, rng)
    return StrangeBatch(seed, settings, data, codec, tuple(wrong), plain)


def _record(rng: Random, index: int) -> _Record:
    headers: list[tuple[bytes, bytes | None]] = [(b"h", rng.choice((b"v", None)))] * rng.choice((0, 0, 1, 2))
    key = rng.choice((None, b"", b"key", b"k" * 70)) if rng.randrange(4) == 0 else b"key"
    return _Record(rng.choice((0, 1, 300, -1)), index, key, rng.choice((None, b"", b"value", b"v" * 200)), headers)


def _header(rng: Random, seed: int, records: list[_Record]) -> BatchHeader:
    idempotent = rng.randrange(3) == 0
    return BatchHeader(
        base_offset=0,
        batch_length=0,
        leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=0,
        last_offset_delta=len(records) - 1,
        base_timestamp=NOW,
        max_timestamp=NOW + max(record.timestamp_delta for record in records),
        producer_id=1_000_000 + seed if idempotent else -1,  # nobody's else: a log remembers producers
        producer_epoch=0 if idempotent else -1,
        base_sequence=0 if idempotent else -1,
        records_count=len(records),
    )


def _set(name: str, *values: object) -> Callable[[Random, _Record], None]:
    return lambda rng, record: setattr(record, name, rng.choice(values))


_RECORD_FAULTS: dict[str, Callable[[Random, _Record], None]] = {
    "record attributes": _set("attributes", 1, 7, 0x80, 0xFF),
    "timestamp delta": _set("timestamp_delta", *_INT64, 1000, -2000, -NOW - 1),
    "offset delta": _set("offset_delta", *_INT32),
    "no key": _set("key", None),
    "key length": _set("key_length", -2, -(2**31), 0, 1, 100, 2**31 - 1),
    "value length": _set("value_length", -2, -(2**31), 0, 1, 100, 1000, 2**31 - 1),
    "count of headers": _set("header_count", -1, -(2**31), 0, 1, 3, 2**31 - 1),
    "header key length": _set("header_key_length", -1, -2, 0, 100),
    "header key": _set("headers", [(b"\xff\xfe", b"not UTF-8")]),
    "bytes after the fields": _set("extra", b"\0", b"\0\0\0\0"),
    "record length": _set("length", -1, 1, -7, 100, -(2**20), 2**30),
    "wide varints": _set("wide", True),
}

Fault = Callable[[bytes, Random], bytes]
_BLOCK_FAULTS: dict[str, Callable[[bytes, int], bytes]] = {
    "nothing for records": lambda packed, _: b"",
    "garbage for records": lambda packed, _: b"neither of the codecs wrote this",
    "records cut in half": lambda packed, _: packed[: len(packed) // 2],
    "records twice": lambda packed, _: packed + packed,
    "garbage behind the records": lambda packed, _: packed + b"garbage",
    "records never compressed": lambda packed, _: packed,
}
_WHOLE_FAULTS: dict[str, Fault] = {
    "nothing": lambda data, rng: b"",
    "cut off": lambda data, rng: data[: rng.choice((1, 11, 12, 16, 17, 40, 60, 61))],
    "a byte less": lambda data, rng: data[:-1],
    "a byte more": lambda data, rng: data + b"\0",
    "twice": lambda data, rng: data + data,
    "wrong CRC": lambda data, rng: data[:17] + bytes(4) + data[21:],
    "wrong length": lambda data, rng: (
        data[:8] + pack(">i", rng.choice((-1, 0, 13, 48, 49, 10**6, -(2**31)))) + data[12:]
    ),
    "an old message": lambda data, rng: _old_message(rng),
    "two old messages": lambda data, rng: _old_message(rng) + _old_message(rng),
    **{name: lambda data, rng: data for name in _BLOCK_FAULTS},
}


def _assembled(header: BatchHeader, block: bytes, faults: list[str], rng: Random) -> bytes:
    codec = header.attributes & 7
    packed = block if codec in (NONE, 5, 6, 7) or "records never compressed" in faults else compress(codec, block)
    for name in faults:
        if name in _BLOCK_FAULTS:
            packed = _BLOCK_FAULTS[name](packed, codec)
    data = bytes(assemble_batch(header, packed))
    for name in faults:
        data = _WHOLE_FAULTS[name](data, rng)
    return data


def _old_message(rng: Random) -> bytes:
    """A message of format 0 or 1, as clients sent them ten years ago: sound, but for what may be drawn."""
    magic, attributes = rng.choice((0, 1)), rng.choice((0, 0, 0, 1, 8))
    head = _OLD_MESSAGE[magic].pack(magic, attributes, *((NOW,) if magic else ()))
    body = head + pack(">i3si5s", 3, b"key", 5, b"value")
    message = pack(">I", crc32(body) if rng.randrange(4) else 0) + body
    return pack(">qi", 0, len(message)) + message
