"""The codec of the pipeline and the audit, one core each: ``python tests/benchmarks/bench_arrow_codec.py``.

Records are those of a fleet: a key of 17 bytes and some 140 bytes of JSON. CPU time, the best of several rounds. Targets: 3.5 M rows/s
decoded and 5 M encoded of batches of 200 records that are not compressed; 2 GB/s audited.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

import numpy as np
import pyarrow as pa

from ottla.pipeline.arrow import crc, crc_by_numpy
from ottla.pipeline.arrow.batches import walk
from ottla.pipeline.arrow.decoder import Decoder
from ottla.pipeline.arrow.encoder import encode
from ottla.pipeline.audit.audit import audit

ROUNDS = 7
CODECS = ("none", "lz4", "zstd", "snappy", "gzip")
NOW = 1_700_000_000_000


def best(call: Callable[[], object]) -> tuple[float, float]:
    """The least CPU and wall seconds of one call."""
    found = []
    for _ in range(ROUNDS):
        wall, cpu = perf_counter(), process_time()
        call()
        found.append((process_time() - cpu, perf_counter() - wall))
    return min(cpu for cpu, _ in found), min(wall for _, wall in found)


def rows(number: int) -> tuple[pa.Array, pa.Array]:
    random = Random(1)
    signs = b'{"speed":0123456789,"soc":abcdef}'
    bodies = [bytes(random.choices(signs, k=140)) for _ in range(97)]
    keys = pa.array([b"vehicle-%09d" % random.randrange(10**6) for _ in range(number)])
    return keys, pa.array([bodies[each % 97] for each in range(number)])


def log_of(number: int, codec: str, records_max: int) -> bytes:
    keys, values = rows(number)
    times = pa.array(range(NOW, NOW + number))
    batches = encode(
        keys, values, timestamps=times, compression=codec, records_max=records_max, base_offset=0, batch_bytes=1 << 24
    )
    return b"".join(batch.data for batch in batches)


def bench_decode() -> None:
    print("decode: records a batch, codec, M rows/s (wall), MB/s of log")
    for records_max, codec in [(200, codec) for codec in CODECS] + [
        (5000, "none"),
        (5000, "lz4"),
        (10, "none"),
        (10, "lz4"),
        (1, "none"),
        (1, "lz4"),
    ]:
        number = 50_000 if records_max > 1 else 20_000
        log = log_of(number, codec, records_max)
        decoder = Decoder("fleet", 3)

        def read(decoder: Decoder = decoder, log: bytes = log, number: int = number) -> None:
            decoder.next_offset = 0
            assert sum(batch.num_rows for batch in decoder.feed(log)) == number

        cpu, wall = best(read)
        print(
            f"{records_max:>6} {codec:<7} {number / cpu / 1e6:6.2f} ({number / wall / 1e6:.2f}) {len(log) / cpu / 1e6:8.0f}"
        )


def bench_encode() -> None:
    print("encode: codec, M rows/s (wall)")
    number = 200_000
    keys, values = rows(number)
    times = pa.array(range(NOW, NOW + number))
    for codec in CODECS:
        cpu, wall = best(
            lambda codec=codec: list(encode(keys, values, timestamps=times, compression=codec, records_max=200))  # type: ignore[misc]
        )
        print(f"       {codec:<7} {number / cpu / 1e6:6.2f} ({number / wall / 1e6:.2f})")


def bench_crc() -> None:
    print("CRC-32C: bytes a batch, library, numpy, MB/s")
    data = bytes(range(256)) * (1 << 15)
    view = memoryview(data)
    for size in (200, 33_000, 1_000_000):
        starts = list(range(0, len(data) - size, size))
        ends = [start + size for start in starts]
        speeds = []
        for function in (crc.crcs, crc_by_numpy.crcs):
            cpu, _ = best(lambda function=function, starts=starts, ends=ends: function(view, starts, ends))  # type: ignore[misc]
            speeds.append(size * len(starts) / cpu / 1e6)
        print(f"{size:>10} {speeds[0]:9.0f} {speeds[1]:9.0f}")


def bench_audit(megabytes: int) -> None:
    print("audit: records a batch, codec, GB/s, M batches/s, of segments in the page cache")
    for records_max, codec in ((200, "none"), (200, "lz4"), (1, "none")):
        with TemporaryDirectory() as home:
            directory = Path(home, "fleet-0")
            directory.mkdir()
            write_segment(directory / f"{0:020d}.log", log_of(50_000, codec, records_max), 50_000, megabytes << 20)
            cpu, _ = best(lambda home=home: audit([home]))  # type: ignore[misc]
            report = audit([home])
            assert report.findings == ()
            print(
                f"{records_max:>6} {codec:<7} {report.bytes / cpu / 1e9:6.2f} {report.replicas[0].batches / cpu / 1e6:6.2f}"
            )


def write_segment(path: Path, log: bytes, records: int, size: int) -> None:
    """The same batches again and again, each time with higher offsets, which lie outside the CRC."""
    positions = walk(log).positions
    octets = np.frombuffer(log, np.uint8).copy()
    places = positions[:, None] + np.arange(8)
    bases = octets[places].copy().view(">i8").reshape(-1).astype(np.int64)
    with path.open("wb") as file:
        for number in range(max(1, size // len(log))):
            octets[places] = (bases + number * records).astype(">i8").view(np.uint8).reshape(-1, 8)
            file.write(octets.tobytes())


if __name__ == "__main__":
    bench_decode()
    bench_encode()
    bench_crc()
    bench_audit(int(sys.argv[1]) if len(sys.argv) > 1 else 512)
