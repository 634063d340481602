"""A small coordinator: counters kept in an internal topic, as groups and transactions will be.

To count is to take the next number of a key. Its state is loaded from the partition when it is elected, and dropped when it resigns.
"""

from collections.abc import Callable, Iterator

from ottla.broker.broker import Broker
from ottla.broker.internal_topics import SHARE_GROUPS
from ottla.broker.replication.own_appends import OwnAppends
from ottla.broker.replication.own_reads import PartitionReading, log_end
from ottla.broker.replication.partition import Partition
from ottla.log.batch import headers
from ottla.log.records import decode_records
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.timers import Timer

TOPIC = SHARE_GROUPS  # of which there are none yet: nobody else writes there
SLICE_BYTES = 1 << 10
NUMBER_BYTES = 8
REFUSED = -1
RELOAD_MS = 500

OnCounted = Callable[[int], None]
"""Told the number once it is committed; REFUSED if it was, or if nobody knows."""


class Ledger:
    """A broker's part of it: the shards that it leads. A `TopicListener`, which checks what it is told."""

    def __init__(self, broker: Broker, on_loaded: Callable[[int], None]) -> None:
        """``on_loaded`` is told how many keys a slice had."""
        self.shards: dict[int, Shard] = {}
        self._on_loaded = on_loaded
        self._broker = broker
        self._gone: dict[bytes, None] = {}
        broker.replicas.listen(TOPIC, self)

    def elected(self, partition: Partition, leader_epoch: int) -> None:
        assert partition.index not in self.shards, f"{partition} was elected twice"
        assert partition.topic_id not in self._gone, f"{partition} was elected after its deletion"
        self.shards[partition.index] = Shard(self._broker, partition, leader_epoch, self._on_loaded)

    def resigned(self, partition: Partition, leader_epoch: int) -> None:
        shard = self.shards.pop(partition.index, None)
        assert shard is not None, f"{partition} resigned and was not elected"
        assert (shard.partition, shard.leader_epoch) == (partition, leader_epoch), f"another {partition} resigned"
        shard.close()

    def deleted(self, partition: Partition) -> None:
        shard = self.shards.get(partition.index)
        assert shard is None or shard.partition is not partition, f"{partition} was deleted and had not resigned"
        self._gone[partition.topic_id] = None

    def count(self, index: int, key: bytes, on_counted: OnCounted) -> None:
        shard = self.shards.get(index)
        if shard is None:
            on_counted(REFUSED)
        else:
            shard.count(key, on_counted)


class Shard:
    """One partition, from its election to its resignation."""

    def __init__(
        self, broker: Broker, partition: Partition, leader_epoch: int, on_loaded: Callable[[int], None]
    ) -> None:
        self.partition, self.leader_epoch = partition, leader_epoch
        self.numbers: dict[bytes, int] = {}
        self.active = False
        self._again: Timer | None = None
        self._on_loaded = on_loaded
        self._context = context = broker.context
        self._own = OwnAppends(partition, leader_epoch, context.host.clock.wall_ms, context.timers.now_ms)
        self._load()

    def close(self) -> None:
        self.active = False
        self._loading.cancel()
        if self._again is not None:
            self._again.cancel()
        self._own.close()

    def count(self, key: bytes, on_counted: OnCounted) -> None:
        if not self.active:
            on_counted(REFUSED)
            return
        number = self.numbers[key] = self.numbers.get(key, 0) + 1

        def written(offset: int) -> None:
            self.numbers[key] = max(number, self.numbers.get(key, 0))

        def done(error: int) -> None:
            if error in (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
                on_counted(number if error == ErrorCode.NONE else REFUSED)
                return
            if self.active:
                self._load()  # a number may stand in the state that was not written
            on_counted(REFUSED)

        self._own.append([(key, number.to_bytes(NUMBER_BYTES, "big"))], written, done)

    def _load(self) -> None:
        self.active = False
        self.numbers.clear()
        self._loading = PartitionReading(
            self.partition, 0, log_end, self._context.cold_reads, self._take, self._loaded, SLICE_BYTES
        )

    def _take(self, data: bytes, offset: int, next_offset: int) -> None:
        found = dict(numbers_in(data, offset))
        self.numbers.update(found)
        self._on_loaded(len(found))

    def _loaded(self, error: KafkaError | None) -> None:
        self.active = error is None
        if error is not None:
            self._again = self._context.timers.call_later_ms(RELOAD_MS, self._load)


def numbers_in(data: bytes, offset: int) -> Iterator[tuple[bytes, int]]:
    """(key, number) of the records from ``offset`` on."""
    for at, header in headers(data):
        for record in decode_records(data, header, position=at):
            if record.offset >= offset and record.key is not None and record.value is not None:
                yield record.key, int.from_bytes(record.value, "big")
