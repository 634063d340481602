"""What a log can take and give on this machine: ``python tests/benchmarks/bench_log.py [directory]``.

Writes about 3 GB below ``directory`` (a temporary one by default) and removes them. Targets: 16 KB batches 1.0 GB/s, 100 B
batches 150,000 appends/s, reading from page cache 2 GB/s, recovery 1 GB/s, append p99.9 2 ms under sustained load,
10,000 clean partitions opened in 4 s, 4 KB of memory for each idle one.
"""

import gc
import resource
import sys
import tracemalloc
from pathlib import Path
from random import Random
from shutil import rmtree
from tempfile import TemporaryDirectory
from time import perf_counter, perf_counter_ns, process_time

from ottla.log.checkpoints import MetaProperties
from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.log.manager import LogManager, ManagerSettings
from ottla.log.names import TopicPartition
from ottla.log.records import Record, encode_batch
from ottla.runtime.real_disk import RealDisk

NOW_MS = 1_700_000_000_000
PARTITION = TopicPartition("bench", 0)
PARTITIONS = 10_000
ROUNDS = 3
HEADER = 16  # what the leader stamps; put back before each append, as a new request would bring it


def batch_of(size: int) -> bytearray:
    """One record, ``size`` bytes in all, give or take two."""
    return encode_batch([Record(0, NOW_MS, None, b"v" * (size - 72))])


def open_log(directory: Path, *, clean: bool = False) -> Log:
    return Log.open(RealDisk(), str(directory), PARTITION, LogConfig(), now_ms=NOW_MS, clean_shutdown=clean)


def fill(log: Log, size: int, total_bytes: int) -> tuple[float, float]:
    """(appends a second, CPU seconds an append)."""
    batch = batch_of(size)
    fresh, view, count = bytes(batch[:HEADER]), memoryview(batch), total_bytes // size
    append = log.append_as_leader
    start, cpu = perf_counter(), process_time()
    for _ in range(count):
        batch[:HEADER] = fresh
        append(view, 0, NOW_MS)
    return count / (perf_counter() - start), (process_time() - cpu) / count


def appending(root: Path) -> None:
    for size, total_bytes in ((100, 20 << 20), (1024, 100 << 20), (16384, 600 << 20)):
        best, least = 0.0, 1.0
        for _ in range(ROUNDS):
            log = open_log(root / "bench-0")
            rate, cpu = fill(log, size, total_bytes)
            log.abandon()
            rmtree(root / "bench-0")
            best, least = max(best, rate), min(least, cpu)
        print(f"append {size:6d} B   {best:10,.0f} /s  {best * size / 1e6:8.0f} MB/s   {least * 1e6:5.1f} us CPU each")


def tail(root: Path) -> None:
    """Append times under sustained load, with the pacing on."""
    log = open_log(root / "bench-0")
    batch = batch_of(16384)
    fresh, view = bytes(batch[:HEADER]), memoryview(batch)
    times = []
    for _ in range(120_000):
        batch[:HEADER] = fresh
        start = perf_counter_ns()
        log.append_as_leader(view, 0, NOW_MS)
        times.append(perf_counter_ns() - start)
    times.sort()
    marks = [
        (name, times[int(len(times) * share)] / 1e3) for name, share in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))
    ]
    print(
        "append tail, 2 GB  "
        + "  ".join(f"{name} {time:.0f} us" for name, time in marks)
        + f"  max {times[-1] / 1e6:.1f} ms"
    )
    log.abandon()
    rmtree(root / "bench-0")


def reading_and_recovery(root: Path) -> None:
    for size, total_bytes in ((100, 30 << 20), (16384, 600 << 20)):
        log = open_log(root / "bench-0")
        fill(log, size, total_bytes)
        best = max(read_all(log) for _ in range(ROUNDS))
        total = log.size_bytes
        log.abandon()
        times = []
        for _ in range(ROUNDS):
            start = perf_counter()
            again = open_log(root / "bench-0")
            times.append(perf_counter() - start)
            again.abandon()
        unchecked = read_all(open_log(root / "bench-0", clean=True))
        print(
            f"batches of {size:6d} B   read {best / 1e6:6.0f} MB/s   first read after a start {unchecked / 1e6:6.0f} MB/s"
            f"   recovery {total / min(times) / 1e6:6.0f} MB/s"
        )
        rmtree(root / "bench-0")


def read_all(log: Log) -> float:
    """Bytes a second, a megabyte a read."""
    start, offset = perf_counter(), log.log_start_offset
    while offset < log.log_end_offset:
        offset = log.read(offset, 1 << 20).next_offset
    return log.size_bytes / (perf_counter() - start)


def many_partitions(root: Path) -> None:
    disk = RealDisk()
    MetaProperties("c", 1, bytes(15) + b"\x09").write(disk, str(root))
    settings = ManagerSettings(cluster_id="c", node_id=1)

    def open_all() -> LogManager:
        manager = LogManager(disk, [str(root)], LogConfig(), settings, Random(1))
        manager.open_all(NOW_MS)
        return manager

    manager, config = open_all(), LogConfig()
    start = perf_counter()
    for number in range(PARTITIONS):
        log = manager.get_or_create(TopicPartition("bench", number), config, bytes(16), now_ms=NOW_MS)
        log.append_as_leader(batch_of(300), 0, NOW_MS)
    created = perf_counter() - start
    start = perf_counter()
    manager.close()
    closed = perf_counter() - start
    gc.collect()
    start = perf_counter()
    manager = open_all()
    opened = perf_counter() - start
    manager.close()
    del manager
    gc.collect()
    tracemalloc.start()
    manager = open_all()
    gc.collect()
    memory = tracemalloc.get_traced_memory()[0] / PARTITIONS
    tracemalloc.stop()
    start = perf_counter()
    manager.delete_old_segments(NOW_MS)
    retention = perf_counter() - start
    print(
        f"{PARTITIONS} partitions: created with a batch each {created:.1f} s, closed {closed:.1f} s, opened clean {opened:.2f} s, "
        f"{memory:.0f} B of memory each, a round of retention {retention * 1e3:.0f} ms, "
        f"{manager._files.count} files open (limit {resource.getrlimit(resource.RLIMIT_NOFILE)[0]})"
    )


def main() -> None:
    with TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else "/var/tmp") as name:
        root = Path(name)
        appending(root)
        tail(root)
        reading_and_recovery(root)
        many_partitions(root)


if __name__ == "__main__":
    main()
