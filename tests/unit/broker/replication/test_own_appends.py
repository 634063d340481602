"""What a broker writes by itself: what shares a batch, who is told what, and when."""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from ottla.broker.replication import appending, own_appends
from ottla.broker.replication.decisions.replica import BrokerStanding
from ottla.broker.replication.durability import Durability
from ottla.broker.replication.feeding import follower_fetched
from ottla.broker.replication.own_appends import OwnAppends
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.partition_services import PartitionServices
from ottla.broker.replication.purgatory import WakeQueue
from ottla.log.batch import headers
from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.records import decode_records
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter
from ottla.runtime.sync_later import SyncLater

BROKERS = {broker: BrokerStanding(broker * 10, False, False) for broker in (1, 2)}
NAME = TopicPartition("__consumer_offsets", 0)
EPOCH = 5
WALL_MS = 1_000_000


class Bench:
    """A partition that broker 1 leads and broker 2 follows, and what was told of the appends, in order."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.platter = Platter.seeded(1)
        self.disk = SimulatedDisk(self.platter)
        self.disk.make_directories(f"/data/{NAME}")
        config = LogConfig(max_message_bytes=400, min_insync_replicas=2)
        self.log = Log.open(self.disk, f"/data/{NAME}", NAME, config, now_ms=0)
        services = PartitionServices(1, WakeQueue(loop), Durability(SyncLater()), lambda: 0, lambda *_: None)
        self.partition = Partition(NAME.topic, 0, b"C" * 16, self.log, services)
        self.lead(EPOCH)
        self.own = OwnAppends(self.partition, EPOCH, lambda: WALL_MS, lambda: 0)
        self.told: list[tuple[str, str, int]] = []

    def lead(self, epoch: int, isr: tuple[int, ...] = (1, 2), replicas: tuple[int, ...] = (1, 2)) -> None:
        self.partition.lead(
            1,
            leader_epoch=epoch,
            partition_epoch=self.partition.partition_epoch + 1,
            isr=isr,
            replicas=replicas,
            brokers=BROKERS,
            lag_time_max_ms=30_000,
            now_ms=0,
        )

    def follow(self, epoch: int) -> None:
        self.partition.follow(
            2,
            leader_epoch=epoch,
            partition_epoch=self.partition.partition_epoch + 1,
            isr=(1, 2),
            replicas=(1, 2),
            backoff_max_ms=1_000,
        )

    def append(self, name: str, *values: bytes, on_done: Callable[[int], None] | None = None) -> None:
        def written(offset: int) -> None:
            self.told.append((name, "written", offset))

        def done(error: int) -> None:
            self.told.append((name, "done", error))
            if on_done is not None:
                on_done(error)

        self.own.append([(name.encode(), value) for value in values], written, done)

    def note(self, name: str, what: str, value: int) -> None:
        self.told.append((name, what, value))

    def turn(self) -> None:
        """The loop's."""
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def follower_has(self, offset: int) -> None:
        follower_fetched(self.partition, 2, 20, offset, None, 0)

    def batches(self) -> list[list[tuple[bytes | None, bytes | None]]]:
        data = self.log.read(0, 1 << 20).data
        return [
            [(record.key, record.value) for record in decode_records(data, header, position=at)]
            for at, header in headers(data)
        ]


@pytest.fixture
def bench() -> Iterator[Bench]:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)

    async def make() -> Bench:
        return Bench(loop)

    made = loop.run_until_complete(make())
    yield made
    made.log.abandon()
    loop.close()


def within(bench: Bench, *calls: Callable[[], None]) -> None:
    """In one turn of the loop."""
    for call in calls:
        bench.loop.call_soon(call)
    bench.turn()


def test_appends_of_one_turn_share_a_batch_and_each_hears_of_its_own_records(bench: Bench) -> None:
    within(bench, lambda: bench.append("a", b"1", b"2"), lambda: bench.append("b", b"3"))
    bench.turn()
    assert bench.batches() == [[(b"a", b"1"), (b"a", b"2"), (b"b", b"3")]]
    assert bench.told == [("a", "written", 0), ("b", "written", 2)]


def test_who_appended_is_told_when_the_replicas_in_sync_have_it(bench: Bench) -> None:
    within(bench, lambda: bench.append("a", b"1"))
    bench.turn()
    within(bench, lambda: bench.append("b", b"2"))
    bench.turn()
    bench.told.clear()
    bench.follower_has(1)
    assert bench.told == [("a", "done", ErrorCode.NONE)]
    bench.follower_has(2)
    assert bench.told[1:] == [("b", "done", ErrorCode.NONE)]


def test_of_one_replica_it_is_told_written_before_it_is_told_done(bench: Bench) -> None:
    bench.log.configure(LogConfig(max_message_bytes=400, min_insync_replicas=1))
    bench.lead(EPOCH, isr=(1,), replicas=(1,))
    within(bench, lambda: bench.append("a", b"1"), lambda: bench.append("b", b"2"))
    bench.turn()
    assert bench.told == [
        ("a", "written", 0),
        ("b", "written", 1),
        ("a", "done", ErrorCode.NONE),
        ("b", "done", ErrorCode.NONE),
    ]


def test_what_fits_in_no_batch_is_refused_alone(bench: Bench) -> None:
    within(
        bench,
        lambda: bench.append("a", bytes(100)),
        lambda: bench.append("b", bytes(500)),
        lambda: bench.append("c", bytes(100)),
        lambda: bench.append("d", bytes(300)),
    )
    bench.turn()
    assert [[key for key, _ in batch] for batch in bench.batches()] == [[b"a"], [b"c"], [b"d"]]
    assert ("b", "done", ErrorCode.MESSAGE_TOO_LARGE) in bench.told
    assert [name for name, what, _ in bench.told if what == "written"] == ["a", "c", "d"]


def test_too_few_replicas_in_sync_refuse_before_anything_is_written(bench: Bench) -> None:
    bench.lead(EPOCH, isr=(1,))
    within(bench, lambda: bench.append("a", b"1"))
    bench.turn()
    assert bench.told == [("a", "done", ErrorCode.NOT_ENOUGH_REPLICAS)]
    assert bench.batches() == []


def test_a_full_disk_is_told_and_the_next_append_may_succeed(bench: Bench) -> None:
    room, bench.platter.capacity_bytes = bench.platter.capacity_bytes, 0
    within(bench, lambda: bench.append("a", b"1"))
    bench.turn()
    assert bench.told == [("a", "done", ErrorCode.KAFKA_STORAGE_ERROR)]
    bench.platter.capacity_bytes = room
    bench.log.root.writable = True  # as the check of free space does
    within(bench, lambda: bench.append("b", b"2"))
    bench.turn()
    assert bench.told[1:] == [("b", "written", bench.log.log_end_offset - 1)]


def test_what_cannot_be_written_is_undone_the_last_first_before_anybody_is_told(bench: Bench) -> None:
    bench.log.configure(LogConfig(max_message_bytes=200, min_insync_replicas=2))
    bench.lead(EPOCH, isr=(1,))

    def append(name: str) -> None:
        written, done = partial(bench.note, name, "written"), partial(bench.note, name, "done")
        bench.own.append([(b"k", bytes(60))], written, done, partial(bench.note, name, "undone", 0))

    within(bench, *(partial(append, name) for name in ("a", "b", "c")))
    bench.turn()
    assert [each[:2] for each in bench.told] == [
        *((name, "undone") for name in ("c", "b", "a")),
        *((name, "done") for name in ("a", "b", "c")),
    ]


def test_a_resignation_fails_what_is_written_and_not_committed(bench: Bench) -> None:
    within(bench, lambda: bench.append("a", b"1"))
    bench.turn()
    bench.follow(EPOCH + 1)
    assert bench.told == [("a", "written", 0), ("a", "done", ErrorCode.NOT_LEADER_OR_FOLLOWER)]


def test_an_append_of_an_earlier_epoch_is_refused_though_the_leader_is_the_same(bench: Bench) -> None:
    bench.lead(EPOCH + 1)
    within(bench, lambda: bench.append("a", b"1"))
    bench.turn()
    assert bench.told == [("a", "done", ErrorCode.NOT_LEADER_OR_FOLLOWER)]


def test_closing_fails_what_waits_and_what_comes_later_each_once(bench: Bench) -> None:
    within(bench, lambda: bench.append("a", b"1"))
    bench.turn()
    within(bench, lambda: bench.append("b", b"2"), bench.own.close, lambda: bench.append("c", b"3"))
    bench.turn()
    bench.follower_has(1)  # it was committed after all, and nobody is told twice
    refused = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert bench.told == [("a", "written", 0), *((name, "done", refused) for name in ("a", "b", "c"))]
    assert len(bench.batches()) == 1


def test_who_fails_at_hearing_of_an_append_keeps_nobody_else_from_it(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(error: int) -> None:
        raise RuntimeError("a mistake")

    within(bench, lambda: bench.append("a", b"1", on_done=fail), lambda: bench.append("b", b"2"))
    bench.turn()
    bench.follower_has(2)
    assert ("b", "done", ErrorCode.NONE) in bench.told
    assert "our mistake" in caplog.text


def test_an_append_made_when_another_is_done_goes_into_the_next_batch(bench: Bench) -> None:
    within(bench, lambda: bench.append("a", b"1", on_done=lambda _: bench.append("b", b"2")))
    bench.turn()
    within(bench, lambda: bench.follower_has(1))
    bench.turn()
    assert [[key for key, _ in batch] for batch in bench.batches()] == [[b"a"], [b"b"]]


def test_nobody_is_told_of_a_batch_while_a_later_one_may_still_be_undone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What he then does would stand on what is undone."""
    bench.log.configure(LogConfig(max_message_bytes=200, min_insync_replicas=1))
    bench.lead(EPOCH, isr=(1,), replicas=(1,))
    append_own = appending.append_own

    def of_the_first_batch_alone(*args: Any) -> Any:
        if bench.log.log_end_offset:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no room")
        return append_own(*args)

    monkeypatch.setattr(own_appends, "append_own", of_the_first_batch_alone)

    def append(name: str) -> None:
        written, done = partial(bench.note, name, "written"), partial(bench.note, name, "done")
        bench.own.append([(b"k", bytes(80))], written, done, partial(bench.note, name, "undone", 0))

    within(bench, partial(append, "a"), partial(append, "b"))
    bench.turn()
    assert bench.told == [
        ("b", "undone", 0),
        ("a", "written", 0),
        ("a", "done", ErrorCode.NONE),
        ("b", "done", ErrorCode.KAFKA_STORAGE_ERROR),
    ]


def test_a_batch_whose_failure_ends_the_epoch_is_undone_before_it_is_told(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_appends, "append_own", partial(_fails_and_ends, bench))
    done, written = partial(bench.note, "a", "done"), partial(bench.note, "a", "written")
    within(bench, lambda: bench.own.append([(b"a", b"1")], written, done, undo=lambda: bench.note("a", "undone", 0)))
    bench.turn()
    assert bench.told == [("a", "undone", 0), ("a", "done", ErrorCode.KAFKA_STORAGE_ERROR)]


def test_an_append_whose_failure_ends_the_epoch_is_refused_and_not_told_of(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_appends, "append_own", partial(_fails_and_ends, bench))
    told = partial(bench.note, "a", "told")
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        bench.own.append_now(bytearray(), told, told)
    assert not bench.told


def _fails_and_ends(bench: Bench, *_: Any) -> None:
    """The directory fails: whoever leads there is told to end before the append is."""
    bench.own.close()
    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)


def test_what_was_written_before_the_epoch_ended_under_the_next_batch_is_told_so_first(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = b"x" * 200  # two do not fit in one batch
    send, sent = appending.append_own, list[int]()

    def second_fails(*values: Any) -> Any:
        sent.append(1)
        return send(*values) if len(sent) == 1 else _fails_and_ends(bench)

    monkeypatch.setattr(own_appends, "append_own", second_fails)
    within(bench, lambda: bench.append("a", large), lambda: bench.append("b", large))
    bench.turn()
    assert bench.told == [
        ("a", "written", 0),
        ("a", "done", ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ("b", "done", ErrorCode.KAFKA_STORAGE_ERROR),
    ]
