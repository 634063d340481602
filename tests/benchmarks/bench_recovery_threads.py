"""Whether threads recover logs faster than one after the other: ``python tests/benchmarks/bench_recovery_threads.py [directory]``.

Four logs, recovered in turn and by two threads, cached and not. They gain where the checksum is long enough to be computed without
the interpreter's lock, and where the disk is waited for; the walk over headers holds the lock.
"""

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.records import Record, encode_batch
from ottla.runtime.real_disk import RealDisk

NOW_MS = 1_700_000_000_000
LOGS = 4
LOG_BYTES = 80 << 20
ROUNDS = 5


def opened(root: Path, number: int) -> Log:
    name = TopicPartition("bench", number)
    return Log.open(RealDisk(), str(root / str(name)), name, LogConfig(), now_ms=NOW_MS)


def fill(root: Path, size: int) -> None:
    batch = encode_batch([Record(0, NOW_MS, None, bytes(size - 72))])
    fresh = bytes(batch[:16])
    for number in range(LOGS):
        log = opened(root, number)
        for _ in range(LOG_BYTES // size):
            batch[:16] = fresh
            log.append_as_leader(memoryview(batch), 0, NOW_MS)
        log.flush()
        log.abandon()


def chill(root: Path) -> None:
    for path in root.glob("*/*.log"):
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def recover(root: Path, number: int) -> None:
    opened(root, number).abandon()


def in_turn(root: Path) -> None:
    for number in range(LOGS):
        recover(root, number)


def by_threads(root: Path) -> None:
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda number: recover(root, number), range(LOGS)))


def best(root: Path, *, cold: bool) -> list[float]:
    """Seconds of each way, the least of rounds in which they alternate."""
    ways: list[Callable[[Path], None]] = [in_turn, by_threads]
    times: list[list[float]] = [[], []]
    for _ in range(ROUNDS):
        for way, taken in zip(ways, times, strict=True):
            if cold:
                chill(root)
            began = perf_counter()
            way(root)
            taken.append(perf_counter() - began)
    return [min(taken) for taken in times]


def main() -> None:
    for size in (1_000, 16_384, 131_072):
        with TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else "/var/tmp") as name:
            root = Path(name)
            fill(root, size)
            for cold in (False, True):
                alone, threads = (LOGS * LOG_BYTES / taken / 1e6 for taken in best(root, cold=cold))
                state = "not cached" if cold else "cached"
                print(
                    f"batches of {size:6d} B, {state:10s}  in turn {alone:6.0f} MB/s   two threads {threads:6.0f} MB/s"
                )


if __name__ == "__main__":
    main()
