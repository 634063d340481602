"""A log on a simulated disk beside the list of what it must hold.

Steps take one number and make of it what they like; each checks what it can. What no step may change: every record that is read is
one of the list, at its offset; below the end none is missing but what retention or compaction may take; nothing durable is lost.
"""

from collections.abc import Callable
from random import Random

from ottla.log.batch import read_header
from ottla.log.compaction.cleaner import clean
from ottla.log.compaction.manager import CleanerSettings, LogCleaner
from ottla.log.compaction.worker import Outcome
from ottla.log.config import LogConfig
from ottla.log.directories.checkpoints import CLEANER_OFFSETS, RECOVERY_POINTS, MetaProperties
from ottla.log.directories.manager import LogManager, ManagerSettings
from ottla.log.names import TopicPartition
from ottla.log.records import Record, decode_records, encode_batch
from ottla.log.tools.verify import verify
from ottla.runtime.simulation.crash import SimulatedCrash
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter
from ottla.testing.log.offset_checkpoint import OffsetCheckpoint

PARTITION = TopicPartition("flights", 0)
TOPIC_ID = bytes(range(16))
START_MS = 1_700_000_000_000
SETTINGS = ManagerSettings(cluster_id="c", node_id=1)
DELETE_RETENTION_MS = 300
KEYS = 7
TOMBSTONE_EVERY = 6
FOREVER = 1 << 60


class Machine:
    """``records`` are those written and not lost, with what lies below the log start: a power cut may bring it back, until the start that
    was written down says that it is gone (``durable_start``)."""

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
            delete_retention_ms=DELETE_RETENTION_MS,
        )
        self.rng = Random(seed)
        self.now_ms = START_MS
        self.epoch = 0
        self.sequence = 0
        self.records: list[Record] = []
        self.durable = 0  # no power cut takes anything below this
        self.durable_start = 0
        self.written = 0
        self.horizons: dict[int, tuple[int, int]] = {}  # of tombstones: from when on each may go, and must
        self.reopen()

    def reopen(self) -> None:
        """Starts anew on what the disk holds."""
        self.platter.close_sessions()
        self.disk = SimulatedDisk(self.platter)
        self.manager = LogManager(self.disk, ["/data"], self.config, SETTINGS, self.rng)
        self.manager.open_all(self.now_ms)
        self.cleaner = LogCleaner(self.disk, CleanerSettings(), self.manager.checkpoints.cleaned)
        found = self.manager.logs.get(PARTITION)
        if found is not None and found.topic_id is None:
            self.manager.set_aside(found)  # nothing of it was ever synced
            self.durable_start = 0
        self.log = self.manager.get_or_create(PARTITION, self.config, TOPIC_ID, now_ms=self.now_ms)

    # Appending and reading

    def append(self, number: int) -> None:
        self.now_ms += number % 50
        records = self._new_records(1 + number % 3)
        sequence = self.sequence
        self.records += records
        self.sequence += len(records) if number % 5 == 0 else 0
        producer = {"producer_id": 4, "producer_epoch": 0, "base_sequence": sequence} if number % 5 == 0 else {}
        batch = encode_batch([record._replace(offset=i) for i, record in enumerate(records)], **producer)  # type: ignore[arg-type]  # an int each
        info = self.log.append_as_leader(batch, self.epoch, self.now_ms)
        assert (info.first_offset, info.last_offset) == (records[0].offset, records[-1].offset)

    def append_as_follower(self, number: int) -> None:
        data = bytearray()
        for count in range(1 + number % 6):
            gap = number % 4 if self.log.gaps_allowed and count == 2 else 0  # the leader has compacted
            records = self._new_records(1 + count % 2, gap)
            data += encode_batch(records, base_offset=records[0].offset, leader_epoch=self.epoch)
            self.records += records
            self.now_ms += number % 7
        self.log.append_as_follower(bytes(data), self.epoch)

    def _new_records(self, count: int, gap: int = 0) -> list[Record]:
        start = self.records[-1].offset + 1 if self.records else 0
        start = max(start, self.log.log_end_offset) + gap
        self.written += 1
        epoch = (("epoch", str(self.epoch).encode()),)
        return [
            Record(
                start + i, self.now_ms, f"k{(self.written + i) % KEYS}".encode(), self._value(self.written + i), epoch
            )
            for i in range(count)
        ]

    def _value(self, number: int) -> bytes | None:
        return None if number % TOMBSTONE_EVERY == 0 else f"{self.epoch}.{self.written}".encode()

    def read(self, number: int) -> None:
        log = self.log
        offset = log.log_start_offset + number * 7919 % (log.log_end_offset - log.log_start_offset + 1)
        limit = log.log_end_offset if number % 3 else log.high_watermark
        read = log.read(offset, number % 700, limit)
        found = decode(read.data)
        if limit == log.log_end_offset and not log.gaps_allowed:  # a limit may lie in a batch, a batch be empty
            assert bool(found) == (self._next_below(offset, limit) is not None)
        if limit == log.log_end_offset and offset < limit:
            assert read.next_offset > offset, "a reader is never stuck"
        if found:
            assert found == self._between(found[0].offset, found[-1].offset + 1)
            assert found[-1].offset < limit
            assert found[0].offset <= (self._next_below(offset, limit) or found[0].offset)

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

    # Moving its ends

    def truncate(self, number: int) -> None:
        log = self.log
        offset = log.log_end_offset - number % 25
        if offset < log.log_start_offset:
            return
        # A batch that straddles the offset goes whole; where compaction left a gap, the end moves back over it.
        self.durable = min(self.durable, next((r.offset for r in reversed(self.records) if r.offset < offset - 4), 0))
        log.truncate_to(offset)
        end = log.log_end_offset
        assert offset - 4 <= end <= offset or log.gaps_allowed
        self._lost_from(end)
        self.epoch += 1
        self.sequence = self._sequence()

    def _lost_from(self, end: int) -> None:
        self.records = [record for record in self.records if record.offset < end]
        self.horizons = {offset: horizon for offset, horizon in self.horizons.items() if offset < end}
        self.durable = min(self.durable, end)

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
            self._save_points()

    def save_points(self, number: int) -> None:
        """As a node does by the minute, whatever is synced."""
        for _ in range(1 + number % 2):
            self._save_points()

    def _save_points(self) -> None:
        self.manager.checkpoints.save_points()
        if self.durable:  # else a power cut may leave nothing by which the log would be known
            self.durable_start = self.log.log_start_offset

    def move_high_watermark(self, number: int) -> None:
        self.log.set_high_watermark(self.log.high_watermark + number % 20)
        if number % 2:
            self.manager.checkpoints.save_high_watermarks()

    def delete_old(self, number: int) -> None:
        self.now_ms += number % 10_000
        self.manager.delete_old_segments(self.now_ms)
        self.manager.removals.purge(self.now_ms)

    def delete_records(self, number: int) -> None:
        log = self.log
        log.advance_log_start(min(log.log_start_offset + number % 10, log.high_watermark))

    def start_elsewhere(self, number: int) -> None:
        if number % 10 == 0:
            self.log.truncate_fully_and_start_at(self.log.log_end_offset + number % 5)
            self.records, self.durable, self.horizons = [], 0, {}
            self.sequence = 0
            self.epoch += 1
            self.durable_start = 0
            self._save_points()

    # Compaction

    def compact(self, number: int) -> None:
        self.log.set_high_watermark(self.log.log_end_offset)
        self.log.flush()
        self.durable = self.log.log_end_offset
        self.manager.checkpoints.save_points()
        task = self.cleaner.next_task([self.log], self.now_ms)
        if task is None:
            return
        outcome = Outcome(result=clean(self.disk, task.job))
        self.cleaner.foretell(task, outcome)
        assert self.cleaner.install(task, outcome)
        self.cleaner.record(task)
        found = self._all()
        # A cut may have made a segment that was clean the active one: nothing goes from that.
        overdue = {
            offset
            for offset, (_, latest) in self.horizons.items()
            if latest <= self.now_ms and offset < task.end_offset
        }
        assert not overdue & {record.offset for record in found}
        self._check_compacted(found, task.end_offset)
        self.records = found
        self._note_tombstones(task.end_offset, self.now_ms + DELETE_RETENTION_MS)

    def _note_tombstones(self, end: int, latest: int) -> None:
        """Below ``end`` all tombstones have their horizon by now, or get it later (``latest`` says so)."""
        noted = self.now_ms + DELETE_RETENTION_MS
        for record in self._between(0, end):
            if record.value is None:
                before = self.horizons.get(record.offset, (noted, FOREVER))
                self.horizons[record.offset] = before[0], min(before[1], latest)

    def _check_compacted(self, found: list[Record], clean_to: int) -> None:
        """The last record of each key is there, unless it is a tombstone that is due; below ``clean_to`` there is no other."""
        due = {offset for offset, (earliest, _) in self.horizons.items() if earliest <= self.now_ms}
        last = {record.key: record.offset for record in self._between(self.log.log_start_offset, FOREVER)}
        present = {record.offset for record in found}
        assert all(offset in present | due for offset in last.values())
        assert all(last[record.key] in present for record in found), "a deleted value is back"
        assert [record for record in self.records if record.offset in present] == found
        old = [record for record in self.records if record.offset < clean_to]
        last_old = {record.key: record.offset for record in old}
        assert all(last_old[record.key] == record.offset for record in found if record.offset < clean_to)

    # Stopping

    def stop(self, number: int) -> None:
        self.manager.close()
        findings = verify(self.disk, self.log.directory, deep=False)
        assert [str(finding) for finding in findings if finding.fault] == []
        self._expect_all_after(self.reopen)

    def kill(self, number: int) -> None:
        if number % 4 == 3:
            self._lose_points()
        self._expect_all_after(self.reopen)

    def _lose_points(self) -> None:
        """The file is gone, as a repair of the file system may leave it: all of each log is recovered."""
        disk, path = SimulatedDisk(self.platter), f"/data/{RECOVERY_POINTS}"
        if disk.exists(path):
            disk.unlink(path)
            disk.sync_directory("/data")

    def _expect_all_after(self, restart: Callable[[], None]) -> None:
        end = self.log.log_end_offset
        restart()
        assert self.log.log_end_offset == end
        self.durable = min(self.durable, end)
        self.check()
        self.sequence = self._sequence()

    def power_cut(self, number: int) -> None:
        self.platter.power_loss()
        self._recover()
        self.check()

    def _recover(self) -> None:
        self.reopen()
        end = self.log.log_end_offset
        assert end >= self.durable
        assert self.log.log_start_offset >= self.durable_start, "what was deleted is back"
        self._lost_from(end)
        self.epoch += 1
        self.sequence = self._sequence()

    def crash_in_a_step(self, number: int) -> None:
        """The power goes in one of the disk operations of another step, and perhaps in one of the recovery."""
        action = (Machine.append_as_follower, Machine.append, Machine.truncate, Machine.roll, Machine.flush)[number % 5]
        if self._crashes(action, number // 5, 1 + number % 13):
            self.check()

    def crash_in_retention(self, number: int) -> None:
        if self._crashes(Machine.delete_old, number, 1 + number % 17):
            self.check()

    def crash_in_compaction(self, number: int) -> None:
        """Group by group the new takes the old's place: what is there lies between the two."""
        if not self._crashes(Machine.compact, number, 1 + number % 61):
            return
        found = self._all()
        self._check_compacted(found, 0)
        self.records = found
        self._note_tombstones(FOREVER, FOREVER)
        self.check()

    def _crashes(self, action: "Callable[[Machine, int], None]", number: int, operation: int) -> bool:
        self.platter.crash_at_operation(operation)
        try:
            action(self, number)
        except SimulatedCrash:
            self.platter.power_loss()
            if number % 4 == 3:
                self._lose_points()
            self._recover()
            return True
        self.platter.cancel_crash()
        return False

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

    def check(self) -> None:
        """Everything there is."""
        log = self.log
        found = self._all()
        assert found == self._between(log.log_start_offset, log.log_end_offset)
        for record in self.records:
            if record.offset >= log.log_start_offset:
                assert log.epochs.epoch_for_offset(record.offset) == int(record.headers[0][1] or b"")
        assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
        assert log.size_bytes == sum(segment.size for segment in log.segments)
        clean_to = OffsetCheckpoint(self.disk, f"/data/{CLEANER_OFFSETS}").read().get(PARTITION, 0)
        keys = [record.key for record in found if record.offset < clean_to]
        assert len(keys) == len(set(keys)), "the cleaner's checkpoint is ahead of what is clean"


def decode(data: bytes) -> list[Record]:
    """The records of whole batches."""
    found, at = list[Record](), 0
    while at < len(data):
        header = read_header(data, at)
        found += decode_records(data, header, position=at)
        at += header.size_bytes
    return found


Action = Callable[[Machine, int], None]

_EVERYDAY = [Machine.append] * 6 + [Machine.append_as_follower] * 4 + [Machine.read] * 5 + [Machine.find_time]
_MOVES = [Machine.move_high_watermark] * 2 + [Machine.roll, Machine.new_epoch, Machine.flush, Machine.truncate]
_STOPS = [Machine.stop, Machine.kill, Machine.power_cut, Machine.crash_in_a_step]
DELETING: list[Action] = [
    *(_EVERYDAY + _MOVES + _STOPS),
    *(Machine.delete_old, Machine.delete_records, Machine.start_elsewhere, Machine.crash_in_retention),
    Machine.save_points,
]
COMPACTING: list[Action] = [
    *(_EVERYDAY + _MOVES + _STOPS),
    Machine.compact,
    Machine.compact,
    Machine.crash_in_compaction,
]
