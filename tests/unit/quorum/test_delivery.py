"""How much the application is told before the loop gets its turn."""

from collections.abc import Callable

import pytest

from ottla.quorum import delivery as delivery_module
from ottla.quorum.batches import encode_values
from ottla.quorum.delivery import TURN_RECORDS, CommitDelivery
from ottla.quorum.listener import CommittedBatch, LeaderAndEpoch
from ottla.quorum.snapshots.image_fit import BEGINNING
from ottla.testing.quorum.memory import MemoryLog


class Listener:
    def __init__(self) -> None:
        self.told: list[CommittedBatch] = []

    def on_commit(self, batch: CommittedBatch) -> None:
        self.told.append(batch)

    def on_leader_change(self, leader: LeaderAndEpoch) -> None: ...

    def on_confirmed(self) -> None: ...

    async def on_snapshot(self, store_path: str | None, offset: int, epoch: int) -> None: ...


def large_batches(count: int) -> list[CommittedBatch]:
    size = TURN_RECORDS
    return [CommittedBatch(at * size, (at + 1) * size - 1, 1, 0, [b"x"] * size) for at in range(count)]


def test_what_a_leader_appended_is_told_over_several_turns() -> None:
    listener, turns, ends = Listener(), list[Callable[[], None]](), list[int]()
    delivery = CommitDelivery(MemoryLog(), listener, BEGINNING, turns.append, lambda: ends.append(len(listener.told)))
    batches = large_batches(3)
    delivery.keep(batches)
    delivery.commit(3 * TURN_RECORDS)
    assert len(listener.told) == 1
    while turns:
        turns.pop()()
    assert listener.told == batches
    assert ends == [3], "only then everything was told"


def test_commits_that_come_while_there_is_much_to_tell_make_no_turn_longer() -> None:
    """A restarted node reads a long log again, and hears of each commit meanwhile."""
    listener, turns = Listener(), list[Callable[[], None]]()
    delivery = CommitDelivery(MemoryLog(), listener, BEGINNING, turns.append, lambda: None)
    batches = large_batches(20)
    delivery.keep(batches)
    for count in range(10, 20):
        delivery.commit(count * TURN_RECORDS)
    assert len(listener.told) == 1
    assert len(turns) == 1
    while turns:
        turns.pop()()
    assert listener.told == batches[:19]


def test_what_is_read_from_the_log_is_told_over_several_turns() -> None:
    """Whoever follows a leader that just made a large topic, or was away, has it from the log."""
    listener, log, turns = Listener(), MemoryLog(), list[Callable[[], None]]()
    delivery = CommitDelivery(log, listener, BEGINNING, turns.append, lambda: None)
    for offset in range(0, 4 * TURN_RECORDS, 100):
        log.append_as_follower(bytes(encode_values([b"x"] * 100, offset, 1, 0, "")), 1)
    delivery.commit(4 * TURN_RECORDS)
    told = [delivery.next_offset]
    while turns:
        turns.pop()()
        told.append(delivery.next_offset)
    assert told == [TURN_RECORDS * count for count in (1, 2, 3, 4)]


def test_small_batches_are_told_in_one_turn() -> None:
    listener, log = Listener(), MemoryLog()
    delivery = CommitDelivery(log, listener, BEGINNING, lambda work: None, lambda: None)
    for offset in range(20):
        log.append_as_follower(bytes(encode_values([b"x"], offset, 1, 0, "")), 1)
    delivery.commit(20)
    assert len(listener.told) == 20


def test_what_is_kept_in_memory_is_bounded_and_the_rest_is_read_from_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that hears of no commit for long must not fill the memory with what waits for one."""
    monkeypatch.setattr(delivery_module, "KEPT_RECORDS_MAX", 3)
    listener, log = Listener(), MemoryLog()
    delivery = CommitDelivery(log, listener, BEGINNING, lambda work: None, lambda: None)
    for offset in range(10):
        log.append_as_follower(bytes(encode_values([b"%d" % offset], offset, 1, 0, "")), 1)
        delivery.keep([CommittedBatch(offset, offset, 1, 0, [b"%d" % offset])])
    assert len(delivery._kept) == 3
    delivery.commit(10)
    delivery.deliver()
    assert [batch.records for batch in listener.told] == [[b"%d" % offset] for offset in range(10)]
