"""How moves to another directory end: while a thread syncs, or when a directory fails."""

import errno
from collections.abc import Callable
from functools import partial

import pytest

from ottla.broker import moves
from ottla.broker.moves import PAUSE_MS
from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.runtime.errors import ErrorCode
from ottla.runtime.sync_later import OnDone, Syncable, SyncLater
from tests.unit.broker.test_cleaning_of_logs_that_go import HOME, NAME, OTHER_TOPIC_ID, TOPIC_ID, Bench, bench

__all__ = ["bench"]

OTHER = TopicPartition("other", 0)
Syncs = list[Callable[[], None]]


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> Syncs:
    """The syncs that a thread has begun, for the test to end."""
    begun: Syncs = []

    def sync(_: SyncLater, file: Syncable, on_done: OnDone) -> None:
        begun.append(partial(_end_of_sync, file, on_done))

    monkeypatch.setattr(SyncLater, "sync", sync)
    return begun


def _end_of_sync(file: Syncable, on_done: OnDone) -> None:
    try:
        file.sync()
    except OSError as error:
        on_done(error)
    else:
        on_done(None)


def moving(bench: Bench, name: TopicPartition = NAME) -> Log:
    log = bench.storage.get_or_create(name, LogConfig(), TOPIC_ID, HOME)
    bench.write(log, b"key", b"value")
    assert bench.storage.moves.request(name, "/more") == ErrorCode.NONE
    return log


def end(bench: Bench, syncs: Syncs) -> None:
    """All that is to move has moved, or stays."""
    for _ in range(50):
        bench.fire(PAUSE_MS)
        while syncs:
            syncs.pop(0)()
    assert not bench.storage.moves.under_way


def test_a_copy_takes_no_place_while_a_thread_syncs_it(bench: Bench, syncs: Syncs) -> None:
    """Should that sync fail, no other one of that file tells: what it could not write is not written, and no log to rely on."""
    log = moving(bench)
    while not syncs:
        bench.fire(PAUSE_MS)
    moving(bench, OTHER)
    bench.fire(PAUSE_MS)
    assert bench.storage.manager.logs[NAME] is log
    end(bench, syncs)
    assert {each.directory for each in bench.storage.manager.logs.values()} == {"/more/a-0", "/more/other-0"}


def test_moves_end_with_the_directory_that_they_go_to(bench: Bench, syncs: Syncs) -> None:
    """Also those that wait for their turn; a log whose copy is whole would be in a directory that counts as lost."""
    logs = [moving(bench), moving(bench, OTHER)]
    more = bench.storage.manager.roots[1]
    while not syncs:
        bench.fire(PAUSE_MS)
    copies = [move.copy for move in bench.storage.moves.under_way.values()]
    more.failed(OSError(errno.EIO, "the disk is gone"))
    assert bench.storage.moves.under_way == {}
    assert all(copy.abandoned for copy in copies)
    assert more.partitions == 0
    end(bench, syncs)
    assert [*bench.storage.manager.logs.values()] == logs
    for log in logs:
        bench.write(log, b"key", b"another")


def test_a_move_ends_whose_target_fails_at_its_exchange(bench: Bench, syncs: Syncs) -> None:
    log = moving(bench)
    bench.platter.fail_once(1, errno.EIO, (), "/more/a-0")
    end(bench, syncs)
    assert bench.storage.manager.roots[1].failure is not None
    assert bench.storage.manager.logs[NAME] is log
    bench.write(log, b"key", b"another")


def test_a_log_that_waits_to_be_deleted_does_not_move(bench: Bench, syncs: Syncs) -> None:
    """Its move would stand in the way of the next topic of that name."""
    log = bench.storage.get_or_create(NAME, LogConfig(), TOPIC_ID, HOME)
    bench.write(log, b"key", b"old")
    bench.storage._deletions._turn_left = 0
    bench.storage.delete(NAME, TOPIC_ID)
    assert bench.storage.moves.request(NAME, "/more") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    log = bench.storage.get_or_create(NAME, LogConfig(), OTHER_TOPIC_ID, HOME)
    bench.write(log, b"key", b"new")
    assert bench.storage.moves.request(NAME, "/more") == ErrorCode.NONE
    end(bench, syncs)
    log = bench.storage.manager.logs[NAME]
    assert (log.directory, log.topic_id) == ("/more/a-0", OTHER_TOPIC_ID)


def test_what_came_while_a_thread_synced_is_synced_by_it_too_where_it_is_much(
    bench: Bench, syncs: Syncs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that is written to fast grows by hundreds of megabytes in a sync of gigabytes; the exchange syncs the rest on the loop."""
    monkeypatch.setattr(moves, "UNSYNCED_BYTES_MAX", 1_000)
    log = moving(bench)
    bench.fire(PAUSE_MS)
    bench.fire(PAUSE_MS)
    for _ in range(40):
        bench.write(log, b"key", b"x" * 100)
    while syncs:
        syncs.pop()()
    for _ in range(50):
        bench.fire(PAUSE_MS)
    assert bench.storage.manager.logs[NAME] is log
    assert len(syncs) == 1
    end(bench, syncs)
    assert bench.storage.manager.logs[NAME].directory == "/more/a-0"


def test_a_move_that_ends_for_want_of_descriptors_is_told(
    bench: Bench, syncs: Syncs, caplog: pytest.LogCaptureFixture
) -> None:
    """Its directory goes on, so nothing else would say that nobody moves the replica any more."""
    log = moving(bench)
    while not syncs:
        bench.fire(PAUSE_MS)
    bench.platter.fail_once(1, errno.EMFILE, (), "/more/")
    syncs.pop()()
    assert not bench.storage.moves.under_way
    assert "Moving a-0 to /more is given up" in caplog.text
    assert bench.storage.manager.roots[1].failure is None
    bench.write(log, b"key", b"another")
