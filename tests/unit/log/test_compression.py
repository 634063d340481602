"""Codecs: round trips, foreign framings, damage and bombs."""

import gzip
import subprocess
import sys

import cramjam
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, codec_of_setting, compress, decompress
from ottla.runtime.errors import ErrorCode, KafkaError

CODECS = [GZIP, SNAPPY, LZ4, ZSTD]
TEXT = b"the quick brown fox " * 10_000


@given(st.sampled_from([NONE, *CODECS]), st.binary(max_size=2000), st.integers(1, 60))
def test_what_goes_in_comes_out(codec: int, piece: bytes, times: int) -> None:
    data = piece * times
    assert decompress(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_a_view_into_a_larger_buffer_can_be_decompressed(codec: int) -> None:
    packed = compress(codec, memoryview(bytearray(TEXT)))
    assert decompress(codec, memoryview(bytearray(b"x" * 7 + packed + b"y"))[7:-1], len(TEXT)) == TEXT


@pytest.mark.parametrize("codec", CODECS)
def test_inflating_beyond_the_limit_is_refused(codec: int) -> None:
    with pytest.raises(KafkaError) as caught:
        decompress(codec, compress(codec, TEXT), len(TEXT) - 1)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", CODECS)
def test_garbage_is_corrupt(codec: int) -> None:
    with pytest.raises(KafkaError) as caught:
        decompress(codec, b"\xffgarbage" * 20, 10_000_000)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
def test_a_stream_cut_off_is_corrupt(codec: int) -> None:
    with pytest.raises(KafkaError) as caught:
        decompress(codec, compress(codec, TEXT)[:-10], len(TEXT))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_raw_snappy_is_read_too() -> None:
    assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), len(TEXT)) == TEXT


def test_snappy_is_written_in_xerial_framing() -> None:
    assert compress(SNAPPY, TEXT).startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")


@pytest.mark.parametrize(
    "block",
    [
        b"\xff\xff\xff\xff\x07ab",
        b"\xff\xff\xff\xff\xff",
        b"",
        b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00",
    ],
)
def test_a_snappy_length_that_lies_is_refused_before_allocation(block: bytes) -> None:
    with pytest.raises(KafkaError) as caught:
        decompress(SNAPPY, block, 2**31)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_gzip_members_follow_one_another() -> None:
    assert decompress(GZIP, gzip.compress(b"one") + gzip.compress(b"two"), 6) == b"onetwo"


def test_zstd_without_a_content_size_is_read() -> None:
    packer = zstandard.ZstdCompressor().compressobj()
    assert decompress(ZSTD, packer.compress(TEXT) + packer.flush(), len(TEXT)) == TEXT


def test_unknown_codecs_are_unsupported() -> None:
    with pytest.raises(KafkaError) as compressing:
        compress(5, b"")
    with pytest.raises(KafkaError) as decompressing:
        decompress(7, b"", 1)
    assert compressing.value.code is decompressing.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_the_setting_names_every_codec() -> None:
    names = ["producer", "uncompressed", "none", "gzip", "snappy", "lz4", "zstd"]
    assert [codec_of_setting(name) for name in names] == [None, NONE, NONE, GZIP, SNAPPY, LZ4, ZSTD]
    with pytest.raises(ValueError, match="brotli"):
        codec_of_setting("brotli")


def test_no_codec_library_is_loaded_before_it_is_needed() -> None:
    code = "import sys, ottla.log.validation; print([m for m in ('cramjam', 'lz4', 'zstandard') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(("codec", "low", "high"), [(GZIP, 1, 9), (LZ4, 9, 12), (ZSTD, 1, 19)])
def test_a_level_is_used(codec: int, low: int, high: int) -> None:
    text = b"".join(b"%d bottles of beer on the wall, %x\n" % (n, n * n) for n in range(5_000))
    assert len(compress(codec, text, high)) < len(compress(codec, text, low))
    assert decompress(codec, compress(codec, text, high), len(text)) == text


def test_kafkas_default_level_of_lz4_is_its_fast_compressor() -> None:
    text = b"".join(b"%d bottles of beer on the wall, %x\n" % (n, n * n) for n in range(5_000))
    assert compress(LZ4, text, 9) == compress(LZ4, text) != compress(LZ4, text, 1) == compress(LZ4, text, 3)
