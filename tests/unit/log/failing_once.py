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
from ottla.log.directories.roots import LogDirectoryError
from ottla.log.errors import StorageError
from ottla.log.records import EndMarker, Record, encode_batch, end_marker_batch
from ottla.log.segments.transactions import AbortedTransaction
from ottla.runtime.simulation.platter import FAILS_WITH
from tests.unit.log.log_on_trial import (
    CONFIG,
    LARGE,
    LASTS,
    MARKER,
    NEVER,
    NOW_MS,
    PARTITION,
    PRODUCER_ID,
    SMALL,
    DirectoryLost,
    LogOnTrial,
    open_manager,
    records,
)

ENDINGS = ("close", "kill", "power")

EVERY = {errno.EMFILE: 1, errno.ENOSPC: 1, errno.EIO: 3}
"""Which of them are tried: after EIO a directory is offline, so less can go wrong."""


class Trial(LogOnTrial):
    """The steps of such a life."""

    def begin(self, config: LogConfig = CONFIG) -> None:
        def create() -> None:
            self.log = self.manager.get_or_create(PARTITION, config, self.topic_id, now_ms=NOW_MS)

        self.attempt(create, self.no_log_yet)

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
        self.manager.removals.purge(now_ms)
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
            if self.manager.roots[0].failure is not None:
                raise DirectoryLost
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
        self.is_to_go = True
        self.attempt(lambda: self.manager.delete(PARTITION, NOW_MS), self.no_log_yet)
        self._cut({}, 0)
        self.synced = 0

    def begin_anew(self) -> None:
        self.topic_id, self.is_to_go = bytes(range(1, 17)), False
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
