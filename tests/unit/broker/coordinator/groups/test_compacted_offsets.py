"""Offsets of transactions and of others in a log that is compacted, cut off and read anew at any moment: who replays it knows what is
known to who wrote it, and no transaction is open in it but those that are."""

from random import Random
from typing import Any

import pytest

from ottla.broker.coordinator.decisions.effects import Record, Undo
from ottla.broker.coordinator.decisions.groups.committed_offset import CommittedOffset
from ottla.broker.coordinator.decisions.groups.offset_store import OffsetStore, Place
from ottla.broker.coordinator.shard_replay import ShardReplay
from ottla.log.compaction.cleaner import clean
from ottla.log.compaction.manager import CleanerSettings, LogCleaner
from ottla.log.compaction.offsets import CleanedOffsets
from ottla.log.compaction.worker import Outcome
from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.records import EndMarker, encode_batch, end_marker_batch
from ottla.log.records import Record as LogRecord
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter

DIRECTORY = "/data/topic-0"
PRODUCERS = (1, 2, 3)
KEYS = (b"a", b"b", b"c", b"d", b"e")
NOBODY = -1
STEPS = {"plain": 5, "tombstone": 1, "transactional": 5, "marker": 4, "clean": 3, "restart": 1, "forget": 1}


class Shard:
    """What a shard of groups keeps of offsets."""

    def __init__(self) -> None:
        self.store = OffsetStore()

    def replay(self, record: Record, place: int, producer_id: int = NOBODY) -> Undo:
        key = Place(record.key.decode(), 0)
        if record.value is None:
            return self.store.remove("g", key)
        committed = CommittedOffset(int(record.value), 0, "", 0)
        if producer_id == NOBODY:
            return self.store.put("g", key, committed, place)
        return self.store.put_pending(producer_id, "g", key, committed, place)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        self.store.end_transaction(producer_id, is_commit)


class Machine:
    """A log, and a shard that follows what is written to it."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.now_ms = 1_700_000_000_000
        self.config = LogConfig(
            cleanup_policy=("compact",),
            segment_bytes=400,
            min_cleanable_dirty_ratio=0.0,
            delete_retention_ms=rng.choice([0, 5, 50]),
        )
        self.disk = SimulatedDisk(Platter.seeded(seed))
        self.disk.make_directories(DIRECTORY)
        buffer = CleanerSettings(dedupe_buffer_bytes=160 * rng.choice([3, 8, 100]))
        self.cleaner = LogCleaner(self.disk, buffer, CleanedOffsets(self.disk))
        self.log = self.opened()
        self.live, self.place, self.value = Shard(), 0, 0
        self.version = rng.choice([0, 2])
        self.epochs = dict.fromkeys(PRODUCERS, 0)
        self.open: set[int] = set()

    def opened(self, **more: Any) -> Log:
        return Log.open(self.disk, DIRECTORY, TopicPartition("topic", 0), self.config, now_ms=self.now_ms, **more)

    def write(self, *, is_tombstone: bool = False, producer_id: int = NOBODY) -> None:
        keys = self.rng.choices(KEYS, k=self.rng.randrange(1, 3))
        records = []
        for number, key in enumerate(keys):
            self.value += 1
            value = None if is_tombstone else str(self.value).encode()
            records.append(LogRecord(number, self.now_ms, key, value))
        more: dict[str, Any] = {}
        if producer_id != NOBODY:
            epoch = self.epochs[producer_id]
            more = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": 0, "transactional": True}
            self.open.add(producer_id)
        self.log.append_own(encode_batch(records, **more), 0, self.now_ms)
        for each in records:
            assert each.key is not None
            self.place += 1
            self.live.replay(Record(each.key, each.value), self.place, producer_id)

    def mark(self) -> None:
        """The end of a transaction, or a marker that ends none."""
        producer_id, is_commit = self.rng.choice([*PRODUCERS, *self.open]), self.rng.random() < 0.6
        self.epochs[producer_id] += self.version == 2
        batch = end_marker_batch(
            EndMarker(is_commit, 0),
            producer_id=producer_id,
            producer_epoch=self.epochs[producer_id],
            timestamp=self.now_ms,
        )
        self.log.append_own(batch, 0, self.now_ms, transaction_version=self.version)
        self.live.end_transaction(producer_id, is_commit=is_commit)
        self.open.discard(producer_id)

    def clean(self) -> None:
        self.log.flush()
        task = self.cleaner.next_task([self.log], self.now_ms)
        if task is not None:
            assert self.cleaner.install(task, Outcome(result=clean(self.disk, task.job)))
            self.cleaner.record(task)

    def restart(self) -> None:
        end, is_clean = self.log.log_end_offset, self.rng.random() < 0.5
        if is_clean:
            self.log.close()
        else:
            self.log.flush()
        if not is_clean and self.rng.random() < 0.5:
            for name in self.disk.list_directory(DIRECTORY):
                if name.endswith(".snapshot"):
                    self.disk.unlink(f"{DIRECTORY}/{name}")
        self.log = self.opened(recovery_point=end, clean_shutdown=is_clean, high_watermark=end)
        assert self.log.log_end_offset == end

    def step(self) -> None:
        self.now_ms += self.rng.randrange(10)
        (what,) = self.rng.choices(list(STEPS), list(STEPS.values()))
        if what == "marker":
            self.mark()
        elif what == "clean":
            self.clean()
        elif what == "restart":
            self.restart()
        elif what == "forget":
            self.log.producers.expire(self.now_ms + 10**9, 1)
        else:
            producer_id = self.rng.choice(PRODUCERS) if what == "transactional" else NOBODY
            self.write(is_tombstone=what == "tombstone", producer_id=producer_id)
        self.log.set_high_watermark(self.log.log_end_offset)

    def replayed(self) -> Shard:
        shard = Shard()
        places = iter(range(1, 1_000_000))
        replay = ShardReplay("the log", shard, lambda: next(places))
        offset = 0
        while offset < self.log.log_end_offset and (found := self.log.read(offset, 700)).data:
            list(replay.take(bytes(found.data), offset, found.next_offset))
            offset = found.next_offset
        list(replay.finish())
        return shard


@pytest.mark.parametrize("seed", range(20))
def test_who_replays_the_log_knows_what_its_writer_knows(seed: int) -> None:
    machine = Machine(seed)
    for _ in range(80):
        machine.step()
        assert machine.replayed().store.contents() == machine.live.store.contents()
        assert (machine.log.last_stable_offset < machine.log.log_end_offset) == bool(machine.open)
