"""A log's life in which one operation of the disk fails, and what must be true of it then and after every kind of end.

A step that is refused (StorageError, and nothing else) leaves the log as it was, or for a truncation somewhere between; tried
again it works, unless the disk itself failed. What is in memory is what the next start finds.
"""

import errno
from collections.abc import Callable
from contextlib import suppress
from random import Random

import msgspec

from ottla.log.batch import read_header
from ottla.log.compaction.cleaner import clean
from ottla.log.compaction.manager import CleanerSettings, LogCleaner
from ottla.log.compaction.worker import Outcome
from ottla.log.config import LogConfig
from ottla.log.directories.checkpoints import MetaProperties
from ottla.log.directories.manager import LogManager, ManagerSettings
from ottla.log.directories.roots import LogDirectoryError
from ottla.log.errors import StorageError
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.records import EndMarker, Record, decode_records, encode_batch, end_marker_batch
from ottla.log.segments.transactions import AbortedTransaction
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import FAILS_WITH, Platter

PARTITION = TopicPartition("flights", 0)
TOPIC_ID = bytes(range(16))
NOW_MS = 1_700_000_000_000
PRODUCER_ID = 7
LARGE, SMALL = 500, 20
MARKER = b"marker"
NEVER = 2**63
LASTS = 4
"""So many operations in a row fail, every other time."""
SEGMENT_BYTES = 2000
CONFIG = LogConfig(
    segment_bytes=SEGMENT_BYTES,
    index_interval_bytes=600,
    retention_bytes=2 * SEGMENT_BYTES,
    file_delete_delay_ms=1000,
)
ENDINGS = ("close", "kill", "power")

EVERY = {errno.EMFILE: 1, errno.ENOSPC: 1, errno.EIO: 3}
"""Which of them are tried: after EIO a directory is offline, so less can go wrong."""


class DirectoryLost(Exception):
    """The disk failed for good: the log is offline, as it should be."""


class Trial:
    """One life. ``present``: what was taken and not cut off, by offset."""

    def __init__(self, number: int, ending: str) -> None:
        self.number = number
        self.ending = ending
        self.platter = formatted(number)
        self.present: dict[int, bytes | None] = {}
        self.next_offset = 0
        self.first = 0
        self.synced = 0
        self.sequence = 0
        self.epoch = 0
        self.refused = 0
        self.keys = 0
        self.cleaned_to = 0
        self.cut_to = NEVER  # while it is being cut: how far it may be when it is given up
        self.topic_id = TOPIC_ID
        self.aborted: list[AbortedTransaction] = []
        self.unsure_aborted: AbortedTransaction | None = None
        self.unsure: dict[int, bytes | None] = {}  # was refused, and may be there after a kill
        self.manager = open_manager(self.platter)
        self.log: Log

    def begin(self, config: LogConfig = CONFIG) -> None:
        def create() -> None:
            self.log = self.manager.get_or_create(PARTITION, config, self.topic_id, now_ms=NOW_MS)

        self.attempt(create, self.no_log_yet)

    def no_log_yet(self) -> None:
        assert PARTITION not in self.manager.logs

    # Steps

    def attempt(self, action: Callable[[], object], after_refusal: Callable[[], object] | None = None) -> object:
        while True:
            try:
                return action()
            except StorageError:
                self.after_refusal(after_refusal or self.check)

    def after_refusal(self, check: Callable[[], object]) -> None:
        self.refused += 1
        assert self.refused <= 2 * LASTS + 1, "no more operations failed"
        root = self.manager.roots[0]
        if root.failure is not None:
            raise DirectoryLost
        root.set_full(False)
        if not self.half_done:
            check()

    @property
    def half_done(self) -> bool:
        """It has to be read anew, and that failed too: nothing can be said of it."""
        log = self.manager.logs.get(PARTITION)
        return log is not None and log.half_done

    def append(self, count: int = 1, size: int = LARGE, *, leads: bool = True) -> None:
        for _ in range(count):
            self.append_one(size, leads)

    def append_one(self, size: int, leads: bool) -> None:
        value = f"{self.epoch:02}:{self.next_offset:06}:".encode().ljust(size, b"v")
        while True:
            try:
                self._append(value, leads)
                break
            except StorageError:
                self.unsure = {self.next_offset: value}
                self.after_refusal(self.check)
                if self.number % 2:  # something smaller may still fit into the segment
                    value = value[:SMALL]
        self.present[self.next_offset] = value
        self.next_offset += 1
        self.sequence += 1
        self.log.set_high_watermark(self.next_offset)

    def _append(self, value: bytes, leads: bool, offset: int | None = None) -> None:
        offset = self.next_offset if offset is None else offset
        key = f"{offset % self.keys}".encode() if self.keys else None
        batch = encode_batch(
            [Record(offset, NOW_MS + offset % 1000, key, value)],
            base_offset=offset,
            leader_epoch=self.epoch,
            producer_id=PRODUCER_ID,
            producer_epoch=0,
            base_sequence=self.sequence,
        )
        if leads:
            self.log.append_as_leader(rebased(batch, offset), self.epoch, NOW_MS)
        else:
            self.log.append_as_follower(batch, self.epoch)

    def jump_to(self, offset: int) -> None:
        """A follower of a compacted log is given a batch from far on."""

        def append() -> None:
            self._append(b"far", leads=False, offset=offset)

        self.unsure = {offset: b"far"}
        self.attempt(append)
        self.present[offset] = b"far"
        self.next_offset = offset + 1
        self.sequence += 1
        self.log.set_high_watermark(self.next_offset)

    def truncate_to(self, offset: int) -> None:
        before = dict(self.present)
        self.synced = self.cut_to = min(self.synced, offset)

        def partly() -> None:
            end = self.log.log_end_offset
            assert offset <= end <= self.next_offset
            self._cut(before, end)
            self.check()

        self.attempt(lambda: self.log.truncate_to(offset), partly)
        self._cut(before, offset)
        self.cut_to = NEVER

    def _cut(self, before: dict[int, bytes | None], end: int) -> None:
        self.present = {offset: value for offset, value in before.items() if offset < end}
        self.next_offset = end
        self.sequence = sum(value not in (b"aborted", MARKER) for value in self.present.values())

    def restart_at(self, offset: int) -> None:
        """Everything goes."""
        before = dict(self.present)
        self.synced = self.cut_to = 0

        def partly() -> None:
            self.first = self.log.log_start_offset
            self._cut({offset: before[offset] for offset in before if offset >= self.first}, self.log.log_end_offset)
            self.check()

        self.attempt(lambda: self.log.truncate_fully_and_start_at(offset), partly)
        self.present, self.next_offset, self.first, self.synced = {}, offset, offset, offset
        self.sequence, self.cut_to = 0, NEVER

    def flush(self) -> None:
        self.attempt(self.log.flush)
        self.synced = self.next_offset
        for _ in range(LASTS + 1):
            self.manager.checkpoints.save_points()
            self.after_background()

    def after_background(self) -> None:
        """What runs on timers says nothing; it may have met the failure."""
        root = self.manager.roots[0]
        if root.failure is not None:
            raise DirectoryLost
        root.set_full(False)
        if not self.half_done:
            self.check()

    def retain(self) -> None:
        def some_deleted() -> None:
            self.first = self.log.log_start_offset
            self.check()

        self.attempt(lambda: self.log.delete_old_segments(NOW_MS), some_deleted)
        self.first = self.log.log_start_offset

    def delete_records(self, offset: int) -> None:
        self.attempt(lambda: self.log.advance_log_start(offset))
        self.first = offset

    def purge(self, now_ms: int) -> None:
        self.manager.purge(now_ms)
        self.after_background()

    def read(self) -> None:
        """All of it, by offset and by time."""
        log = self.log
        self.attempt(lambda: records(log))
        self.attempt(lambda: log.offset_for_timestamp(NOW_MS))

    def transaction(self, producer_id: int, *, offsets: int) -> None:
        """One that is aborted."""
        first = self.next_offset
        for _ in range(offsets):
            offset = self.next_offset
            record = Record(offset, NOW_MS, None, b"aborted")
            self._replicate(
                encode_batch(
                    [record],
                    base_offset=offset,
                    leader_epoch=self.epoch,
                    producer_id=producer_id,
                    producer_epoch=0,
                    base_sequence=offset - first,
                    transactional=True,
                ),
                b"aborted",
            )
        marker = end_marker_batch(
            EndMarker(False, 0),
            producer_id=producer_id,
            producer_epoch=0,
            timestamp=NOW_MS,
            base_offset=self.next_offset,
            leader_epoch=self.epoch,
        )
        transaction = AbortedTransaction(producer_id, first, self.next_offset, self.next_offset + 1)
        self.unsure_aborted = transaction
        self._replicate(marker, MARKER)
        self.aborted.append(transaction)

    def _replicate(self, batch: bytearray, value: bytes) -> None:
        self.unsure = {self.next_offset: value}
        self.attempt(lambda: self.log.append_as_follower(batch, self.epoch))
        self.present[self.next_offset] = value
        self.next_offset += 1
        self.log.set_high_watermark(self.next_offset)

    def read_aborted(self) -> None:
        found: list[AbortedTransaction] = []

        def read() -> None:
            found[:] = self.log.aborted_transactions(self.first, self.next_offset)

        self.attempt(read)
        assert found == self.aborted

    def clean(self) -> None:
        """All of a cleaning: choose, map, write, swap, record. What fails in it is tried again later."""
        cleaner = LogCleaner(self.manager.disk, CleanerSettings(), self.manager.checkpoints.cleaned)
        for _ in range(2 * LASTS):
            try:
                if self._clean(cleaner):
                    return
            except (OSError, StorageError) as error:
                if isinstance(error, OSError):
                    self.manager.roots[0].failed(error)
                self.after_refusal(self.check)
        raise AssertionError("it is never cleaned")

    def _clean(self, cleaner: LogCleaner) -> bool:
        task = cleaner.next_task([self.log], NOW_MS)
        if task is None:
            if self.log.half_done:
                self.attempt(lambda: self.log.read(self.first, 1))
                return False
            assert self.cleaned_to, "it is clean, though that could not be written down"
            return True
        try:
            outcome = Outcome(result=clean(self.manager.disk, task.job))
        except OSError as error:  # of the worker, another process
            outcome = Outcome(failure=str(error))
        self.cleaned_to = task.dirty.first_uncleanable
        if not cleaner.install(task, outcome):
            return False
        cleaner.record(task)
        return True

    def delete_topic(self) -> None:
        self.attempt(lambda: self.manager.delete(PARTITION, NOW_MS), self.no_log_yet)
        self._cut({}, 0)
        self.synced = 0

    def begin_anew(self) -> None:
        self.topic_id = bytes(range(1, 17))
        self.begin()

    def start_offset_moved(self, offset: int) -> None:
        self.first = offset

    def start(self) -> None:
        """As at a start of the program; one that fails is made again."""
        while True:
            try:
                self.manager = open_manager(self.platter)
            except LogDirectoryError:
                self.stop("kill")
            else:
                break
        self.log = self.manager.logs[PARTITION]
        with self.platter.sound():
            self.settle("kill")
        self.log.set_high_watermark(self.next_offset)
        self.check()

    # What must be true

    def check(self) -> None:
        """In memory, and of the files under it."""
        with self.platter.sound():
            self._check()

    def _check(self) -> None:
        log = self.log
        assert log.log_end_offset == self.next_offset
        assert log.log_start_offset == self.first
        assert log.high_watermark <= log.log_end_offset
        self.check_records(log)
        self.check_files(log)

    def check_records(self, log: Log) -> None:
        found = records(log)
        expected = {offset: value for offset, value in self.present.items() if offset >= log.log_start_offset}
        if self.cleaned_to:
            self.check_compacted(found, expected)
        else:
            assert {**found, **dict.fromkeys(self.markers(found))} == {**expected, **dict.fromkeys(self.markers(found))}
        ended = [each.last_offset for each in [*self.aborted, self.unsure_aborted] if each is not None]
        marked = {offset for offset in ended if offset in found and self.present[offset] is MARKER}
        if marked or self.aborted:
            aborted = log.aborted_transactions(log.log_start_offset, log.log_end_offset)
            assert {each.last_offset for each in aborted} == marked
        known = log.producers.entry(PRODUCER_ID)
        if not self.cleaned_to and self.sequence:
            assert known is not None
            assert known.next_sequence == self.sequence

    def markers(self, found: dict[int, bytes | None]) -> list[int]:
        return [offset for offset in found if self.present.get(offset) is MARKER]

    def check_compacted(self, found: dict[int, bytes | None], expected: dict[int, bytes | None]) -> None:
        for offset, value in found.items():
            assert expected[offset] == value
        for offset in expected:
            later = range(offset + self.keys, self.next_offset, self.keys)
            assert offset in found or any(each in found for each in later), f"{offset} is gone, and nothing hides it"

    def check_files(self, log: Log) -> None:
        names = log.disk.list_directory(log.directory)
        bases = [int(name.removesuffix(".log")) for name in names if name.endswith(".log")]
        assert bases == [segment.base_offset for segment in log.segments]
        for segment in log.segments:
            file = log.disk.open(segment.path)
            assert file.size() >= segment.size
            file.close()

    # Ends

    def end(self) -> None:
        """Stops as it is to stop, starts, and is used; then once more."""
        lost = self.manager.roots[0].failure is not None
        ending = "close" if self.platter.failure_is_due else self.ending  # then it meets the closing
        ending = "kill" if lost and ending == "close" else ending
        self.stop(ending)
        self.platter.repair()
        self.reopen(ending)
        self.use()
        self.stop("close")
        self.unsure = {}
        self.reopen("close")
        for offset in records(self.log):
            header = read_header(self.log.read(offset, 1).data)
            assert header.base_offset <= offset <= header.last_offset, "the index names another place"

    def stop(self, ending: str) -> None:
        if ending == "close":
            self.manager.close()
        if ending == "power":
            self.platter.power_loss()
        else:
            self.platter.close_sessions()

    def reopen(self, ending: str) -> None:
        self.manager = open_manager(self.platter)
        assert self.manager.roots[0].failure is None
        log = self.manager.logs.get(PARTITION)
        if log is None or log.topic_id != self.topic_id:  # not there yet, or it is of the topic before
            assert not self.synced
            self.present, self.next_offset, self.first, self.sequence = {}, 0, 0, 0
            self.log = self.manager.get_or_create(PARTITION, CONFIG, self.topic_id, now_ms=NOW_MS)
            return
        self.log = log
        with self.platter.sound():
            self.settle(ending)
        log.set_high_watermark(log.log_end_offset)
        self.check()
        names = log.disk.list_directory(log.directory)
        assert not [name for name in names if name.endswith((".tmp", ".cleaned", ".swap", ".deleted"))]

    def settle(self, ending: str) -> None:
        """What the kind of end allows: a refused batch that is there, and after a power cut, what was not synced lost."""
        log, end = self.log, self.log.log_end_offset
        if self.cut_to <= end:
            self._cut({} if log.log_start_offset == end else dict(self.present), end)
            self.first = log.log_start_offset if log.log_start_offset == end else self.first
        elif end > self.next_offset:
            assert end in (*self.unsure, max(self.unsure) + 1), "or the beginning of a segment for it"
            self._cut(self.present | self.unsure, end)
        if ending == "power":
            assert end >= min(self.synced, self.next_offset)
            self._cut(dict(self.present), end)
        assert log.log_start_offset <= max(self.first, log.segments[0].base_offset)
        if log.log_start_offset < self.first:  # its checkpoint was not written yet: what was deleted is back
            assert ending != "close" or not self.first
        self.first = log.log_start_offset
        known = log.producers.entry(PRODUCER_ID)
        self.sequence = known.next_sequence if known is not None and self.cleaned_to else self.sequence

    def use(self) -> None:
        self.append(6)
        self.log.roll()
        self.append(1)
        self.flush()
        self.check()


def rebased(batch: bytearray, offset: int) -> bytearray:
    """As a client sends it: its offsets are the broker's to give."""
    batch[:8] = bytes(8)
    return batch


def formatted(seed: int) -> Platter:
    platter = Platter.seeded(seed)
    disk = SimulatedDisk(platter)
    disk.make_directories("/data")
    MetaProperties("c", 1, bytes(15) + b"\x09").write(disk, "/data")
    disk.sync_directory("/")
    return platter


def open_manager(platter: Platter) -> LogManager:
    settings = ManagerSettings(cluster_id="c", node_id=1, free_bytes_floor=0)
    manager = LogManager(SimulatedDisk(platter), ["/data"], CONFIG, settings, Random(1))
    manager.open_all(NOW_MS)
    return manager


def records(log: Log) -> dict[int, bytes | None]:
    found: dict[int, bytes | None] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, 1 << 20)
        at = 0
        while at < len(read.data):
            header = read_header(read.data, at)
            found.update((each.offset, each.value) for each in decode_records(read.data, header, position=at))
            at += header.size_bytes
        if not read.data:
            break  # a gap up to the beginning of an empty segment
        offset = read.next_offset
    return {each: value for each, value in found.items() if each >= log.log_start_offset}


def with_settings(**changes: object) -> LogConfig:
    return msgspec.structs.replace(CONFIG, **changes)


Scenario = Callable[[Trial], None]


def fail_every_operation(scenario: Scenario, error: int) -> int:
    """The scenario, once for each of its operations that can fail so; returns how many there were."""
    operations: list[str] = []
    trial = Trial(0, "close")
    trial.platter.on_attempt = lambda operation, path: operations.append(operation)
    scenario(trial)
    trial.stop("close")
    count = sum(not FAILS_WITH[error] or operation in FAILS_WITH[error] for operation in operations)
    for number in range(1 + count % EVERY[error], count + 1, EVERY[error]):
        fail_one(scenario, error, number, ENDINGS[number % len(ENDINGS)])
    return count


def fail_one(scenario: Scenario, error: int, number: int, ending: str) -> None:
    trial = Trial(number, ending)
    written = Random(number).choice((0.0, 0.5, 1.0))
    lasts = LASTS if number % 2 and error != errno.EIO else 1
    for _ in range(lasts):
        trial.platter.fail_once(number, error, FAILS_WITH[error], written=written)
    try:
        with suppress(DirectoryLost):
            scenario(trial)
        trial.end()
    except Exception as problem:
        problem.add_note(f"{scenario.__name__}: {errno.errorcode[error]} in operation {number}, then {ending}")
        raise
