"""Opening and making compressed blocks with pyarrow's own codecs, within bounds.

A batch may inflate a thousandfold, so memory is taken as its bytes come, up to a limit, never because a length asks for it.
"""

from struct import Struct

import numpy as np
import pyarrow as pa

from ottla.pipeline.arrow.batches import Octets
from ottla.pipeline.arrow.errors import BadBlockError

NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = Struct(">8sii")
_XERIAL_BLOCK_BYTES = 32 * 1024
_XERIAL_LENGTH = Struct(">i")

_LZ4_HEADER = bytes.fromhex("04224d18604082")
"""Version 1 with independent blocks of up to 64 KB, and the hash of that."""
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_LENGTH = Struct("<I")
_LZ4_PLAIN = 1 << 31
_LZ4_END = bytes(4)

_ROOM = 64 * 1024
_FIRST_BYTES = 1 << 20


class Scratch:
    """One piece of memory, used again and again, into which blocks are opened one behind the other."""

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)
        self.used = 0

    @property
    def octets(self) -> Octets:
        return self._memory

    def clear(self) -> None:
        self.used = 0

    def add(self, codec: int, block: memoryview, limit_bytes: int) -> None:
        """Puts the block's content behind what is there. Raises BadBlockError; what was there before stays."""
        if codec == NONE:
            self._append(block)
        elif codec == SNAPPY:
            self._add_snappy(block, limit_bytes)
        elif codec < len(NAMES):
            self._add_stream(NAMES[codec], block, limit_bytes)
        else:
            raise BadBlockError(f"compression codec {codec} is unknown")

    def _room(self, size_bytes: int) -> memoryview:
        """What is free, at least ``size_bytes``."""
        if self.used + size_bytes > self._memory.size:
            larger = np.empty(max(2 * self._memory.size, self.used + size_bytes, _FIRST_BYTES), np.uint8)
            larger[: self.used] = self._memory[: self.used]
            self._memory = larger
        return self._memory.data[self.used :]

    def _append(self, data: memoryview) -> None:
        self._room(len(data))[: len(data)] = data
        self.used += len(data)

    def _add_stream(self, name: str, block: memoryview, limit_bytes: int) -> None:
        start = self.used
        try:
            stream = pa.CompressedInputStream(pa.py_buffer(block), name)
            while True:
                # One byte more than may be is read, never much more.
                free = self._room(_ROOM)[: start + limit_bytes + 1 - self.used]
                got = stream.readinto(free)
                self.used += got
                if self.used - start > limit_bytes:
                    raise BadBlockError(f"records inflate to more than {limit_bytes} bytes")
                if got == 0:
                    return
        except (OSError, pa.ArrowException) as error:
            raise BadBlockError(f"{name} records cannot be decompressed: {error}") from None

    def _add_snappy(self, block: memoryview, limit_bytes: int) -> None:
        if bytes(block[:8]) != _XERIAL_MAGIC:
            self._add_snappy_block(block, limit_bytes)
            return
        start, at = self.used, _XERIAL_HEADER.size
        while at < len(block):
            if len(block) - at < _XERIAL_LENGTH.size:
                raise BadBlockError("snappy block's length cut off")
            (length,) = _XERIAL_LENGTH.unpack_from(block, at)
            at += _XERIAL_LENGTH.size
            if not 0 <= length <= len(block) - at:
                raise BadBlockError(f"snappy block of {length} bytes, {len(block) - at} remain")
            self._add_snappy_block(block[at : at + length], start + limit_bytes - self.used)
            at += length

    def _add_snappy_block(self, block: memoryview, limit_bytes: int) -> None:
        size = _snappy_size(block)
        if size > limit_bytes:
            raise BadBlockError("records inflate to more than their limit")
        # A raw block holds at most 64/3 times its size (a 3-byte copy of 64), so a lying length is refused before memory is taken.
        if size > len(block) * 22:
            raise BadBlockError(f"{len(block)} bytes of snappy cannot hold {size}")
        try:
            self._append(memoryview(pa.decompress(block, size, codec="snappy")).cast("B"))
        except (OSError, pa.ArrowException) as error:
            raise BadBlockError(f"snappy records cannot be decompressed: {error}") from None


def _snappy_size(block: memoryview) -> int:
    """The uncompressed length, a little-endian base-128 number, that opens a raw snappy block."""
    value = shift = 0
    for octet in block[:5]:
        value |= (octet & 0x7F) << shift
        if octet < 0x80:
            return value
        shift += 7
    raise BadBlockError("snappy block without a length")


def codec_of(name: str) -> int:
    """Raises ValueError for a name that is no codec."""
    if name not in NAMES:
        raise ValueError(f"compression {name!r} is none of {', '.join(NAMES)}")
    return NAMES.index(name)


def compress(codec: int, data: memoryview, level: int | None = None) -> bytes:
    """One block as Kafka's clients read it."""
    if codec == NONE:
        return bytes(data)
    if codec == SNAPPY:
        return _snappy(data)
    if codec == LZ4:
        return _lz4(data, level)
    packed: bytes = pa.Codec(NAMES[codec], compression_level=level).compress(data, asbytes=True)
    return packed


def _snappy(data: memoryview) -> bytes:
    packer = pa.Codec("snappy")
    parts = [_XERIAL_HEADER.pack(_XERIAL_MAGIC, 1, 1)]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = packer.compress(data[start : start + _XERIAL_BLOCK_BYTES], asbytes=True)
        parts += (_XERIAL_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _lz4(data: memoryview, level: int | None) -> bytes:
    """A frame of independent blocks. Arrow's own frames link them, which Kafka's Java client refuses to read."""
    packer = pa.Codec("lz4_raw", compression_level=level)
    parts = [_LZ4_HEADER]
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        plain = data[start : start + _LZ4_BLOCK_BYTES]
        block = packer.compress(plain, asbytes=True)
        if len(block) < len(plain):
            parts += (_LZ4_LENGTH.pack(len(block)), block)
        else:
            parts += (_LZ4_LENGTH.pack(len(plain) | _LZ4_PLAIN), bytes(plain))
    parts.append(_LZ4_END)
    return b"".join(parts)
