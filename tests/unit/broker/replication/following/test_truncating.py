"""Many logs cut after one fetch answer: a few at once, many over turns, with one sync, and nothing goes on before it."""

from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.replication.durability import Durability
from ottla.broker.replication.following.truncating import CUT_PER_TURN, MANY, SYNCED_PER_TURN, Truncations
from ottla.log.config import LogConfig
from ottla.log.directories.checkpoints import MetaProperties
from ottla.log.directories.manager import LogManager, ManagerSettings
from ottla.log.directories.moves import begin_move, finish_move
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.records import Record, encode_batch
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter
from ottla.runtime.sync_later import Syncable

NOW_MS = 1_700_000_000_000
RECORDS, CUT_TO = 5, 2


class Syncs:
    """A thread that works when the test says so, once for equal things."""

    def __init__(self) -> None:
        self.waiting: dict[Syncable, list[Callable[[OSError | None], None]]] = {}

    def sync(self, file: Syncable, on_done: Callable[[OSError | None], None]) -> None:
        self.waiting.setdefault(file, []).append(on_done)

    def run(self, error: OSError | None = None) -> int:
        """How much it had to sync."""
        waiting, self.waiting = self.waiting, {}
        for file, callers in waiting.items():
            file.sync()
            for on_done in callers:
                on_done(error)
        return len(waiting)


class Bench:
    def __init__(self) -> None:
        self.platter = Platter.seeded(5)
        disk = SimulatedDisk(self.platter)
        for number, path in enumerate(("/data", "/more")):
            disk.make_directories(path)
            MetaProperties("c", 1, bytes(range(number, number + 16))).write(disk, path)
        settings = ManagerSettings(cluster_id="c", node_id=1, free_bytes_floor=0)
        self.manager = LogManager(disk, ["/data", "/more"], LogConfig(), settings, Random(3))
        self.manager.open_all(NOW_MS)
        self.syncs = Syncs()
        self.turns: list[Callable[[], None]] = []
        timers: Any = SimpleNamespace(call_later_ms=lambda _, turn: self.turns.append(turn))
        self.truncations = Truncations(timers, Durability(cast(Any, self.syncs)))
        self.done: list[TopicPartition] = []
        self.refused: list[Exception] = []
        self.wanted = True

    def log(self, number: int) -> Log:
        name, topic_id, place = TopicPartition("t", number), bytes(range(16)), bytes(range(16))
        log = self.manager.get_or_create(name, LogConfig(), topic_id, place, now_ms=NOW_MS)
        for offset in range(RECORDS):
            log.append_as_follower(encode_batch([Record(offset, NOW_MS, None, b"v")], base_offset=offset))
        log.flush()
        return log

    def cut(self, log: Log, offset: int = CUT_TO) -> None:
        def done(error: Exception | None) -> None:
            if error is None:
                self.done.append(log.partition)
            else:
                self.refused.append(error)

        self.truncations.cut(log, offset, lambda: self.wanted, done)

    def turn(self) -> None:
        turns, self.turns = self.turns, []
        for turn in turns:
            turn()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def cut_logs(logs: list[Log]) -> int:
    return sum(log.log_end_offset == CUT_TO for log in logs)


def test_a_few_logs_are_cut_as_they_come(bench: Bench) -> None:
    logs = [bench.log(number) for number in range(SYNCED_PER_TURN)]
    for log in logs:
        bench.cut(log)
    assert [log.log_end_offset for log in logs] == [CUT_TO] * len(logs)
    assert bench.done == [log.partition for log in logs]
    assert not any(log.cut_unsynced for log in logs)


def test_some_more_take_their_turns(bench: Bench) -> None:
    logs = [bench.log(number) for number in range(2 * SYNCED_PER_TURN + 1)]
    for log in logs:
        bench.cut(log)
    seen = []
    for _ in range(3):
        seen.append(len(bench.done))
        bench.turn()
    assert seen == [SYNCED_PER_TURN, 2 * SYNCED_PER_TURN, 2 * SYNCED_PER_TURN + 1][:3]
    assert cut_logs(logs) == len(logs)


def test_many_are_cut_over_turns_with_one_write_and_one_sync(bench: Bench) -> None:
    count = SYNCED_PER_TURN + CUT_PER_TURN + MANY
    logs = [bench.log(number) for number in range(count)]
    bench.manager.checkpoints.save_points()
    for log in logs:
        bench.cut(log)
    synced = []
    perform = bench.platter.perform

    def watched(operation: str, path: str, *rest: Any) -> None:
        if operation == "sync":
            synced.append(path)
        perform(operation, path, *rest)

    bench.platter.perform = watched  # type: ignore[method-assign,assignment]
    bench.turn()
    assert cut_logs(logs) == SYNCED_PER_TURN + CUT_PER_TURN
    bench.turn()
    assert cut_logs(logs) == count
    assert len(synced) == 2, "a checkpoint a turn"
    assert len(bench.done) == SYNCED_PER_TURN, "the others wait for the sync"
    assert bench.syncs.run() == 1
    assert len(bench.done) == count
    assert not any(log.cut_unsynced for log in logs)


def test_a_replica_that_leads_before_its_cut_was_synced_syncs_it_first(bench: Bench) -> None:
    logs = [bench.log(number) for number in range(SYNCED_PER_TURN + MANY)]
    for log in logs:
        bench.cut(log)
    bench.turn()
    leader = logs[-1]
    assert leader.cut_unsynced
    leader.finish_cut()
    leader.append_as_leader(encode_batch([Record(0, NOW_MS, None, b"new")]), 7, NOW_MS)
    leader.flush()
    bench.platter.power_loss()
    again = LogManager(SimulatedDisk(bench.platter), ["/data"], LogConfig(), bench.manager.settings, Random(3))
    again.open_all(NOW_MS)
    assert again.logs[leader.partition].log_end_offset == CUT_TO + 1


def test_a_sync_is_not_for_the_cut_that_came_after_it(bench: Bench) -> None:
    logs = [bench.log(number) for number in range(SYNCED_PER_TURN + MANY)]
    for log in logs:
        bench.cut(log)
    bench.turn()
    logs[-1].truncate_to(1, sync=False)
    bench.syncs.run()
    assert [log.cut_unsynced for log in logs[-2:]] == [False, True]


def test_what_is_not_wanted_any_more_is_not_cut(bench: Bench) -> None:
    logs = [bench.log(number) for number in range(SYNCED_PER_TURN + MANY)]
    for log in logs:
        bench.cut(log)
    bench.wanted = False
    bench.turn()
    bench.turn()
    assert cut_logs(logs) == SYNCED_PER_TURN
    assert not bench.turns


def test_a_disk_that_does_not_sync_leaves_nobody_waiting(bench: Bench) -> None:
    logs = [bench.log(number) for number in range(SYNCED_PER_TURN + MANY)]
    for log in logs:
        bench.cut(log)
    bench.turn()
    bench.syncs.run(OSError(5, "the disk is gone"))
    assert len(bench.refused) == MANY
    assert logs[0].root.failure is not None


def test_logs_that_begin_anew_go_one_in_a_turn(bench: Bench) -> None:
    logs = [bench.log(number) for number in range(4)]
    for log in logs:
        bench.truncations.restart(log, 100, lambda: True, lambda error: bench.done.append(TopicPartition("t", 0)))
    seen = []
    for _ in range(3):
        seen.append(sum(log.log_end_offset == 100 for log in logs))
        bench.turn()
    assert seen == [1, 2, 3]


@pytest.mark.parametrize("count", [2, 2 * MANY])
@pytest.mark.parametrize("error", [OSError(5, "a disk's end"), ValueError("a mistake of ours")])
def test_what_fails_for_one_log_does_not_keep_others_from_being_cut(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, count: int, error: Exception
) -> None:
    truncate = Log.truncate_to

    def fail(log: Log, *arguments: Any, **options: Any) -> bool:
        if log.partition.partition == 0:
            raise error
        return truncate(log, *arguments, **options)

    logs = [bench.log(number) for number in range(count)]
    monkeypatch.setattr(Log, "truncate_to", fail)
    bench.truncations._turn_left = SYNCED_PER_TURN if count < MANY else 0
    for log in logs:
        bench.cut(log)
    while bench.turns:
        bench.turn()
        bench.syncs.run()
    assert bench.refused == [error]
    assert cut_logs(logs) == len(bench.done) == count - 1


def test_a_log_that_moved_to_another_directory_is_cut_where_it_lies_now(bench: Bench) -> None:
    """Nothing lies in the old place: to be told so costs that directory all its logs."""
    logs = [bench.log(number) for number in range(SYNCED_PER_TURN + 1)]
    for log in logs:
        bench.cut(log)
    old = logs[-1]
    assert old.log_end_offset == RECORDS
    move = begin_move(bench.manager, old, bench.manager.roots[1], NOW_MS)
    while not move.copy_some(1 << 20):
        pass
    new = finish_move(bench.manager, move, NOW_MS)
    bench.truncations.moved(old, new)
    bench.turn()
    assert [root.failure for root in bench.manager.roots] == [None, None]
    assert new.log_end_offset == CUT_TO
    assert bench.done == [log.partition for log in logs]
