"""The codecs of a record batch: ids and names as in Kafka, and decompression that a hostile sender cannot inflate.

A batch's records are compressed as one block. gzip: RFC 1952 streams; snappy: written in xerial framing, read in xerial
framing or raw; lz4 and zstd: their standard frames. Codec libraries are imported on first use: most brokers never need one.
"""

import zlib
from collections.abc import Callable, Iterator
from struct import Struct

from ottla.runtime.disk import Buffer
from ottla.runtime.errors import ErrorCode, KafkaError

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
"""As dump prints them and as ``compression.type`` spells them, but for ``uncompressed``."""

PIECE_BYTES = 64 * 1024
"""The codecs let other threads run while they make a piece: it should take well under a millisecond to look at."""

_CODECS_BY_SETTING = {"uncompressed": NONE, **{name: codec for codec, name in enumerate(NAMES)}}

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = Struct(">8sii")
_XERIAL_BLOCK_BYTES = 32 * 1024
_BLOCK_LENGTH = Struct(">i")
_LZ4_DEFAULT_LEVEL = 9
_LZ4_HIGH_LEVEL_MIN = 3


class DecompressionError(KafkaError):
    """Bytes that their codec cannot read (CORRUPT_MESSAGE), or that would grow beyond the limit (MESSAGE_TOO_LARGE)."""

    @property
    def is_size(self) -> bool:
        """Whether more would be allowed to a more patient caller."""
        return self.code is ErrorCode.MESSAGE_TOO_LARGE


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
    parts = list(inflate(codec, data, limit_bytes))
    return parts[0] if len(parts) == 1 else b"".join(parts)


def inflate(codec: int, data: Buffer, limit_bytes: int, piece_bytes: int = PIECE_BYTES) -> Iterator[bytes]:
    """Decompresses one block piece by piece: about ``piece_bytes`` each, but for snappy, whose blocks are its writer's to size.

    Raises DecompressionError; where it does, the pieces before it may have come.
    """
    if codec == NONE:
        yield bytes(data)
        return
    if codec not in _INFLATORS:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression codec {codec} is unknown")
    remaining = limit_bytes
    for piece in _INFLATORS[codec](data, limit_bytes, piece_bytes):
        remaining -= len(piece)
        if remaining < 0:
            raise _too_large(limit_bytes)
        yield piece


def _too_large(limit_bytes: int) -> DecompressionError:
    return DecompressionError(ErrorCode.MESSAGE_TOO_LARGE, f"records inflate to more than {limit_bytes} bytes")


def _corrupt(codec: int, reason: object) -> DecompressionError:
    return DecompressionError(ErrorCode.CORRUPT_MESSAGE, f"{NAMES[codec]} records cannot be decompressed: {reason}")


def _gzip(data: Buffer, level: int | None) -> bytes:
    packer = zlib.compressobj(
        zlib.Z_DEFAULT_COMPRESSION if level is None else level, zlib.DEFLATED, 16 + zlib.MAX_WBITS
    )
    return packer.compress(data) + packer.flush()


def _gunzip(data: Buffer, limit_bytes: int, piece_bytes: int) -> Iterator[bytes]:
    view, position = memoryview(data), 0
    while position < len(view):  # a gzip stream may have several members
        unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
        while not unpacker.eof:
            if position == len(view):
                raise _corrupt(GZIP, "stream cut off")
            # What is given and not used yet is copied with each piece: so it is given in pieces too.
            given: Buffer = view[position : position + piece_bytes]
            position += len(given)
            while len(given) and not unpacker.eof:
                try:
                    piece = unpacker.decompress(given, piece_bytes)
                except zlib.error as error:
                    raise _corrupt(GZIP, error) from error
                given = unpacker.unconsumed_tail
                if piece:
                    yield piece
        position -= len(unpacker.unused_data)


def _snappy(data: Buffer, level: int | None) -> bytes:
    from cramjam import snappy

    view = memoryview(data)
    parts = [_XERIAL_HEADER.pack(_XERIAL_MAGIC, 1, 1)]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _unsnappy(data: Buffer, limit_bytes: int, piece_bytes: int) -> Iterator[bytes]:
    view = memoryview(data)
    if bytes(view[:8]) != _XERIAL_MAGIC:
        yield _unsnappy_block(view, limit_bytes, limit_bytes)
        return
    remaining, position = limit_bytes, _XERIAL_HEADER.size
    while position < len(view):
        if len(view) - position < _BLOCK_LENGTH.size:
            raise _corrupt(SNAPPY, "block length cut off")
        (length,) = _BLOCK_LENGTH.unpack_from(view, position)
        position += _BLOCK_LENGTH.size
        if not 0 <= length <= len(view) - position:
            raise _corrupt(SNAPPY, f"block of {length} bytes, {len(view) - position} remain")
        part = _unsnappy_block(view[position : position + length], remaining, limit_bytes)
        remaining -= len(part)
        position += length
        yield part


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


def _unlz4(data: Buffer, limit_bytes: int, piece_bytes: int) -> Iterator[bytes]:
    import lz4.frame

    unpacker = lz4.frame.LZ4FrameDecompressor()
    rest: Buffer = data
    try:
        while not unpacker.eof:
            piece: bytes = unpacker.decompress(rest, max_length=piece_bytes)
            rest = b""  # it keeps what it has not used
            if not piece and unpacker.needs_input and not unpacker.eof:
                raise _corrupt(LZ4, "frame cut off")
            if piece:
                yield piece
    except (RuntimeError, EOFError) as error:
        raise _corrupt(LZ4, error) from error


def _zstd(data: Buffer, level: int | None) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)


def _unzstd(data: Buffer, limit_bytes: int, piece_bytes: int) -> Iterator[bytes]:
    import zstandard

    try:
        # A frame cut off is not noticed here: the walk over its records finds too few of them.
        # Frames may lack the content size (the Java client's do), and one that is given may lie: read by the piece.
        with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
            while piece := reader.read(piece_bytes):
                yield piece
    except zstandard.ZstdError as error:
        raise _corrupt(ZSTD, error) from error


_COMPRESSORS: dict[int, Callable[[Buffer, int | None], bytes]] = {GZIP: _gzip, SNAPPY: _snappy, LZ4: _lz4, ZSTD: _zstd}
_INFLATORS: dict[int, Callable[[Buffer, int, int], Iterator[bytes]]] = {
    GZIP: _gunzip,
    SNAPPY: _unsnappy,
    LZ4: _unlz4,
    ZSTD: _unzstd,
}
