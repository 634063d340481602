"""Logs that are on their way elsewhere, or out, while cleanings are due: what becomes of them, and of those that take their place."""

import asyncio
import threading
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker import moves
from ottla.broker.moves import PAUSE_MS
from ottla.broker.storage import Storage
from ottla.log.compaction.cleaner import CleaningJob, clean
from ottla.log.compaction.worker import Outcome
from ottla.log.config import LogConfig
from ottla.log.directories.checkpoints import MetaProperties
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.records import Record, encode_batch
from ottla.quorum.metadata.image import MetadataImage
from ottla.runtime.clock import SystemClock
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.host import Host
from ottla.runtime.identifiers import id_to_text
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter
from ottla.runtime.sync_later import SyncLater
from ottla.runtime.work_later import WorkLater, at_once
from tests.unit.broker.handlers.conftest import Site
from tests.unit.log.contents import values

CLUSTER_ID = id_to_text(b"C" * 16)
NAME = TopicPartition("a", 0)
TOPIC_ID, OTHER_TOPIC_ID = b"T" * 16, b"U" * 16
HOME, ELSEWHERE = b"D" * 16, b"E" * 16
BACKOFF_MS = 15_000
COMPACTED = LogConfig(
    cleanup_policy=("compact",), segment_bytes=400, min_cleanable_dirty_ratio=0.0, delete_retention_ms=0
)


class Bench:
    """A storage with two directories, whose timers the test fires, and workers that begin when ``may_work``."""

    def __init__(self) -> None:
        self.platter = Platter.seeded(1)
        disk = self.disk = SimulatedDisk(self.platter)
        for path, directory_id in (("/data", HOME), ("/more", ELSEWHERE)):
            disk.make_directories(path)
            MetaProperties(CLUSTER_ID, 1, directory_id).write(disk, path)
        self.may_work = threading.Event()
        self.timers: list[tuple[int, Callable[[], None]]] = []
        host = Host(SystemClock(), Random(1), disk, cast(Any, None), SyncLater())
        timers = SimpleNamespace(call_later_ms=self._call_later, call_at_beat=self._call_later, now_ms=lambda: 0)
        config = Site(log_dirs="/data,/more").config
        image, nothing = MetadataImage(), cast(Any, lambda *_: None)
        self.storage = Storage(
            config, CLUSTER_ID, host, cast(Any, timers), image, nothing, nothing, nothing, nothing, self._start_worker
        )
        self.storage.start()

    def _call_later(self, delay_ms: int, callback: Callable[[], None]) -> Any:
        self.timers.append((delay_ms, callback))
        return SimpleNamespace(cancel=lambda: None)

    def _start_worker(self, job: CleaningJob, bytes_per_second: int) -> Any:
        return SimpleNamespace(wait=lambda: self._work(job), kill=self.may_work.set)

    def _work(self, job: CleaningJob) -> Outcome:
        assert self.may_work.wait(5)
        try:
            return Outcome(result=clean(self.disk, job))
        except (OSError, KafkaError) as error:
            return Outcome(failure=str(error))

    def fire(self, delay_ms: int) -> bool:
        due = [entry for entry in self.timers if entry[0] == delay_ms]
        self.timers = [entry for entry in self.timers if entry[0] != delay_ms]
        for _, callback in due:
            callback()
        return bool(due)

    async def clean(self) -> None:
        """All that is due, to its end."""
        self.may_work.set()
        self.fire(BACKOFF_MS)
        assert self.storage._cleaning is not None
        while tasks := list(self.storage._cleaning._tasks):
            await asyncio.gather(*tasks)

    def log(self, topic_id: bytes = TOPIC_ID, directory_id: bytes = HOME) -> Log:
        return self.storage.get_or_create(NAME, COMPACTED, topic_id, directory_id)

    def write(self, log: Log, key: bytes, value: bytes | None) -> None:
        log.append_as_leader(encode_batch([Record(0, 1_000, key, value)]), 0, 1_000)

    def close_segment(self, log: Log) -> None:
        log.roll()
        log.set_high_watermark(log.log_end_offset)
        log.flush()
        self.storage.manager.checkpoints.save_points()


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(WorkLater, "do", staticmethod(at_once))
    monkeypatch.setattr(moves, "SLICE_BYTES", 400)
    return Bench()


@pytest.mark.parametrize("directory_id", [HOME, ELSEWHERE], ids=["in the same directory", "in another one"])
def test_a_cleaning_never_touches_the_log_of_the_next_topic_of_that_name(bench: Bench, directory_id: bytes) -> None:
    async def scenario() -> None:
        log = bench.log()
        for number in range(4):
            bench.write(log, b"key", b"%d" % number * 100)
        bench.close_segment(log)
        bench.storage._deletions._turn_left = 0
        bench.storage.delete(NAME, TOPIC_ID)  # enough was deleted in this turn: it waits for the next one
        bench.fire(BACKOFF_MS)
        await asyncio.sleep(0.01)  # for a worker, were there one
        log = bench.log(OTHER_TOPIC_ID, directory_id)
        for number in range(4):
            bench.write(log, b"key", b"%d" % (number + 5) * 100)
        await bench.clean()
        assert log.root.failure is None
        log.flush()
        bench.platter.close_sessions()
        again = Log.open(SimulatedDisk(bench.platter), log.directory, NAME, COMPACTED, now_ms=1_000)
        assert values(again) == [(offset, b"%d" % (offset + 5) * 100) for offset in range(4)]

    asyncio.run(scenario())


async def clean_thrice(bench: Bench, log: Log) -> None:
    for number in range(3):
        bench.write(log, b"other", b"%d" % number)
        bench.close_segment(log)
        await bench.clean()


def test_what_was_deleted_of_a_compacted_log_does_not_come_back_with_a_move(bench: Bench) -> None:
    async def scenario() -> None:
        log = bench.log()
        bench.write(log, b"key", b"deleted" * 40)
        bench.write(log, b"other", b"first" * 40)
        bench.write(log, b"key", None)
        bench.close_segment(log)
        assert bench.storage.moves.request(NAME, "/more") == ErrorCode.NONE
        bench.fire(PAUSE_MS)  # the copy has the value, and not yet its tombstone
        await clean_thrice(bench, log)
        while bench.storage.moves.under_way:
            bench.fire(PAUSE_MS)
            await asyncio.sleep(0.001)  # a thread's syncs
        moved = bench.storage.manager.logs[NAME]
        assert moved.directory == "/more/a-0"
        await clean_thrice(bench, moved)
        assert not [value for _, value in values(moved) if value and value.startswith(b"deleted")]
        assert moved.segments[0].size < 200  # it is cleaned again
        await bench.storage.close(-1)

    asyncio.run(scenario())


def test_a_cleaning_that_nobody_wants_any_more_leaves_nothing_in_a_log_that_stays(bench: Bench) -> None:
    """It may be as large as the log, and a topic that is not compacted any more has no other cleaning to sweep it away."""

    async def scenario() -> None:
        log = bench.log()
        for number in range(4):
            bench.write(log, b"key", b"%d" % number * 100)
        bench.close_segment(log)
        bench.fire(BACKOFF_MS)
        log.configure(LogConfig())
        await bench.clean()
        assert not [name for name in bench.disk.list_directory(log.directory) if name.endswith(".cleaned")]
        assert values(log) == [(offset, b"%d" % offset * 100) for offset in range(4)]

    asyncio.run(scenario())
