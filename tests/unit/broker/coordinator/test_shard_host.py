"""A shard between its beginning and its resignation: what waits, what is refused, what is left when it is over."""

import errno
from dataclasses import replace
from unittest.mock import patch

import pytest

from ottla.broker.coordinator.decisions.effects import ProducerBatch, Record
from ottla.broker.coordinator.shard_host import ShardHost
from ottla.broker.replication.markers import Marker
from ottla.broker.replication.verified_appends import guards_of
from ottla.log.batch import headers
from ottla.log.segments.segment import Segment
from ottla.runtime.errors import ErrorCode, KafkaError
from tests.unit.broker.coordinator.shard_host_bench import EPOCH, WRITE_TIMEOUT_MS, Bench, Words, on_a_bench

# --- transactions -----------------------------------------------------------------------------------------------------


@on_a_bench
async def test_a_marker_stands_behind_what_was_decided_before_it(bench: Bench) -> None:
    """Else a transaction's records, given before its end, would be read behind it."""
    await bench.begin()
    bench.write(b"a", b"1")
    bench.host.end_transaction(Marker(7, 0, True, 0), lambda error: bench.told.append(ErrorCode(error)))
    assert [header.is_control for _, header in headers(bench.log.read(0, 1 << 20).data)] == [False, True]
    assert bench.words.told == ["begin", (7, True)]
    assert bench.told == []
    await bench.follower_has_all()
    assert bench.told == [ErrorCode.NONE] * 2


@on_a_bench
async def test_a_marker_that_is_refused_is_not_followed_and_hurts_nobody_else(bench: Bench) -> None:
    await bench.begin()
    bench.host.end_transaction(Marker(7, 3, True, 0), lambda _: None)
    bench.write(b"a", b"1")
    with pytest.raises(KafkaError) as caught:
        bench.host.end_transaction(Marker(7, 2, False, 0), lambda _: None)
    assert caught.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    await bench.follower_has_all()
    assert bench.words.told == ["begin", (7, True)]
    assert bench.told == [ErrorCode.NONE]


@on_a_bench
async def test_a_marker_that_comes_again_is_followed_once_and_told_when_the_first_is_committed(bench: Bench) -> None:
    await bench.begin()
    write_in_transaction(bench, b"1")
    for _ in range(2):
        marker = Marker(7, 1, True, 0, transaction_version=2)
        bench.host.end_transaction(marker, lambda error: bench.told.append(ErrorCode(error)))
    assert (bench.words.told, bench.told) == (["begin", (7, True)], [])
    await bench.follower_has_all()
    assert bench.told == [ErrorCode.NONE] * 3


@on_a_bench
async def test_a_marker_that_the_disk_has_no_room_for_is_refused_and_written_when_there_is(bench: Bench) -> None:
    await bench.begin()
    no_room = patch.object(Segment, "append", side_effect=OSError(errno.ENOSPC, "no room"))
    with no_room, pytest.raises(KafkaError) as caught:
        bench.host.end_transaction(Marker(7, 0, True, 0), lambda _: None)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert bench.words.told == ["begin"]
    bench.log.root.set_full(False)
    bench.host.end_transaction(Marker(7, 0, True, 0), lambda error: bench.told.append(ErrorCode(error)))
    await bench.follower_has_all()
    assert (bench.words.told, bench.told) == (["begin", (7, True)], [ErrorCode.NONE])


@on_a_bench
async def test_a_marker_that_comes_while_the_shard_is_loaded_comes_again(bench: Bench) -> None:
    bench.fill((b"a", b"1"))
    await bench.begin(turns=0)
    with pytest.raises(KafkaError) as caught:
        bench.host.end_transaction(Marker(7, 0, True, 0), lambda _: None)
    assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def write_in_transaction(bench: Bench, value: bytes, *, epoch: int = 0, guard: int | None = None) -> None:
    batch = ProducerBatch(7, epoch)
    given = guards_of(bench.partition).begin(batch, 0) if guard is None else guard
    bench.host.write_transactional([Record(b"a", value)], batch, given, bench.told.append)


@on_a_bench
async def test_a_transactions_records_stand_in_a_batch_of_its_producer_behind_what_came_before(bench: Bench) -> None:
    await bench.begin()
    bench.write(b"b", b"1")
    write_in_transaction(bench, b"1")
    found = [header for _, header in headers(bench.log.read(0, 1 << 20).data)]
    assert [(each.is_transactional, each.producer_id, each.producer_epoch) for each in found] == [
        (False, -1, -1),
        (True, 7, 0),
    ]
    assert bench.told == []
    await bench.follower_has_all()
    assert bench.told == [ErrorCode.NONE] * 2
    assert bench.log.last_stable_offset == 1
    other = ShardHost(bench.partition, EPOCH, bench.around)
    words = Words()
    other.load(words, lambda _: None)
    await bench.turn(5)
    assert words.values == bench.words.values == {b"a": b"1", b"b": b"1"}


@on_a_bench
async def test_what_is_written_is_compressed_as_the_setting_says_and_loaded_again(bench: Bench) -> None:
    bench.host = ShardHost(bench.partition, EPOCH, replace(bench.around, codec=1))
    await bench.begin()
    bench.write(b"b", bytes(300))
    write_in_transaction(bench, bytes(300))
    await bench.turn()
    assert [header.compression for _, header in headers(bench.log.read(0, 1 << 20).data)] == [1, 1]
    words = Words()
    ShardHost(bench.partition, EPOCH, bench.around).load(words, lambda _: None)
    await bench.turn(5)
    assert words.values == bench.words.values == {b"a": bytes(300), b"b": bytes(300)}


@on_a_bench
async def test_a_transactions_records_need_the_proof_that_stands_and_a_marker_takes_it_away(bench: Bench) -> None:
    await bench.begin()
    guard = guards_of(bench.partition).begin(ProducerBatch(7, 0), 0)
    bench.host.end_transaction(Marker(7, 0, False, 0), lambda _: None)
    bench.write(b"b", b"1")
    write_in_transaction(bench, b"1", guard=guard)
    assert bench.told == [ErrorCode.INVALID_TXN_STATE]
    await bench.follower_has_all()
    assert bench.told == [ErrorCode.INVALID_TXN_STATE, ErrorCode.NONE]
    assert bench.words.values == {b"b": b"1"}


@on_a_bench
async def test_a_fenced_producer_commits_nothing_and_hurts_nobody_else(bench: Bench) -> None:
    await bench.begin()
    write_in_transaction(bench, b"new", epoch=3)
    bench.write(b"b", b"1")
    write_in_transaction(bench, b"old", epoch=2)
    assert bench.told == [ErrorCode.INVALID_PRODUCER_EPOCH]
    await bench.follower_has_all()
    assert sorted(bench.told) == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH]
    assert bench.words.values == {b"a": b"new", b"b": b"1"}


# --- writing ----------------------------------------------------------------------------------------------------------


@on_a_bench
async def test_a_batch_waits_with_one_timer_however_many_wait_for_it(bench: Bench) -> None:
    await bench.begin()
    for value in (b"1", b"2", b"3"):
        bench.write(b"a", value)
    await bench.turn()
    assert len(bench.timers.due) == 1
    await bench.follower_has_all()
    assert bench.told == [ErrorCode.NONE] * 3
    assert not bench.timers.due


@on_a_bench
async def test_an_answer_does_not_wait_for_ever_and_its_record_counts_when_it_is_committed_later(bench: Bench) -> None:
    await bench.begin()
    bench.write(b"a", b"1")
    await bench.turn()
    bench.timers.pass_ms(WRITE_TIMEOUT_MS)
    assert bench.told == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    await bench.follower_has_all()
    assert bench.told == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert bench.words.values == {b"a": b"1"}


@on_a_bench
async def test_who_reads_waits_for_what_was_written_before_and_no_longer_than_others(bench: Bench) -> None:
    await bench.begin()
    bench.write(b"a", b"1")
    await bench.turn()
    bench.host.write((), bench.told.append)
    assert bench.told == []
    await bench.follower_has_all()
    assert bench.told == [ErrorCode.NONE] * 2
    assert not bench.timers.due


@on_a_bench
async def test_a_partition_that_gets_nowhere_gathers_nobody_who_was_told(bench: Bench) -> None:
    await bench.begin()
    bench.write(b"a", b"1")
    await bench.turn()
    for _ in range(5):
        bench.host.write((), bench.told.append)
        bench.timers.pass_ms(WRITE_TIMEOUT_MS)
    assert bench.told == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 6
    assert len(bench.partition.produce_waiters) == 1, "the last one goes when another comes"


@on_a_bench
async def test_who_reads_in_the_turn_of_a_write_waits_for_it(bench: Bench) -> None:
    await bench.begin()
    bench.write(b"a", b"1")
    bench.host.write((), bench.told.append)
    bench.host.close()
    assert bench.told == [ErrorCode.NOT_COORDINATOR] * 2


# --- the end ----------------------------------------------------------------------------------------------------------


@on_a_bench
async def test_one_that_resigns_in_the_middle_of_a_turn_undoes_what_was_not_written_and_leaves_no_timer(
    bench: Bench,
) -> None:
    await bench.begin()
    bench.write(b"a", b"1")
    await bench.turn()
    bench.write(b"a", b"2")
    bench.host.remind("later", 100, lambda: bench.words.told.append("later"))
    bench.host.close()
    await bench.turn()
    assert bench.told == [ErrorCode.NOT_COORDINATOR] * 2
    assert bench.words.values == {b"a": b"1"}
    assert bench.words.told == ["begin", ErrorCode.NOT_COORDINATOR]
    assert not bench.timers.due


@on_a_bench
async def test_who_reads_is_told_of_the_end_also_where_the_leader_stays_in_another_epoch(bench: Bench) -> None:
    """What was read is gone with the shard, and what else is committed says nothing of it."""
    await bench.begin()
    bench.write(b"a", b"1")
    await bench.turn()
    bench.host.write((), bench.told.append)
    bench.host.close()
    assert bench.told == [ErrorCode.NOT_COORDINATOR] * 2
    assert not bench.timers.due
    await bench.follower_has_all()
    assert bench.told == [ErrorCode.NOT_COORDINATOR] * 2


@on_a_bench
async def test_what_comes_after_the_end_is_refused_and_keeps_no_timer(bench: Bench) -> None:
    await bench.begin()
    bench.host.close()
    bench.write(b"a", b"1")
    bench.host.remind("late", 100, lambda: bench.words.told.append("late"))
    bench.timers.pass_ms(1_000)
    assert bench.told == [ErrorCode.NOT_COORDINATOR]
    assert bench.words.told == ["begin", ErrorCode.NOT_COORDINATOR]
    assert not bench.words.values


@on_a_bench
async def test_a_reminder_replaced_by_one_of_its_name_does_not_come(bench: Bench) -> None:
    await bench.begin()
    for value in ("first", "second"):
        bench.host.remind("name", 100, lambda value=value: bench.words.told.append(value))  # type: ignore[misc]
    bench.timers.pass_ms(100)
    assert bench.words.told == ["begin", "second"]
