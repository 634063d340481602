"""What asking the page cache first costs: ``python tests/benchmarks/bench_cold_reads.py [directory]``.

CPU of one `Log.read` of cached bytes, with and without the question, in turn within one run, so that a busy machine matters
little; and how long a read of bytes that are not cached keeps its caller, which on the loop is everybody.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.records import Record, encode_batch
from ottla.log.results import ColdReadError
from ottla.runtime.real_disk import RealDisk

NOW_MS = 1_700_000_000_000
BATCH_BYTES = 16_384
SEGMENT_BYTES = 64 << 20
LOG_BYTES = 160 << 20
ROUNDS = 15
READS = 400


def filled(root: Path) -> Log:
    name = TopicPartition("bench", 0)
    log = Log.open(RealDisk(), str(root / "bench-0"), name, LogConfig(segment_bytes=SEGMENT_BYTES), now_ms=NOW_MS)
    batch = encode_batch([Record(0, NOW_MS, None, bytes(BATCH_BYTES - 72))])
    for _ in range(LOG_BYTES // BATCH_BYTES):
        batch[:16] = bytes(8) + batch[8:12] + bytes(4)
        log.append_as_leader(memoryview(batch), 0, NOW_MS)
    log.flush()
    return log


def cpu_us(log: Log, start: int, size: int, *, wait: bool) -> float:
    began = process_time()
    offset = start
    for _ in range(READS):
        offset = log.read(offset, size, wait=wait).next_offset
        if offset >= log.log_end_offset:
            offset = start
    return (process_time() - began) / READS * 1e6


def compared(log: Log, where: str, start: int, size: int) -> None:
    ways: dict[bool, list[float]] = {True: [], False: []}
    for number in range(ROUNDS):
        for wait in (True, False) if number % 2 else (False, True):
            ways[wait].append(cpu_us(log, start, size, wait=wait))
    plain, asking = min(ways[True]), min(ways[False])
    print(
        f"{where:14s} {size >> 10:5d} KB   {plain:7.2f} us   asking first {asking:7.2f} us   {asking - plain:+.2f} us"
    )


def chill(log: Log) -> None:
    for segment in log.segments:
        descriptor = os.open(segment.path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def held_us(log: Log, read: Callable[[int], object]) -> float:
    """The median over places all over the closed segments."""
    times = []
    for offset in range(0, 3000, 100):
        chill(log)
        log.places = {**log.places, offset: log.segment_of(offset).find(offset)[0]}
        began = perf_counter()
        read(offset)
        times.append(perf_counter() - began)
    return sorted(times)[len(times) // 2] * 1e6


def asking(log: Log, offset: int) -> None:
    try:
        log.read(offset, 1 << 20, wait=False)
    except ColdReadError:
        return


def main() -> None:
    with TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else "/var/tmp") as name:
        log = filled(Path(name))
        for size in (BATCH_BYTES, 256 << 10, 1 << 20):
            tail = log.log_end_offset - (4 << 20) // BATCH_BYTES
            compared(log, "just appended", tail, size)
            compared(log, "older", 0, size)
        plain = held_us(log, lambda offset: log.read(offset, 1 << 20))
        quick = held_us(log, lambda offset: asking(log, offset))
        print(
            f"not cached     1024 KB   keeps the loop {plain:.0f} us; asking first {quick:.0f} us, and a thread waits"
        )
        log.abandon()


if __name__ == "__main__":
    main()
