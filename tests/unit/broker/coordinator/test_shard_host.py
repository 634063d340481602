"""A shard from its election to its resignation: what is loaded, what waits, what is left when it is over."""

import asyncio
import errno
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from ottla.broker.coordinator.coordinator import RELOAD_MS
from ottla.broker.coordinator.decisions.effects import ProducerBatch, Record, Undo
from ottla.broker.coordinator.group_coordinator import GroupCoordinator
from ottla.broker.coordinator.shard_host import ShardHost, Surroundings
from ottla.broker.coordinator.shard_replay import RECORDS_A_TURN, ShardReplay
from ottla.broker.replication.decisions.replica import BrokerStanding
from ottla.broker.replication.durability import Durability
from ottla.broker.replication.markers import Marker
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.partition_services import PartitionServices
from ottla.broker.replication.purgatory import WakeQueue
from ottla.broker.replication.verified_appends import guards_of
from ottla.broker.wire.errors import WireError
from ottla.log.batch import HEADER_BYTES, headers
from ottla.log.config import LogConfig
from ottla.log.errors import DamagedLogError
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.records import Record as LogRecord
from ottla.log.records import encode_batch, reseal
from ottla.log.results import ColdReadError
from ottla.log.segments.segment import Segment
from ottla.quorum.metadata.image import MetadataImage
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.settings.server import ServerConfig
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter
from ottla.runtime.sync_later import SyncLater

BROKERS = {broker: BrokerStanding(broker * 10, False, False) for broker in (1, 2)}
NAME = TopicPartition("__consumer_offsets", 0)
EPOCH = 5
WRITE_TIMEOUT_MS = 5_000
BAD = b"bad"
CONFIG = {
    "process.roles": "broker",
    "node.id": "1",
    "controller.quorum.voters": "2@c:9093",
    "controller.listener.names": "C",
    "log.dirs": "/data",
}

CANNOT_READ = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "too many open files")


class Words:
    """A shard of values by key."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes | None] = {}
        self.told: list[Any] = []
        self.replayed: list[bytes] = []
        self.pieces = 0
        """In so many it begins, and ends."""

    def replay(self, record: Record, place: int, producer_id: int = -1) -> Undo:
        self.replayed.append(record.key)
        if record.key == BAD:
            raise WireError("it makes no sense")
        before = self.values.get(record.key)
        self.values[record.key] = record.value

        def undo() -> None:
            self.values[record.key] = before

        return undo

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        self.told.append((producer_id, is_commit))

    def begin(self) -> Iterator[None]:
        self.told.append("begin")
        for _ in range(self.pieces):
            yield

    def end(self, error: ErrorCode) -> Iterator[None]:
        self.told.append(error)
        return self._end()

    def _end(self) -> Iterator[None]:
        for _ in range(self.pieces):
            yield
            self.told.append("ended")


class Timers:
    """Time that stands until it is moved."""

    def __init__(self) -> None:
        self.ms = 0
        self.due: dict[object, tuple[int, Callable[[], None]]] = {}

    def now_ms(self) -> int:
        return self.ms

    def wall_ms(self) -> int:
        return 1_000_000 + self.ms

    def call_later_ms(self, in_ms: int, call: Callable[[], None]) -> "Alarm":
        alarm = Alarm(self)
        self.due[alarm] = self.ms + in_ms, call
        return alarm

    def pass_ms(self, by_ms: int) -> None:
        self.ms += by_ms
        for alarm in [each for each, (at_ms, _) in self.due.items() if at_ms <= self.ms]:
            self.due.pop(alarm)[1]()


class Alarm:
    def __init__(self, timers: Timers) -> None:
        self._timers = timers

    def cancel(self) -> None:
        self._timers.due.pop(self, None)


class Bench:
    """A partition that broker 1 leads and broker 2 follows, and its shard."""

    def __init__(self) -> None:
        self.timers = Timers()
        disk = SimulatedDisk(Platter.seeded(1))
        disk.make_directories(f"/data/{NAME}")
        self.log = Log.open(disk, f"/data/{NAME}", NAME, LogConfig(max_message_bytes=400), now_ms=0)
        services = PartitionServices(
            1, WakeQueue(asyncio.get_running_loop()), Durability(SyncLater()), lambda: 0, lambda *_: None
        )
        self.partition = Partition(NAME.topic, 0, b"C" * 16, self.log, services)
        self.partition.lead(
            1,
            leader_epoch=EPOCH,
            partition_epoch=self.partition.partition_epoch + 1,
            isr=(1, 2),
            replicas=(1, 2),
            brokers=BROKERS,
            lag_time_max_ms=30_000,
            now_ms=0,
        )
        self.words = Words()
        timers: Any = self.timers
        self.damage: list[KafkaError] = []
        self.around = Surroundings(
            timers, timers, Random(1), self, WRITE_TIMEOUT_MS, note_damage=lambda _, error: self.damage.append(error)
        )
        self.host = ShardHost(self.partition, EPOCH, self.around)
        self.loaded: list[KafkaError | None] = []
        self.told: list[ErrorCode] = []

    def load(self, cold: Sequence[ColdReadError], on_done: Callable[[], None]) -> None:
        raise AssertionError("nothing is cold")

    def fill(self, *records: tuple[bytes, bytes | None], **more: Any) -> None:
        batch = encode_batch([LogRecord(at, 1, key, value) for at, (key, value) in enumerate(records)], **more)
        self.log.append_as_leader(batch, EPOCH, 0)

    def damage_the_next_batch(self) -> None:
        """Its checksum will be right, and its only record longer than it is."""
        batch = bytearray(encode_batch([LogRecord(0, 1, b"lost", b"v")]))
        batch[HEADER_BYTES] = 126
        reseal(batch)
        self.log.append_own(batch, EPOCH, 0)

    async def begin(self, turns: int = 5) -> None:
        self.host.load(self.words, self.loaded.append)
        await self.turn(turns)

    def write(self, key: bytes, value: bytes) -> None:
        self.host.write([Record(key, value)], self.told.append)

    async def turn(self, times: int = 1) -> None:
        """The loop's."""
        for _ in range(times):
            await asyncio.sleep(0)

    async def follower_has_all(self) -> None:
        self.partition.follower_fetched(2, 20, self.log.log_end_offset, None, 0)
        await self.turn()


def on_a_bench(scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test, in a loop of its own."""

    async def run() -> None:
        bench = Bench()
        await scenario(bench)
        bench.log.abandon()

    def test() -> None:
        asyncio.run(run())

    return test


# --- loading ----------------------------------------------------------------------------------------------------------


@on_a_bench
async def test_what_the_partition_has_is_replayed_in_its_order(bench: Bench) -> None:
    bench.fill((b"a", b"1"), (b"b", b"1"))
    bench.fill((b"a", b"2"), (b"b", None))
    await bench.begin()
    assert bench.words.values == {b"a": b"2", b"b": None}
    assert (bench.loaded, bench.words.told) == ([None], ["begin"])


@on_a_bench
async def test_what_was_said_of_a_key_before_is_not_replayed_and_what_counts_comes_in_its_order(bench: Bench) -> None:
    bench.fill((b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    bench.fill((b"a", b"2"), (b"b", None))
    await bench.begin()
    assert bench.words.replayed == [b"c", b"a", b"b"]
    assert bench.words.values == {b"a": b"2", b"b": None, b"c": b"1"}


@on_a_bench
async def test_what_came_before_a_transaction_is_replayed_before_it(bench: Bench) -> None:
    replay = ShardReplay("a partition", bench.words, lambda: 0)
    of_transaction = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    for more in ({}, of_transaction, {}):
        batch = encode_batch([LogRecord(0, 1, b"a", b""), LogRecord(1, 1, b"a", b"")], **more)  # type: ignore[arg-type]
        assert list(replay.take(bytes(batch), 0, 2)) == []
    assert bench.words.replayed == [b"a", b"a", b"a"], (
        "the first of each two outside it is never replayed, the last one waits"
    )
    assert list(replay.finish()) == []
    assert bench.words.replayed == [b"a"] * 4


@on_a_bench
async def test_a_tombstone_is_replayed_though_its_key_comes_again(bench: Bench) -> None:
    """It also ends what a transaction said of the key, and a value does not."""
    replay = ShardReplay("a partition", bench.words, lambda: 0)
    values = (b"1", None, b"2", None, None)
    batch = encode_batch([LogRecord(offset, 1, b"a", value) for offset, value in enumerate(values)])
    assert list(replay.take(bytes(batch), 0, 5)) == []
    assert bench.words.replayed == [b"a"]
    assert list(replay.finish()) == []
    assert bench.words.replayed == [b"a", b"a"]
    assert bench.words.values == {b"a": None}


@on_a_bench
async def test_no_more_keys_wait_than_memory_is_meant_for(bench: Bench) -> None:
    with patch("ottla.broker.coordinator.shard_replay.KEYS_MAX", 2):
        bench.fill((b"a", b"1"), (b"b", b"1"))
        bench.fill((b"a", b"2"))
        await bench.begin(turns=10)
    assert bench.words.replayed == [b"a", b"b", b"a"]
    assert bench.words.values == {b"a": b"2", b"b": b"1"}


@on_a_bench
async def test_a_record_that_makes_no_sense_is_passed_over(bench: Bench) -> None:
    bench.fill((b"a", b"1"), (BAD, b""), (b"b", b"2"))
    await bench.begin()
    assert bench.words.values == {b"a": b"1", b"b": b"2"}
    assert bench.host.is_loaded


@on_a_bench
async def test_a_batch_that_makes_no_sense_is_passed_over_for_it_will_never_make_any(bench: Bench) -> None:
    bench.fill((b"a", b"1"))
    bench.damage_the_next_batch()
    bench.fill((b"b", b"2"))
    await bench.begin()
    assert bench.words.values == {b"a": b"1", b"b": b"2"}
    assert (bench.loaded, bench.damage) == ([None], [])


def test_a_marker_that_makes_no_sense_is_passed_over_too() -> None:
    cut_off = encode_batch([LogRecord(0, 1, b"\0\0\0\1", b"")], producer_id=7, control=True, transactional=True)
    words = Words()
    replay = ShardReplay("a partition", words, lambda: 1)
    for _ in replay.take(bytes(cut_off + encode_batch([LogRecord(1, 1, b"b", b"2")], base_offset=1)), 0, 2):
        pass
    for _ in replay.finish():
        pass
    assert words.values == {b"b": b"2"}


@on_a_bench
async def test_many_records_are_replayed_over_turns_of_the_loop(bench: Bench) -> None:
    for number in range(2 * RECORDS_A_TURN + 1):
        bench.fill((b"%d" % number, b""))
    await bench.begin(turns=0)
    counts = []
    while not bench.host.is_loaded:
        await bench.turn()
        counts.append(len(bench.words.values))
    assert max(after - before for before, after in pairwise(counts)) == RECORDS_A_TURN
    assert counts[-1] == 2 * RECORDS_A_TURN + 1


@on_a_bench
async def test_of_two_shards_one_is_loaded_after_the_other_and_both_are(bench: Bench) -> None:
    other, words = ShardHost(bench.partition, EPOCH, bench.around), Words()
    bench.fill((b"a", b"1"))
    bench.words.pieces = words.pieces = 3
    await bench.begin(turns=0)
    other.load(words, bench.loaded.append)
    while not bench.host.is_loaded:
        await bench.turn()
    assert not words.values
    await bench.turn(10)
    assert (other.is_loaded, words.values) == (True, {b"a": b"1"})


@on_a_bench
async def test_a_shard_that_begins_in_pieces_is_loaded_with_the_last(bench: Bench) -> None:
    bench.words.pieces = 3
    await bench.begin(turns=1)
    while not bench.words.told:
        await bench.turn()
    for _ in range(3):
        assert not bench.host.is_loaded
        await bench.turn()
    assert bench.host.is_loaded


@on_a_bench
async def test_a_shard_that_resigns_while_it_begins_is_never_loaded_nor_told_of_its_end(bench: Bench) -> None:
    bench.words.pieces = 3
    await bench.begin(turns=1)
    while not bench.words.told:
        await bench.turn()
    bench.host.close()
    await bench.turn(5)
    assert (bench.host.is_loaded, bench.loaded, bench.words.told) == (False, [], ["begin"])


@on_a_bench
async def test_a_shard_ends_in_pieces_and_its_reminders_do_not_come_meanwhile(bench: Bench) -> None:
    bench.words.pieces = 3
    await bench.begin(turns=10)
    bench.host.remind("later", 100, lambda: bench.words.told.append("reminded"))
    bench.host.close()
    bench.timers.pass_ms(1_000)
    await bench.turn(10)
    assert bench.words.told == ["begin", ErrorCode.NOT_COORDINATOR, *(["ended"] * 3)]
    assert not bench.timers.due


@on_a_bench
async def test_a_shard_that_ends_while_it_is_loaded_is_told_nothing(bench: Bench) -> None:
    bench.fill((b"a", b"1"))
    await bench.begin(turns=0)
    bench.host.close()
    await bench.turn(5)
    assert (bench.loaded, bench.words.told, bench.host.is_loaded) == ([], [], False)


@on_a_bench
async def test_a_partition_that_cannot_be_read_for_a_while_is_loaded_in_the_end(bench: Bench) -> None:
    groups = GroupCoordinator(ServerConfig(CONFIG, "host"), MetadataImage(), bench.around)
    bench.fill((b"\0\2\0\1g", None))
    with patch.object(Log, "read", side_effect=CANNOT_READ):
        groups.elected(bench.partition, EPOCH)
        await bench.turn(5)
    assert groups.is_loading
    bench.timers.pass_ms(RELOAD_MS)
    await bench.turn(5)
    assert not groups.is_loading
    assert len(list(groups.shards())) == 1
    groups.resigned(bench.partition, EPOCH)
    assert not bench.timers.due


@on_a_bench
async def test_a_partition_that_is_damaged_is_healed_and_tried_again_ever_more_seldom(bench: Bench) -> None:
    groups = GroupCoordinator(ServerConfig(CONFIG, "host"), MetadataImage(), bench.around)
    bench.fill((b"\0\2\0\1g", None))
    pauses = []
    with patch.object(Log, "read", side_effect=DamagedLogError("/data", 0, 0, "its checksum is wrong")) as read:
        groups.elected(bench.partition, EPOCH)
        for _ in range(9):
            await bench.turn(5)
            [(at_ms, _)] = bench.timers.due.values()
            pauses.append(at_ms - bench.timers.ms)
            bench.timers.pass_ms(pauses[-1])
        await bench.turn(5)
    assert pauses == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]
    assert len(bench.damage) == read.call_count == 10
    bench.timers.pass_ms(60_000)
    await bench.turn(5)
    assert not groups.is_loading


@on_a_bench
async def test_who_resigned_does_not_load_again(bench: Bench) -> None:
    groups = GroupCoordinator(ServerConfig(CONFIG, "host"), MetadataImage(), bench.around)
    bench.fill((b"\0\2\0\1g", None))
    with patch.object(Log, "read", side_effect=CANNOT_READ):
        groups.elected(bench.partition, EPOCH)
        await bench.turn(5)
    groups.resigned(bench.partition, EPOCH)
    bench.timers.pass_ms(10 * RELOAD_MS)
    assert not groups.is_loading
    assert not bench.timers.due


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
