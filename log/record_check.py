"""Looking at every record of a batch without making one: are they what the header says, and which is the first at a time?

The records are read as their codec gives them, piece by piece, so that a batch takes the memory of two pieces and of its largest
record. One flat loop, for this is the most expensive thing that a Produce may cost: about 0.3 us a record.
Kafka's rules: LogValidator and DefaultRecord. Varints of lengths and offsets have 32 bits, those of timestamps 64.
"""

from typing import NoReturn

from ottla.log.config import FOREVER
from ottla.log.records import RecordError

_INT32_BYTES = 5
_INT64_BYTES = 10
_NULL = 1  # -1, zig-zag: no key, no value


class RecordWalk:
    """A look at each record of a batch. Fed with the bytes of a batch's records, in pieces; `finish` when there are no more.

    ``index`` is the number of records seen, ``least`` and ``largest`` are their timestamp deltas; ``no_time`` is the delta of those
    that have no time, and never the least. All raise RecordError, which names the record.
    """

    __slots__ = ("_count", "_keys_required", "_missing", "_no_time", "_rest", "index", "largest", "least")

    def __init__(self, count: int, *, keys_required: bool = False, no_time: int | None = None) -> None:
        self.index = 0
        self.least = FOREVER
        self.largest = -FOREVER - 1
        self._count = count
        self._keys_required = keys_required
        self._no_time = no_time
        self._rest = bytearray()
        self._missing = 0

    def feed(self, piece: bytes) -> None:
        """Offset deltas must count from 0, fields end with their record, and nothing may follow the last one."""
        block: bytes | bytearray = piece
        if self._rest:
            self._rest += piece
            block = self._rest
            if len(block) < self._missing:  # a large record: not looked at again before it is whole
                return
        at = self._walk(block)
        if self.index == self._count and at < len(block):
            raise RecordError(f"{len(block) - at} bytes or more after the last of {self._count} records")
        self._rest = bytearray(memoryview(block)[at:])

    def finish(self) -> None:
        if self.index < self._count:
            raise RecordError(f"{self._count} records announced, {self.index} are there", self.index)

    def _walk(self, block: bytes | bytearray) -> int:  # noqa: C901 -- flat: a call for each field would double its cost
        """The position behind the last record that is whole."""
        index, count, least, largest, keys_required = (
            self.index,
            self._count,
            self.least,
            self.largest,
            self._keys_required,
        )
        start = at = 0
        end = len(block)
        self._missing = following = 0
        try:
            while index < count:
                start, following = at, -1
                value = block[at]
                at += 1
                if value > 0x7F:
                    value = value & 0x7F | block[at] << 7
                    at += 1
                    if value > 0x3FFF:
                        value, at = _long_varint(block, start, _INT32_BYTES, index)
                if value & 1:
                    _bad("record of negative length", index)
                following = at + (value >> 1)
                if following > end:
                    self._missing = following - start
                    break
                fields = at
                at += 1  # attributes
                value = block[at]
                at += 1
                if value > 0x7F:
                    value = value & 0x7F | block[at] << 7
                    at += 1
                    if value > 0x3FFF:
                        value, at = _long_varint(block, fields + 1, _INT64_BYTES, index)
                value = (value >> 1) ^ -(value & 1)
                if value > largest:
                    largest = value
                if value < least and value != self._no_time:
                    least = value
                value = block[at]
                at += 1
                if value > 0x7F:
                    value = value & 0x7F | block[at] << 7
                    at += 1
                    if value > 0x3FFF:
                        value, at = _long_varint(block, at - 2, _INT32_BYTES, index)
                if value != index << 1:
                    _bad(f"offset delta {(value >> 1) ^ -(value & 1)} in record {index}", index)
                value = block[at]
                at += 1
                if value != _NULL:
                    if value > 0x7F:
                        value, at = _long_varint(block, at - 1, _INT32_BYTES, index)
                    if value & 1:
                        _bad("key of negative length", index)
                    at += value >> 1
                elif keys_required:
                    _bad("compacted topics need a key in every record", index)
                value = block[at]
                at += 1
                if value != _NULL:
                    if value > 0x7F:
                        value = value & 0x7F | block[at] << 7
                        at += 1
                        if value > 0x3FFF:
                            value, at = _long_varint(block, at - 2, _INT32_BYTES, index)
                    if value & 1:
                        _bad("value of negative length", index)
                    at += value >> 1
                if block[at]:
                    at = _headers_end(block, at, index)
                else:
                    at += 1
                if at != following:
                    _bad(
                        f"fields end {at - fields} bytes after their beginning, the length says {following - fields}",
                        index,
                    )
                index += 1
            else:
                start = at
        except IndexError:
            if following >= 0:
                _bad("a field passes the end of the record", index)
            if end - start >= _INT32_BYTES:
                _bad("length of more than 32 bits", index)
        self.index, self.least, self.largest = index, least, largest
        return start


def _long_varint(block: bytes | bytearray, at: int, bytes_max: int, index: int) -> tuple[int, int]:
    """(the number as it lies there, zig-zag and all; position behind it)."""
    value = shift = 0
    for byte in block[at : at + bytes_max]:
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
    if shift < 7 * bytes_max:
        raise IndexError
    _bad(f"number of more than {bytes_max} bytes", index)


def _headers_end(block: bytes | bytearray, at: int, index: int) -> int:
    count, at = _long_varint(block, at, _INT32_BYTES, index)
    if count & 1:
        _bad("negative count of headers", index)
    for _ in range(count >> 1):
        length, at = _long_varint(block, at, _INT32_BYTES, index)
        if length & 1:
            _bad("header without a key", index)
        length, at = _long_varint(block, at + (length >> 1), _INT32_BYTES, index)
        if length != _NULL:
            if length & 1:
                _bad("header value of negative length", index)
            at += length >> 1
    return at


def _bad(message: str, index: int) -> NoReturn:
    raise RecordError(message, index)
