"""What the log's own checks cost, and how fast a worker compacts: ``python tests/benchmarks/bench_log_pieces.py``.

Compaction is measured in its own process, as brokers run it: MB/s of 100-byte keyed records, wall time, start of the
interpreter included. Targets: 50 MB/s for a worker; a few microseconds and the CRC to check a batch; one for its producer.
"""

import timeit
from collections.abc import Callable
from pathlib import Path
from random import Random
from resource import RUSAGE_CHILDREN, getrusage
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, NamedTuple

from ottla.log.batch import read_header
from ottla.log.compaction.cleaner import CleaningJob
from ottla.log.compaction.plan import SegmentInfo
from ottla.log.compaction.worker import CleanerProcess
from ottla.log.config import LogConfig
from ottla.log.producers.state import ProducerStateManager
from ottla.log.records import Record, encode_batch
from ottla.log.validation import validate_client_batch

ROUNDS = 5
RECORDS = 1_000_000
NOW = 1_700_000_000_000


def microseconds(call: Callable[[], Any], number: int = 20_000) -> float:
    """The least time of one call."""
    return min(timeit.repeat(call, number=number, repeat=ROUNDS)) / number * 1e6


def batch_of(count: int, size: int, keys: Random, key_count: int, base: int = 0) -> bytearray:
    records = [
        Record(base + i, NOW + base + i, b"key-%08d" % keys.randrange(key_count), b"v" * (size - 20))
        for i in range(count)
    ]
    return encode_batch(records, base_offset=base)


def validation() -> None:
    keys = Random(1)
    for count in (1, 140):
        batch = memoryview(batch_of(count, 100, keys, 1000))
        for name, config in (("header only", LogConfig()), ("keys required", LogConfig(cleanup_policy=("compact",)))):
            time = microseconds(lambda batch=batch, config=config: validate_client_batch(batch, config, NOW), 2000)  # type: ignore[misc]  # bound now
            print(f"validate {count:4d} records, {name:14s} {time:8.2f} us")


def producer_state() -> None:
    header = read_header(encode_batch([Record(0, 0, None, b"")], producer_id=7, producer_epoch=0, base_sequence=0))
    headers = [header._replace(base_sequence=sequence) for sequence in range(20_000)]

    def run() -> None:
        producers = ProducerStateManager()
        for each in headers:
            producers.check(each)
            producers.update(each, 5)

    print(f"producer state, idempotent batch    {microseconds(run, 1) / len(headers):8.2f} us")


class Compaction(NamedTuple):
    """Megabytes read of the log a second: of wall time, and of the worker's CPU. ``kept``: the share that stays."""

    mb_s: float
    cpu_mb_s: float
    kept: float


def compaction(batch_records: int, key_count: int, rounds: int = 3) -> Compaction:
    """The best of ``rounds``; ``key_count`` keys, drawn at random; segments of 50 MB."""
    with TemporaryDirectory() as name:
        job = job_in(Path(name), batch_records, key_count)
        size = sum(segment.size_bytes for segment in job.segments) / 1e6
        walls, cpus = [], []
        for _ in range(rounds):
            wall, cpu = perf_counter(), _children_s()
            outcome = CleanerProcess(job).wait()
            walls.append(perf_counter() - wall)
            cpus.append(_children_s() - cpu)
        assert outcome.result is not None, outcome
        return Compaction(size / min(walls), size / min(cpus), outcome.result.written_bytes / 1e6 / size)


def _children_s() -> float:
    used = getrusage(RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def job_in(directory: Path, batch_records: int, key_count: int) -> CleaningJob:
    """A log of a million records, and what a worker is told of it."""
    keys = Random(1)
    segments: list[SegmentInfo] = []
    offset = 0
    while offset < RECORDS:
        base, data = offset, bytearray()
        while len(data) < 50_000_000 and offset < RECORDS:
            data += batch_of(batch_records, 100, keys, key_count, offset)
            offset += batch_records
        (directory / f"{base:020d}.log").write_bytes(data)
        segments.append(SegmentInfo(base, offset, len(data)))
    return CleaningJob(
        directory=str(directory),
        segments=segments,
        first_dirty=0,
        now_ms=NOW,
        delete_retention_ms=0,
        segment_bytes=1 << 30,
        segment_index_bytes=10 << 20,
        index_interval_bytes=4096,
        dedupe_buffer_bytes=128 << 20,
    )


if __name__ == "__main__":
    validation()
    producer_state()
    for batch_records, key_count in ((140, 1000), (140, 300_000), (1400, 300_000), (1, 300_000)):
        measured = compaction(batch_records, key_count)
        print(
            f"compact {batch_records:4d} records a batch, {key_count:7d} keys: {measured.mb_s:5.0f} MB/s, "
            f"{measured.cpu_mb_s:5.0f} MB per CPU second, {measured.kept:4.0%} kept"
        )
