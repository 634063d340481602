"""Logs that are deleted, or fail, while a move to another directory waits for its turn: one is done after the other, and each may take hours."""

import asyncio
import errno

import pytest

from ottla.broker.moves import PAUSE_MS
from ottla.broker.storage import FLUSH_CHECK_MS, ROLLED_SYNC_MS, Storage
from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.test_cleaning_of_logs_that_go import (
    ELSEWHERE,
    HOME,
    NAME,
    OTHER_TOPIC_ID,
    TOPIC_ID,
    Bench,
    bench,
)

__all__ = ["bench"]

FIRST, THIRD = TopicPartition("first", 0), TopicPartition("third", 0)
FLUSHED = LogConfig(segment_bytes=400, flush_messages=1)


def moving(bench: Bench) -> Log:
    """The second of two moves, which waits for the first."""
    for name in (FIRST, NAME):
        log = bench.storage.get_or_create(name, FLUSHED, TOPIC_ID, HOME)
        bench.write(log, b"key", b"value")
        assert bench.storage.moves.request(name, "/more") == ErrorCode.NONE
    return log


def partitions(bench: Bench) -> list[int]:
    return [root.partitions for root in bench.storage.manager.roots]


def test_other_logs_are_synced_though_a_log_was_deleted_that_was_to_move(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Log] = []
    monkeypatch.setattr(Storage, "_sync", lambda _, log: synced.append(log))
    moving(bench)
    third = bench.storage.get_or_create(THIRD, FLUSHED, TOPIC_ID, HOME)
    bench.write(third, b"key", b"x" * 300)
    bench.write(third, b"key", b"x" * 300)
    bench.storage.delete(NAME, TOPIC_ID)
    for delay_ms in (FLUSH_CHECK_MS, ROLLED_SYNC_MS):
        synced.clear()
        bench.fire(delay_ms)
        assert third in synced


def test_the_next_topic_of_a_name_is_moved_when_that_is_asked(bench: Bench) -> None:
    async def scenario() -> None:
        moving(bench)
        bench.storage.delete(NAME, TOPIC_ID)
        log = bench.storage.get_or_create(NAME, FLUSHED, OTHER_TOPIC_ID, HOME)
        bench.write(log, b"key", b"new")
        assert bench.storage.moves.request(NAME, "/more") == ErrorCode.NONE
        while bench.storage.moves.under_way:
            bench.fire(PAUSE_MS)
            await asyncio.sleep(0.001)  # a thread's syncs
        log = bench.storage.manager.logs[NAME]
        assert (log.directory, log.topic_id, log.log_end_offset) == ("/more/a-0", OTHER_TOPIC_ID, 1)
        assert partitions(bench) == [0, 2]
        await bench.storage.close(-1)

    asyncio.run(scenario())


def test_a_move_ends_with_the_directory_that_it_leaves(bench: Bench) -> None:
    log = moving(bench)
    log.root.failed(OSError(errno.EIO, "the disk is gone"))
    assert bench.storage.moves.under_way == {}
    assert bench.storage.manager.roots[1].directory_id == ELSEWHERE
    assert partitions(bench)[1] == 0
