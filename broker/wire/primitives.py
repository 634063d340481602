"""The variable-size pieces of Kafka's encoding, called by the compiled codecs and the hand-written walks.

Readers take the frame as a ``memoryview`` that ends where the frame ends, and a position; they check every length
against the bytes that remain before they slice or allocate. They may raise IndexError or struct.error at the end of
the bytes: the public functions turn those into WireError.
"""

from functools import lru_cache
from struct import Struct

from ottla.broker.wire.errors import WireError

Records = bytes | bytearray | memoryview
"""Record batches, unread: a slice of the frame they came in (gone when its buffer is), or bytes to send uncopied."""

Buffer = bytes | bytearray | memoryview

STRING_MAX = 0x7FFF
TAGS_MAX = 32
"""Fields of one tagged section. No message of Kafka has a third of that; and a frame that may be large is not to be millions of them, each
of which takes 0.2 us of everybody's time, and in a Fetch 160 bytes."""
ERROR_MESSAGE_MAX = 4096
"""Bytes of an error's words. They may quote what a client wrote, which was as long as a string can be."""
UNCOPIED_MIN = 2048
"""Bytes from which a payload gets its own buffer instead of being joined: a copy costs less below."""

INT16 = Struct(">h")
INT32 = Struct(">i")

VARINTS = tuple(bytes((n,)) for n in range(128))


def encode_varint(value: int) -> bytes:
    """An unsigned varint (base 128, low group first)."""
    if value < 128:
        return VARINTS[value]
    if value < 16384:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 2097152:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    groups = bytearray()
    while value > 127:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def read_varint(view: memoryview, pos: int) -> tuple[int, int]:
    """An unsigned varint of at most five bytes, and the position behind it."""
    first = view[pos]
    return (first, pos + 1) if first < 128 else more_varint(view, pos + 1, first)


def more_varint(view: memoryview, pos: int, first: int) -> tuple[int, int]:
    """The rest of a varint whose ``first`` byte (with the continuation bit) was read."""
    byte = view[pos]
    if byte < 128:
        return first - 128 + (byte << 7), pos + 1
    value = first - 128 + (byte - 128 << 7)
    byte = view[pos + 1]
    if byte < 128:
        return value + (byte << 14), pos + 2
    value += byte - 128 << 14
    byte = view[pos + 2]
    if byte < 128:
        return value + (byte << 21), pos + 3
    value += byte - 128 << 21
    byte = view[pos + 3]
    if byte < 16:
        return value + (byte << 28), pos + 4
    raise WireError("a varint is longer than 32 bits")


def skip_tags(view: memoryview, pos: int, first: int) -> int:
    """Steps over a tagged section whose count began with the byte ``first``: no tag in it is known."""
    count, pos = tag_count(view, pos, first)
    for _ in range(count):
        _, pos = read_varint(view, pos)
        size, pos = read_varint(view, pos)
        pos += size
    if pos > len(view):
        raise truncated()
    return pos


def tag_count(view: memoryview, pos: int, first: int) -> tuple[int, int]:
    """How many there are in a tagged section whose count began with the byte ``first``, and the position behind the count."""
    count, pos = (first, pos) if first < 128 else more_varint(view, pos, first)
    check_count(count, 2, view, pos)
    if count > TAGS_MAX:
        raise WireError(f"a section of {count} tagged fields, {TAGS_MAX} are the most")
    return count, pos


def check_count(count: int, element_size_min: int, view: memoryview, pos: int) -> None:
    """Refuses an array that cannot be in the bytes that remain."""
    if count * element_size_min > len(view) - pos:
        raise too_many(count, len(view) - pos)


def array_count(view: memoryview, pos: int, element_size_min: int) -> tuple[int, int]:
    """The count of a non-null array of an old version, and the position behind it."""
    count: int = INT32.unpack_from(view, pos)[0]
    if count < 0:
        raise unexpected_null()
    check_count(count, element_size_min, view, pos + 4)
    return count, pos + 4


def compact_count(view: memoryview, pos: int, element_size_min: int) -> tuple[int, int]:
    """The count of a non-null compact array, and the position behind it."""
    count, pos = read_varint(view, pos)
    if count == 0:
        raise unexpected_null()
    check_count(count - 1, element_size_min, view, pos)
    return count - 1, pos


def read_string(view: memoryview, pos: int) -> tuple[str | None, int]:
    """A nullable string of an old version."""
    length: int = INT16.unpack_from(view, pos)[0]
    pos += 2
    return (None, pos) if length < 0 else (str(view[pos : pos + length], "utf-8"), pos + length)


def read_compact_string(view: memoryview, pos: int) -> tuple[str | None, int]:
    """A nullable compact string."""
    length = view[pos]
    pos += 1
    if length > 127:
        length, pos = more_string(view, pos, length)
    if length == 0:
        return None, pos
    return str(view[pos : pos + length - 1], "utf-8"), pos + length - 1


def encode_string(text: str | None) -> bytes:
    """A nullable string of an old version."""
    if text is None:
        return b"\xff\xff"
    data = text.encode()
    if len(data) > STRING_MAX:
        raise WireError(f"a string is longer than {STRING_MAX} bytes")
    return INT16.pack(len(data)) + data


def encode_compact_string(text: str | None) -> bytes:
    """A nullable compact string."""
    if text is None:
        return b"\0"
    data = text.encode()
    return (VARINTS[len(data) + 1] if len(data) < 127 else long_string(len(data) + 1)) + data


def error_words(text: str) -> bytes:
    """An error's message, cut to what an answer has room for."""
    data = text.encode()
    if len(data) <= ERROR_MESSAGE_MAX:
        return data
    return (data[: ERROR_MESSAGE_MAX - 3].decode(errors="ignore") + "…").encode()


def encode_tag(tag: int, body: bytes) -> bytes:
    """One field of a tagged section."""
    return encode_varint(tag) + encode_varint(len(body)) + body


def refused_count(count_plus_one: int, remaining: int) -> WireError:
    """The error of a compact count that is null, or more than the bytes that remain can hold."""
    return unexpected_null() if count_plus_one == 0 else too_many(count_plus_one - 1, remaining)


def too_many(count: int, remaining: int) -> WireError:
    return WireError(f"an array of {count} does not fit in the {remaining} bytes that remain")


def too_long(count: int, count_max: int) -> WireError:
    return WireError(f"a list of {count}, {count_max} are the most in such a request")


def truncated() -> WireError:
    return WireError("a field reaches beyond the message's end")


def unexpected_null() -> WireError:
    return WireError("a field is null that may not be")


def more_string(view: memoryview, pos: int, first: int) -> tuple[int, int]:
    """Like ``more_varint`` for a string's length + 1, which Kafka limits as if it were an int16."""
    value, pos = more_varint(view, pos, first)
    if value > STRING_MAX + 1:
        raise WireError(f"a string is longer than {STRING_MAX} bytes")
    return value, pos


def long_string(length_plus_one: int) -> bytes:
    """The length of a compact string of more than 126 bytes."""
    if length_plus_one > STRING_MAX + 1:
        raise WireError(f"a string is longer than {STRING_MAX} bytes")
    return encode_varint(length_plus_one)


@lru_cache(maxsize=512)  # bounded: the counts come from the network
def numbers(letter: str, count: int) -> Struct:
    """The layout of ``count`` numbers of one format letter."""
    return Struct(f">{count}{letter}")


def tag_of_size(tag: int, size: int) -> WireError:
    return WireError(f"the field of tag {tag} does not fill its {size} bytes")
