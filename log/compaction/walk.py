"""Walking the records of a batch at speed: the inner loops of compaction.

Each function goes over the bytes of a batch's records (decompressed) and reads no more of each than it must; nothing is made
for a record that can be a slice of the batch. Varints are decoded in place.
All raise RecordError when the bytes are not ``count`` records: such a batch is kept as it is.
"""

from hashlib import blake2b
from typing import TYPE_CHECKING

from ottla.log.records import RECORD_BYTES_MIN, RecordError, read_varint

if TYPE_CHECKING:
    from ottla.log.compaction.mapping import KeyMap

DEAD, ALIVE, TOMBSTONE = 0, 1, 2
"""What becomes of a record: dropped, kept, kept while the delete horizon lies ahead."""

KEY_BYTES_MAX = 32
DIGEST_BYTES = 40  # longer than any key kept as it is, so the two kinds cannot meet
_SHIFT_END = 35  # a length is an int32: five bytes


def map_key(key: bytes) -> bytes:
    """The key as the map holds it: itself, or the digest of a long one."""
    return key if len(key) <= KEY_BYTES_MAX else blake2b(key, digest_size=DIGEST_BYTES).digest()


def require_room(count: int, size: int) -> None:
    """Raises RecordError where so many records cannot be in so many bytes: logs of older versions may say anything."""
    if not 0 <= count * RECORD_BYTES_MIN <= size:
        raise RecordError(f"{count} records cannot be in {size} bytes")


def note_keys(block: bytes, count: int, keymap: "KeyMap", at: int, size: int) -> None:
    """Puts the key of each record of ``block[at:size]`` into the map with its ordinal (the caller then moves that on).

    Keyless records are passed over: they do not survive.
    """
    require_room(count, size - at)
    keys, tombstones, ordinal = keymap.keys, keymap.tombstones, keymap.ordinal
    try:
        for current in range(ordinal, ordinal + count):
            byte = block[at]
            length = byte & 0x7F
            at += 1
            shift = 7
            while byte > 0x7F and shift < _SHIFT_END:
                byte = block[at]
                length |= (byte & 0x7F) << shift
                at += 1
                shift += 7
            following = at + (length >> 1)
            at += 1
            while block[at] > 0x7F:  # timestamp delta
                at += 1
            at += 1
            while block[at] > 0x7F:  # offset delta
                at += 1
            byte = block[at + 1]
            if byte < 0x80:
                start = at + 2
                length = (byte >> 1) ^ -(byte & 1)
            else:
                length, start = read_varint(block, at + 1)
            if length >= 0:
                at = start + length
                key = block[start:at]
                keys[key if length <= KEY_BYTES_MAX else map_key(key)] = current
                if block[at] == 1:
                    tombstones.append(current)
            at = following
    except IndexError:
        at = -1
    if at != size:
        raise RecordError(f"{count} records do not end at {size}")


def fates_by_key(block: bytes, count: int, keys: dict[bytes, int]) -> bytearray:
    """The fate of each record of the clean part: it is dead when its key comes again in the dirty part."""
    at, size = 0, len(block)
    require_room(count, size)
    fates = bytearray(count)
    try:
        for current in range(count):
            byte = block[at]
            length = byte & 0x7F
            at += 1
            shift = 7
            while byte > 0x7F and shift < _SHIFT_END:
                byte = block[at]
                length |= (byte & 0x7F) << shift
                at += 1
                shift += 7
            following = at + (length >> 1)
            at += 1
            while block[at] > 0x7F:
                at += 1
            at += 1
            while block[at] > 0x7F:
                at += 1
            byte = block[at + 1]
            if byte < 0x80:
                start = at + 2
                length = (byte >> 1) ^ -(byte & 1)
            else:
                length, start = read_varint(block, at + 1)
            if length >= 0:
                at = start + length
                key = block[start:at]
                if (key if length <= KEY_BYTES_MAX else map_key(key)) not in keys:
                    fates[current] = TOMBSTONE if block[at] == 1 else ALIVE
            at = following
    except IndexError:
        at = -1
    if at != size:
        raise RecordError(f"{count} records do not end at {size}")
    return fates


def surviving_bytes(block: bytes, fates: bytes | bytearray) -> tuple[list[bytes], int]:
    """(runs of neighbouring surviving records, their largest timestamp delta). At least one must survive."""
    runs: list[bytes] = []
    run_start, largest = -1, -(2**63)
    at, size = 0, len(block)
    try:
        for fate in fates:
            begin = at
            byte = block[at]
            length = byte & 0x7F
            at += 1
            shift = 7
            while byte > 0x7F and shift < _SHIFT_END:
                byte = block[at]
                length |= (byte & 0x7F) << shift
                at += 1
                shift += 7
            body = at + 1
            at += length >> 1
            if fate == DEAD:
                if run_start >= 0:
                    runs.append(block[run_start:begin])
                    run_start = -1
                continue
            if run_start < 0:
                run_start = begin
            byte = block[body]
            delta = (byte >> 1) ^ -(byte & 1) if byte < 0x80 else read_varint(block, body)[0]
            if delta > largest:
                largest = delta
    except IndexError:
        at = -1
    if at != size:
        raise RecordError(f"{len(fates)} records do not end at {size}")
    if run_start >= 0:
        runs.append(block[run_start:])
    return runs, largest
