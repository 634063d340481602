"""A shard's beginning: what is replayed, in which order, over how many turns, and what happens when it cannot be read."""

from itertools import pairwise
from unittest.mock import patch

from ottla.broker.coordinator.coordinator import RELOAD_MS
from ottla.broker.coordinator.decisions.groups.consumer import patterns
from ottla.broker.coordinator.decisions.groups.regexes.resolution import ROUND_PAUSE_MS
from ottla.broker.coordinator.decisions.transactions.shard import TransactionShard
from ottla.broker.coordinator.decisions.transactions.transaction import State, Transaction
from ottla.broker.coordinator.decisions.transactions.transaction_records import record
from ottla.broker.coordinator.group_coordinator import GroupCoordinator
from ottla.broker.coordinator.shard_host import ShardHost
from ottla.broker.coordinator.shard_replay import RECORDS_A_TURN, ShardReplay
from ottla.log.errors import DamagedLogError
from ottla.log.log import Log
from ottla.log.records import Record as LogRecord
from ottla.log.records import encode_batch
from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.views import TopicView
from ottla.runtime.errors import ErrorCode
from ottla.runtime.settings.server import ServerConfig
from tests.unit.broker.coordinator.groups.consumer.consumer_bench import T, join
from tests.unit.broker.coordinator.groups.group_bench import Bench as GroupBench
from tests.unit.broker.coordinator.shard_host_bench import BAD, CANNOT_READ, CONFIG, EPOCH, Bench, Words, on_a_bench
from tests.unit.broker.coordinator.transactions.transaction_bench import T0
from tests.unit.broker.coordinator.transactions.transaction_bench import Bench as TransactionBench


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
async def test_a_shard_of_an_empty_partition_is_loaded_at_once(bench: Bench) -> None:
    """Who had the topic made asks in the next moment, and librdkafka waits three seconds when it is told to come again."""
    await bench.begin(turns=0)
    assert (bench.host.is_loaded, bench.loaded, bench.words.told) == (True, [None], ["begin"])


@on_a_bench
async def test_a_shard_of_an_empty_partition_that_has_much_to_begin_takes_its_turns(bench: Bench) -> None:
    bench.words.pieces = 3
    await bench.begin(turns=0)
    assert not bench.host.is_loaded
    await bench.turn(5)
    assert (bench.host.is_loaded, bench.loaded) == (True, [None])


@on_a_bench
async def test_a_shard_that_begins_in_pieces_is_loaded_with_the_last(bench: Bench) -> None:
    bench.fill((b"a", b"1"))
    bench.words.pieces = 3
    await bench.begin(turns=1)
    while not bench.words.told:
        await bench.turn()
    for _ in range(3):
        assert not bench.host.is_loaded
        await bench.turn()
    assert bench.host.is_loaded


@on_a_bench
async def test_a_shard_that_resigns_while_it_begins_is_never_loaded_and_told_of_its_end(bench: Bench) -> None:
    bench.words.pieces = 3
    await bench.begin(turns=1)
    while not bench.words.told:
        await bench.turn()
    bench.host.close()
    await bench.turn(5)
    assert (bench.host.is_loaded, bench.loaded) == (False, [])
    assert bench.words.told == ["begin", ErrorCode.NOT_COORDINATOR, *(["ended"] * 3)]


@on_a_bench
async def test_markers_of_a_coordinator_that_resigns_while_it_begins_are_sent_no_more(bench: Bench) -> None:
    """The next one sends its own: an older coordinator's are refused, and would be sent again for ever."""
    node = TransactionBench()
    shard = TransactionShard(bench.host, node.settings, node, EPOCH)
    prepared = Transaction(
        producer_id=7, epoch=1, timeout_ms=1, state=State.PREPARE_COMMIT, updated_ms=1, partitions=T0
    )
    for name in ("x", "y"):
        bench.fill(record(name, prepared, 0)[:2])
    assert bench.partition.leader is not None
    bench.partition.leader.appended(bench.log.log_end_offset, 0, stable=True)
    await bench.follower_has_all()
    with patch("ottla.broker.coordinator.decisions.transactions.completing.LOOKED_AT_MAX", 1):
        bench.host.load(shard, bench.loaded.append)
        while not bench.timers.due:
            await bench.turn()
        bench.timers.pass_ms(0)
        (sent,) = node.sent
        bench.host.close()
        await bench.turn(5)
    assert (sent.is_cancelled, bench.loaded) == (True, [])


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
async def test_topics_that_come_while_a_shard_begins_are_found_by_its_expressions(bench: Bench) -> None:
    written, image, delta = GroupBench(), MetadataImage(), MetadataDelta()
    for group in ("g", "h"):
        join(written, "m", None, group=group, subscribed_topic_regex="t.*")
    for each in written.log:
        bench.fill((each.key, each.value))
    groups = GroupCoordinator(ServerConfig(CONFIG, "host"), image, bench.around)
    with patch.object(patterns, "GROUPS_A_TURN", 1):
        groups.elected(bench.partition, EPOCH)
        while not bench.timers.due:
            await bench.turn()
        bench.timers.pass_ms(0)
        assert groups.is_loading
        delta.created_topics[T] = "t"
        image.topics_by_id[T] = image.topics_by_name["t"] = TopicView("t", T, {})
        groups.publish(delta, image)
        await bench.turn(5)
    bench.timers.pass_ms(ROUND_PAUSE_MS)
    bench.timers.pass_ms(0)
    [shard] = groups.shards()
    assert [each.resolved["t.*"].topics for each in shard.consumers] == [{"t"}] * 2


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
