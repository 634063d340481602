"""What a log can take and give on this machine, beside its goals, as one table in Markdown.

    python -m tests.benchmarks.bench_log [--directory /var/tmp] [--rounds 3] [--only append,read,...]

Writes up to 3 GB below ``directory`` and removes them. Rates are the best of the rounds, times the least: other work on the
machine only ever makes them worse.
"""

import argparse
import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from resource import RUSAGE_SELF, getrusage
from shutil import rmtree
from tempfile import TemporaryDirectory
from time import perf_counter, perf_counter_ns, process_time
from tracemalloc import get_traced_memory, start, stop
from typing import NamedTuple

from ottla.log.config import LogConfig
from ottla.log.directories.checkpoints import MetaProperties
from ottla.log.directories.manager import LogManager, ManagerSettings
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.records import Record, encode_batch
from ottla.runtime.real_disk import RealDisk
from tests.benchmarks.bench_log_pieces import compaction

NOW_MS = 1_700_000_000_000
PARTITION = TopicPartition("bench", 0)
PARTITIONS = 10_000
HEADER = 16  # what the leader stamps; put back before each append, as a new request would bring it
READ_BYTES = 1 << 20
TAIL_APPENDS = 120_000
SLOW_NS = 500_000


class Row(NamedTuple):
    """A measured figure; ``goal`` 0 for none. ``at_least``: a rate, otherwise a time or a size."""

    what: str
    figure: float
    unit: str
    goal: float = 0.0
    at_least: bool = True
    note: str = ""

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<="
        met = self.figure >= self.goal if self.at_least else self.figure <= self.goal
        goal, verdict = (f"{sign} {_number(self.goal)}", "yes" if met else "**no**") if self.goal else ("", "")
        return f"| {self.what} | {_number(self.figure)} {self.unit} | {goal} | {verdict} | {self.note} |"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.2f}"


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
    began, cpu = perf_counter(), process_time()
    for _ in range(count):
        batch[:HEADER] = fresh
        append(view, 0, NOW_MS)
    return count / (perf_counter() - began), (process_time() - cpu) / count


def appending(root: Path, rounds: int) -> Iterator[Row]:
    for size, total_bytes in ((16384, 600 << 20), (100, 20 << 20), (1024, 100 << 20)):
        best, least = 0.0, 1.0
        for _ in range(rounds):
            log = open_log(root / "bench-0")
            rate, cpu = fill(log, size, total_bytes)
            log.abandon()
            rmtree(root / "bench-0")
            best, least = max(best, rate), min(least, cpu)
        note = f"{least * 1e6:.1f} us CPU each"
        if size == 16384:
            yield Row("append of 16 KB batches", best * size / 1e6, "MB/s", 1000, note=note)
        else:
            yield Row(f"append of {size} B batches", best, "/s", 150_000 if size == 100 else 0, note=note)


def tail(root: Path, rounds: int) -> Iterator[Row]:
    """Append times under sustained load, with the pacing on."""
    log = open_log(root / "bench-0")
    batch = batch_of(16384)
    fresh, view = bytes(batch[:HEADER]), memoryview(batch)
    times: list[int] = []
    preempted: list[int] = []
    waits = getrusage(RUSAGE_SELF).ru_nvcsw
    for _ in range(TAIL_APPENDS):
        batch[:HEADER] = fresh
        began = perf_counter_ns()
        log.append_as_leader(view, 0, NOW_MS)
        took = perf_counter_ns() - began
        times.append(took)
        if took > SLOW_NS:
            before, waits = waits, getrusage(RUSAGE_SELF).ru_nvcsw
            if waits == before:
                preempted.append(took)
    log.abandon()
    rmtree(root / "bench-0")
    times.sort()
    p50, p99, p999 = (times[int(len(times) * share)] / 1e6 for share in (0.5, 0.99, 0.999))
    note = f"p50 {p50 * 1e3:.0f} us, p99 {p99 * 1e3:.0f} us, max {times[-1] / 1e6:.0f} ms; 2 GB without a pause"
    yield Row("append of 16 KB, p99.9", p999, "ms", 2, at_least=False, note=note)
    for took in preempted:
        times.remove(took)
    own = times[int(len(times) * 0.999)] / 1e6
    note = f"{len(preempted)} appends over {SLOW_NS / 1e6:.1f} ms never waited: they had lost the CPU to others"
    yield Row("the same without appends that lost the CPU", own, "ms", note=note)


def reading_and_recovery(root: Path, rounds: int) -> Iterator[Row]:
    for size, total_bytes, name in ((16384, 600 << 20, "16 KB"), (100, 30 << 20, "100 B")):
        log = open_log(root / "bench-0")
        fill(log, size, total_bytes)
        read = max(read_all(log) for _ in range(rounds))
        total = log.size_bytes
        log.abandon()
        times = []
        for _ in range(rounds):
            began = perf_counter()
            again = open_log(root / "bench-0")
            times.append(perf_counter() - began)
            again.abandon()
        unchecked = read_all(open_log(root / "bench-0", clean=True))
        rmtree(root / "bench-0")
        goal = size == 16384
        note = f"page cache; the first read after a start, which checks CRCs: {unchecked / 1e6:,.0f} MB/s"
        yield Row(f"sequential read, {name} batches", read / 1e6, "MB/s", 2000 * goal, note=note)
        yield Row(f"recovery, {name} batches", total / min(times) / 1e6, "MB/s", 1000 * goal)


def read_all(log: Log) -> float:
    """Bytes a second, a megabyte a read."""
    began, offset = perf_counter(), log.log_start_offset
    while offset < log.log_end_offset:
        offset = log.read(offset, READ_BYTES).next_offset
    return log.size_bytes / (perf_counter() - began)


def compacting(root: Path, rounds: int) -> Iterator[Row]:
    for batch_records, key_count in ((140, 300_000), (140, 1000), (1, 300_000)):
        measured = compaction(batch_records, key_count, rounds)
        note = (
            f"{measured.kept:.0%} kept, {measured.cpu_mb_s:.0f} MB per CPU second; a worker process, its start included"
        )
        what = f"compaction, {batch_records} records a batch, {key_count:,} keys"
        yield Row(what, measured.mb_s, "MB/s", 50, note=note)


def many_partitions(root: Path, rounds: int) -> Iterator[Row]:
    disk = RealDisk()
    MetaProperties("c", 1, bytes(15) + b"\x09").write(disk, str(root))
    settings = ManagerSettings(cluster_id="c", node_id=1)

    def open_all() -> LogManager:
        manager = LogManager(disk, [str(root)], LogConfig(), settings, Random(1))
        manager.open_all(NOW_MS)
        return manager

    manager, config = open_all(), LogConfig()
    for number in range(PARTITIONS):
        log = manager.get_or_create(TopicPartition("bench", number), config, bytes(16), now_ms=NOW_MS)
        log.append_as_leader(batch_of(300), 0, NOW_MS)
    manager.close()
    times = []
    for _ in range(rounds):
        gc.collect()
        began = perf_counter()
        manager = open_all()
        times.append(perf_counter() - began)
        manager.close()
    del manager, log
    gc.collect()
    start()
    manager = open_all()
    gc.collect()
    memory = get_traced_memory()[0] / PARTITIONS / 1024
    stop()
    manager.close()
    yield Row(f"opening {PARTITIONS:,} clean partitions", min(times), "s", 4, at_least=False)
    yield Row("memory of an idle partition", memory, "KB", 4, at_least=False, note="Python's own count, after opening")


PARTS: dict[str, Callable[[Path, int], Iterator[Row]]] = {
    "append": appending,
    "tail": tail,
    "read": reading_and_recovery,
    "compaction": compacting,
    "partitions": many_partitions,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.bench_log")
    parser.add_argument("--directory", default="/var/tmp")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(PARTS), help=f"of {','.join(PARTS)}")
    options = parser.parse_args()
    print("| what | measured | goal | met | |\n|---|---:|---:|---|---|")
    for name in options.only.split(","):
        with TemporaryDirectory(dir=options.directory) as root:
            for row in PARTS[name](Path(root), options.rounds):
                print(row, flush=True)


if __name__ == "__main__":
    main()
