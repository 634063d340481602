"""The codecs of a record batch: ids and names as in Kafka, and decompression that a hostile sender cannot inflate.

A batch's records are compressed as one block. gzip: RFC 1952 streams; snappy: written in xerial framing, read in xerial
framing or raw; lz4 and zstd: their standard frames. Codec libraries are imported on first use: most brokers never need one.
"""

import zlib
from collections.abc import Callable
from struct import Struct

from ottla.runtime.disk import Buffer
from ottla.runtime.errors import ErrorCode, KafkaError

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
"""As dump prints them and as ``compression.type`` spells them, but for ``uncompressed``."""

_CODECS_BY_SETTING = {"uncompressed": NONE, **{name: codec for codec, name in enumerate(NAMES)}}

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = Struct(">8sii")
_XERIAL_BLOCK_BYTES = 32 * 1024
_BLOCK_LENGTH = Struct(">i")
_ZSTD_CHUNK_BYTES = 256 * 1024
_LZ4_DEFAULT_LEVEL = 9
_LZ4_HIGH_LEVEL_MIN = 3


class DecompressionError(KafkaError):
    """Bytes that their codec cannot read (CORRUPT_MESSAGE), or that would grow beyond the limit (MESSAGE_TOO_LARGE)."""


def codec_of_setting(compression_type: str) -> int | None:
    """The codec that ``compression.type`` asks for; None for ``producer``: keep what comes. Raises ValueError."""
    if compression_type == "producer":
        return None
    try:
        return _CODECS_BY_SETTING[compression_type]
    except KeyError:
        raise ValueError(
            f"compression.type {compression_type!r} is none of producer, {', '.join(_CODECS_BY_SETTING)}"
        ) from None


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """Compresses one block; ``level`` None is the codec's default, snappy has none. Raises KafkaError for an unknown codec."""
    if codec == NONE:
        return bytes(data)
    if codec not in _COMPRESSORS:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression codec {codec} is unknown")
    return _COMPRESSORS[codec](data, level)


def decompress(codec: int, data: Buffer, limit_bytes: int) -> bytes:
    """Decompresses one block, never holding much more than ``limit_bytes``. Raises DecompressionError."""
    if codec == NONE:
        return bytes(data)
    if codec not in _DECOMPRESSORS:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression codec {codec} is unknown")
    return _DECOMPRESSORS[codec](data, limit_bytes)


def _too_large(limit_bytes: int) -> DecompressionError:
    return DecompressionError(ErrorCode.MESSAGE_TOO_LARGE, f"records inflate to more than {limit_bytes} bytes")


def _corrupt(codec: int, reason: object) -> DecompressionError:
    return DecompressionError(ErrorCode.CORRUPT_MESSAGE, f"{NAMES[codec]} records cannot be decompressed: {reason}")


def _gzip(data: Buffer, level: int | None) -> bytes:
    packer = zlib.compressobj(
        zlib.Z_DEFAULT_COMPRESSION if level is None else level, zlib.DEFLATED, 16 + zlib.MAX_WBITS
    )
    return packer.compress(data) + packer.flush()


def _gunzip(data: Buffer, limit_bytes: int) -> bytes:
    rest: Buffer = data
    parts: list[bytes] = []
    size = 0
    while len(rest):  # a gzip stream may have several members
        unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
        try:
            part = unpacker.decompress(rest, limit_bytes - size + 1)
        except zlib.error as error:
            raise _corrupt(GZIP, error) from error
        size += len(part)
        if size > limit_bytes:
            raise _too_large(limit_bytes)
        if not unpacker.eof:
            raise _corrupt(GZIP, "stream cut off")
        parts.append(part)
        rest = unpacker.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _snappy(data: Buffer, level: int | None) -> bytes:
    from cramjam import snappy

    view = memoryview(data)
    parts = [_XERIAL_HEADER.pack(_XERIAL_MAGIC, 1, 1)]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _unsnappy(data: Buffer, limit_bytes: int) -> bytes:
    view = memoryview(data)
    if bytes(view[:8]) != _XERIAL_MAGIC:
        return _unsnappy_block(view, limit_bytes, limit_bytes)
    parts: list[bytes] = []
    size, position = 0, _XERIAL_HEADER.size
    while position < len(view):
        if len(view) - position < _BLOCK_LENGTH.size:
            raise _corrupt(SNAPPY, "block length cut off")
        (length,) = _BLOCK_LENGTH.unpack_from(view, position)
        position += _BLOCK_LENGTH.size
        if not 0 <= length <= len(view) - position:
            raise _corrupt(SNAPPY, f"block of {length} bytes, {len(view) - position} remain")
        part = _unsnappy_block(view[position : position + length], limit_bytes - size, limit_bytes)
        parts.append(part)
        size += len(part)
        position += length
    return b"".join(parts)


def _unsnappy_block(block: memoryview, remaining_bytes: int, limit_bytes: int) -> bytes:
    from cramjam import DecompressionError as SnappyError
    from cramjam import snappy

    size = _snappy_length(block)
    if size > remaining_bytes:
        raise _too_large(limit_bytes)
    # A raw block can hold at most 64/3 times its size (a 3-byte copy of 64), so a lying length is refused before allocation.
    if size > len(block) * 22:
        raise _corrupt(SNAPPY, f"{len(block)} bytes cannot hold {size}")
    try:
        return bytes(snappy.decompress_raw(block))
    except (SnappyError, ValueError, OSError) as error:
        raise _corrupt(SNAPPY, error) from error


def _snappy_length(block: memoryview) -> int:
    """The uncompressed length, a little-endian base-128 number, that opens a raw snappy block."""
    value = shift = 0
    for byte in block[:5]:
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7
    raise _corrupt(SNAPPY, "no length")


def _lz4(data: Buffer, level: int | None) -> bytes:
    import lz4.frame

    # Kafka's default level means its fast compressor, any other the high one (KIP-390), which begins at 3 in this library.
    fast = level is None or level == _LZ4_DEFAULT_LEVEL
    # Independent 64 KB blocks without content size: what Kafka's own writer and every Kafka client reads.
    compressed: bytes = lz4.frame.compress(
        data,
        compression_level=0 if level is None or fast else max(level, _LZ4_HIGH_LEVEL_MIN),
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return compressed


def _unlz4(data: Buffer, limit_bytes: int) -> bytes:
    import lz4.frame

    unpacker = lz4.frame.LZ4FrameDecompressor()
    try:
        unpacked: bytes = unpacker.decompress(data, max_length=limit_bytes + 1)
    except (RuntimeError, EOFError) as error:
        raise _corrupt(LZ4, error) from error
    if len(unpacked) > limit_bytes:
        raise _too_large(limit_bytes)
    if not unpacker.eof:
        raise _corrupt(LZ4, "frame cut off")
    return unpacked


def _zstd(data: Buffer, level: int | None) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)


def _unzstd(data: Buffer, limit_bytes: int) -> bytes:
    import zstandard

    unpacked = bytearray()
    try:
        # A frame cut off is not noticed here: the walk over its records finds too few of them.
        # Frames may lack the content size (the Java client's do), and one that is given may lie: read by the piece.
        with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
            while piece := reader.read(min(_ZSTD_CHUNK_BYTES, limit_bytes + 1 - len(unpacked))):
                unpacked += piece
                if len(unpacked) > limit_bytes:
                    raise _too_large(limit_bytes)
    except zstandard.ZstdError as error:
        raise _corrupt(ZSTD, error) from error
    return bytes(unpacked)


_COMPRESSORS: dict[int, Callable[[Buffer, int | None], bytes]] = {GZIP: _gzip, SNAPPY: _snappy, LZ4: _lz4, ZSTD: _zstd}
_DECOMPRESSORS: dict[int, Callable[[Buffer, int], bytes]] = {
    GZIP: _gunzip,
    SNAPPY: _unsnappy,
    LZ4: _unlz4,
    ZSTD: _unzstd,
}
