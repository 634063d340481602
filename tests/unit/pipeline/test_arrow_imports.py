"""Executors have the standard library, numpy, pyarrow and this package: nothing else may be asked for."""

import subprocess
import sys
from itertools import accumulate, pairwise
from random import Random

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.pipeline.arrow import crc_by_numpy

BLOCKED = """
import sys
BLOCKED = {"msgspec", "crc32c", "lz4", "cramjam", "zstandard", "lmdb", "uvloop", "grpc", "confluent_kafka", "pyspark", "pandas", "click", "rich"}
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in BLOCKED:
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Blocker())
"""
CODEC = """
import pyarrow as pa
from ottla.pipeline.arrow.decoder import Decoder
from ottla.pipeline.arrow.encoder import encode
values = pa.array([b"v%d" % n for n in range(1000)])
for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
    data = b"".join(b.data for b in encode(None, values, timestamps=1, compression=codec, base_offset=0))
    assert pa.Table.from_batches(Decoder("t", 0).feed(data))["value"].combine_chunks() == values
"""
SEGMENTS = """
from ottla.pipeline.segments.reading import read_stretch
from ottla.pipeline.segments.tasks import plan
"""
AUDIT = "from ottla.pipeline.audit.audit import audit"


@pytest.mark.parametrize("script", [CODEC, SEGMENTS, AUDIT])
def test_codec_and_segments_need_and_pyarrow_alone(script: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED + script], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")


@given(st.binary(max_size=3000), st.integers(0, 3000))
def test_a_crc_by_numpy_is_the_librarys(data: bytes, cut: int) -> None:
    assert crc_by_numpy.crc32c(data) == crc32c.crc32c(data)
    assert crc_by_numpy.crc32c(data[cut:], crc_by_numpy.crc32c(data[:cut])) == crc32c.crc32c(data)


def test_a_crc_by_numpy_of_megabytes_is_the_librarys() -> None:
    data = bytes(range(251)) * 10_000

    assert crc_by_numpy.crc32c(data) == crc32c.crc32c(data)


@given(st.lists(st.integers(4, 9000), max_size=40), st.integers(0, 1 << 30))
def test_crcs_by_numpy_of_many_pieces_are_the_librarys(sizes: list[int], seed: int) -> None:
    data = memoryview(Random(seed).randbytes(sum(sizes) + 7))
    ends = list(accumulate(sizes, initial=7))
    pieces = list(pairwise(ends))

    found = crc_by_numpy.crcs(data, ends[:-1], ends[1:])

    assert found == [crc32c.crc32c(data[start:end]) for start, end in pieces]


def test_crcs_by_numpy_of_small_and_huge_pieces_are_the_librarys() -> None:
    data = memoryview(Random(1).randbytes(5_000_000))
    ends = [0, 100, 3_000_000, 3_000_004, 3_040_000, 5_000_000]

    assert crc_by_numpy.crcs(data, ends[:-1], ends[1:]) == [crc32c.crc32c(data[a:b]) for a, b in pairwise(ends)]
