"""Random histories of a log against a plain list: append, read, cut, roll, forget, compact, stop, kill, power cut.

``OTTLA_MODEL_STEPS`` sets how many steps are taken in all (20,000 unless it says otherwise; CI takes 100,000).
"""

import os
from collections.abc import Callable
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.log.batch import read_header
from ottla.log.checkpoints import MetaProperties
from ottla.log.cleaner import clean
from ottla.log.cleaner_manager import CleanerSettings, LogCleaner
from ottla.log.cleaner_worker import Outcome
from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.log.manager import LogManager, ManagerSettings
from ottla.log.names import TopicPartition
from ottla.log.records import Record, decode_records, encode_batch
from ottla.log.verify import verify
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter

PARTITION = TopicPartition("flights", 0)
TOPIC_ID = bytes(range(16))
START_MS = 1_700_000_000_000
STEPS = int(os.environ.get("OTTLA_MODEL_STEPS", "20000"))
STEPS_PER_HISTORY = 120
SETTINGS = ManagerSettings(cluster_id="c", node_id=1)


class Machine:
    """A log on a simulated disk beside the list of what it must hold. Steps take one number and make of it what they like."""

    def __init__(self, seed: int, compacted: bool) -> None:
        self.platter = Platter.seeded(seed)
        self.disk = SimulatedDisk(self.platter)
        self.disk.make_directories("/data")
        MetaProperties("c", 1, bytes(15) + b"\x09").write(self.disk, "/data")
        self.disk.sync_directory("/")
        self.config = LogConfig(
            segment_bytes=500,
            index_interval_bytes=90,
            segment_index_bytes=120,
            segment_ms=400,
            retention_ms=-1 if compacted else 1500,
            retention_bytes=-1 if compacted else 4000,
            file_delete_delay_ms=100,
            cleanup_policy=("compact",) if compacted else ("delete",),
            min_cleanable_dirty_ratio=0.0,
        )
        self.rng = Random(seed)
        self.now_ms = START_MS
        self.epoch = 0
        self.sequence = 0
        self.records: list[Record] = []  # with what lies below the log start: a power cut may bring it back
        self.durable = 0  # no power cut takes anything below this
        self.written = 0
        self.reopen()

    def reopen(self) -> None:
        self.platter.close_sessions()
        self.disk = SimulatedDisk(self.platter)
        self.manager = LogManager(self.disk, ["/data"], self.config, SETTINGS, self.rng)
        self.manager.open_all(self.now_ms)
        self.cleaner = LogCleaner(self.disk, CleanerSettings())
        found = self.manager.logs.get(PARTITION)
        if found is not None and found.topic_id is None:
            self.manager.set_aside(found)  # nothing of it was ever synced
        self.log = self.manager.get_or_create(PARTITION, self.config, TOPIC_ID, now_ms=self.now_ms)

    # Steps

    def append(self, number: int) -> None:
        self.now_ms += number % 50
        records = self._new_records(1 + number % 3)
        producer = {"producer_id": 4, "producer_epoch": 0, "base_sequence": self.sequence} if number % 5 == 0 else {}
        self.sequence += len(records) if producer else 0
        batch = encode_batch([record._replace(offset=i) for i, record in enumerate(records)], **producer)  # type: ignore[arg-type]
        info = self.log.append_as_leader(batch, self.epoch, self.now_ms)
        assert (info.first_offset, info.last_offset) == (records[0].offset, records[-1].offset)
        self.records += records

    def append_as_follower(self, number: int) -> None:
        data = bytearray()
        for count in range(1 + number % 6):
            records = self._new_records(1 + count % 2)
            data += encode_batch(records, base_offset=records[0].offset, leader_epoch=self.epoch)
            self.records += records
            self.now_ms += number % 7
        self.log.append_as_follower(bytes(data), self.epoch)

    def _new_records(self, count: int) -> list[Record]:
        start = self.records[-1].offset + 1 if self.records else 0
        start = max(start, self.log.log_end_offset)
        self.written += 1
        return [
            Record(
                start + i, self.now_ms, f"k{(self.written + i) % 7}".encode(), f"{self.epoch}.{self.written}".encode()
            )
            for i in range(count)
        ]

    def read(self, number: int) -> None:
        log = self.log
        offset = log.log_start_offset + number * 7919 % (log.log_end_offset - log.log_start_offset + 1)
        limit = log.log_end_offset if number % 3 else log.high_watermark
        read = log.read(offset, number % 700, limit)
        found = decode(read.data)
        if limit == log.log_end_offset and not log.gaps_allowed:  # a limit may lie in a batch, a batch be empty
            assert bool(found) == (self._next_below(offset, limit) is not None)
        if found:
            assert found == self._between(found[0].offset, found[-1].offset + 1)
            assert found[-1].offset < limit
            if self._next_below(offset, limit) is not None:
                assert found[0].offset <= (self._next_below(offset, limit) or 0)

    def _next_below(self, offset: int, limit: int) -> int | None:
        return next((record.offset for record in self.records if offset <= record.offset < limit), None)

    def find_time(self, number: int) -> None:
        timestamp = self.now_ms - number
        found = self.log.offset_for_timestamp(timestamp)
        start = self.log.log_start_offset
        expected = [
            record.offset for record in self.records if record.timestamp >= timestamp and record.offset >= start
        ]
        assert (found.offset if found else None) == (expected[0] if expected else None)

    def truncate(self, number: int) -> None:
        log = self.log
        offset = log.log_end_offset - number % 25
        if offset < log.log_start_offset:
            return
        log.truncate_to(offset)
        end = log.log_end_offset
        assert offset - 4 <= end <= offset or log.gaps_allowed
        self.records = [record for record in self.records if record.offset < end]
        self.durable = min(self.durable, end)
        self.epoch += 1
        self.sequence = self._sequence()

    def _sequence(self) -> int:
        entry = self.log.producers.entry(4)
        return entry.next_sequence if entry is not None else 0

    def roll(self, number: int) -> None:
        self.log.roll()

    def new_epoch(self, number: int) -> None:
        self.epoch += 1

    def flush(self, number: int) -> None:
        self.log.flush()
        self.durable = self.log.log_end_offset
        if number % 2:
            self.manager.checkpoint_recovery_points()

    def move_high_watermark(self, number: int) -> None:
        self.log.set_high_watermark(self.log.high_watermark + number % 20)
        if number % 2:
            self.manager.checkpoint_high_watermarks()

    def delete_old(self, number: int) -> None:
        self.now_ms += number
        self.manager.delete_old_segments(self.now_ms)
        self.manager.purge(self.now_ms)

    def delete_records(self, number: int) -> None:
        log = self.log
        log.advance_log_start(min(log.log_start_offset + number % 10, log.high_watermark))

    def start_elsewhere(self, number: int) -> None:
        if number % 10 == 0:
            self.log.truncate_fully_and_start_at(self.log.log_end_offset + number % 5)
            self.records, self.durable = [], 0
            self.sequence = 0
            self.epoch += 1
            self.manager.checkpoint_recovery_points()

    def compact(self, number: int) -> None:
        self.log.set_high_watermark(self.log.log_end_offset)
        self.log.flush()
        self.durable = self.log.log_end_offset
        self.manager.checkpoint_recovery_points()
        task = self.cleaner.next_task([self.log], self.now_ms)
        if task is None:
            return
        assert self.cleaner.install(task, Outcome(result=clean(self.disk, task.job)))
        self.cleaner.record(task)
        found = self._all()
        last = {record.key: record.offset for record in self._between(self.log.log_start_offset, 1 << 60)}
        present = {record.offset for record in found}
        assert all(offset in present for offset in last.values())
        assert [record for record in self.records if record.offset in present] == found
        self.records = found

    def stop(self, number: int) -> None:
        self.manager.close()
        findings = verify(self.disk, self.log.directory, deep=False)
        assert [str(finding) for finding in findings if finding.fault] == []
        self._expect_all_after(self.reopen)

    def kill(self, number: int) -> None:
        self._expect_all_after(self.reopen)

    def _expect_all_after(self, restart: Callable[[], None]) -> None:
        end = self.log.log_end_offset
        restart()
        assert self.log.log_end_offset == end
        self.durable = min(self.durable, end)
        self._check_all()
        self.sequence = self._sequence()

    def power_cut(self, number: int) -> None:
        self.platter.power_loss()
        self.reopen()
        log = self.log
        end = log.log_end_offset
        assert end >= self.durable
        self.records = [record for record in self.records if record.offset < end]
        self._check_all()
        self.durable = min(self.durable, end)
        self.epoch += 1
        self.sequence = self._sequence()

    # Comparing

    def _between(self, start: int, end: int) -> list[Record]:
        return [record for record in self.records if start <= record.offset < end]

    def _all(self) -> list[Record]:
        log, found = self.log, list[Record]()
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            read = log.read(offset, 600)
            found += decode(read.data)
            assert read.next_offset > offset
            offset = read.next_offset
        return [record for record in found if record.offset >= log.log_start_offset]

    def _check_all(self) -> None:
        log = self.log
        assert self._all() == self._between(log.log_start_offset, log.log_end_offset)
        for record in self.records:
            if record.offset >= log.log_start_offset:
                assert log.epochs.epoch_for_offset(record.offset) == int((record.value or b"").split(b".")[0])
        assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
        assert log.size_bytes == sum(segment.size for segment in log.segments)


def decode(data: bytes) -> list[Record]:
    found, at = list[Record](), 0
    while at < len(data):
        header = read_header(data, at)
        found += decode_records(data, header, position=at)
        at += header.size_bytes
    return found


EVERYDAY = [Machine.append] * 6 + [Machine.append_as_follower] * 4 + [Machine.read] * 5 + [Machine.find_time]
MOVES = [Machine.move_high_watermark] * 2 + [Machine.roll, Machine.new_epoch, Machine.flush, Machine.truncate]
STOPS = [Machine.stop, Machine.kill, Machine.power_cut]
DELETING = EVERYDAY + MOVES + STOPS + [Machine.delete_old, Machine.delete_records, Machine.start_elsewhere]
COMPACTING = EVERYDAY + MOVES + STOPS + [Machine.compact]


@given(
    seed=st.integers(0, 2**32),
    compacted=st.booleans(),
    steps=st.lists(st.integers(0, 29_999), min_size=STEPS_PER_HISTORY, max_size=STEPS_PER_HISTORY),
)
@settings(
    max_examples=max(1, STEPS // STEPS_PER_HISTORY),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
def test_a_log_is_the_list_of_what_was_appended(seed: int, compacted: bool, steps: list[int]) -> None:
    machine = Machine(seed, compacted)
    actions = COMPACTING if compacted else DELETING
    for step in steps:
        actions[step % len(actions)](machine, step // len(actions))
    machine._check_all()


def test_logs_are_alike_whatever_they_were_made_with() -> None:
    """The machine itself: two with the same seed go the same way."""
    ends = []
    for _ in range(2):
        machine = Machine(5, False)
        rng = Random(5)
        for _ in range(200):
            step = rng.randrange(30_000)
            DELETING[step % len(DELETING)](machine, step // len(DELETING))
        ends.append((machine.log.log_end_offset, machine.platter.operations))
    assert ends[0] == ends[1]
    assert isinstance(machine.log, Log)
