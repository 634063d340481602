"""The power goes in the middle of every single I/O operation of roll, truncation, deletion and recovery itself.

Whatever operation it was: what had been synced is there, and every record is of the history that was written.
"""

from collections.abc import Callable
from random import Random

import msgspec
import pytest

from ottla.log.compaction.cleaner import clean
from ottla.log.compaction.manager import CleanerSettings, LogCleaner
from ottla.log.compaction.worker import Outcome
from ottla.log.config import LogConfig
from ottla.log.directories.checkpoints import CLEANER_OFFSETS
from ottla.log.directories.manager import LogManager, ManagerSettings
from ottla.log.directories.owned_offsets import read_owned
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.records import Record, encode_batch
from ottla.runtime.simulation.crash import SimulatedCrash
from ottla.runtime.simulation.disk import SimulatedDisk
from tests.unit.log.contents import values
from tests.unit.log.log_on_trial import formatted

PARTITION = TopicPartition("flights", 0)
TOPIC_ID = bytes(range(16))
NOW_MS = 1_700_000_000_000
SEEDS = 3
BATCH_BYTES = 540  # seven fill a page and a little more: every page boundary lies in a batch
SEGMENT_BYTES = 10 * BATCH_BYTES
CONFIG = LogConfig(
    segment_bytes=SEGMENT_BYTES, index_interval_bytes=1000, retention_bytes=2 * SEGMENT_BYTES, file_delete_delay_ms=1000
)

History = list[bytes | None]


class Story:
    """A log, and what must be true of it after a crash: ``histories`` any of which it may hold a first part of."""

    def __init__(self) -> None:
        self.histories: list[History] = [[]]
        self.synced = 0  # in the last history
        self.keys = 0
        self.tombstones_every = 0  # so many records
        self.cleaned_to = 0  # below this only the last record of each key has to be there
        self.due: frozenset[int] = frozenset()  # tombstones whose horizon has passed

    def begin(self, disk: SimulatedDisk) -> None:
        self.manager = open_manager(disk)
        self.log = self.manager.get_or_create(PARTITION, CONFIG, TOPIC_ID, now_ms=NOW_MS)

    def append(self, count: int, epoch: int = 0) -> None:
        for _ in range(count):
            text = f"{epoch:02}:{self.log.log_end_offset:06}:".encode() * 47
            offset = self.log.log_end_offset
            key = f"{offset % self.keys}".encode() if self.keys else None
            gone = self.tombstones_every and offset % self.tombstones_every == 0
            value = None if gone else text[: len(text) - (1 if key else 0)]
            self.histories[-1].append(value)
            batch = encode_batch([Record(offset, NOW_MS, key, value)], base_offset=offset, leader_epoch=epoch)
            assert gone or len(batch) == BATCH_BYTES
            self.log.append_as_follower(batch, epoch)
            del self.histories[:-1]  # what was cut off before is not followed by what came later

    def flush(self, *, checkpoint: bool = True) -> None:
        self.log.flush()
        if checkpoint:
            self.manager.checkpoints.save_points()
        self.synced = self.log.log_end_offset

    def truncate_to(self, offset: int, *, sync: bool = True) -> None:
        self.synced = min(self.synced, offset)
        self.histories.append(self.histories[-1][:offset])
        self.log.truncate_to(offset, sync=sync)
        if sync:
            del self.histories[:-1]  # the truncation is durable when it returns


def open_manager(disk: SimulatedDisk) -> LogManager:
    settings = ManagerSettings(cluster_id="c", node_id=1)
    manager = LogManager(disk, ["/data"], CONFIG, settings, Random(1))
    manager.open_all(NOW_MS)
    return manager


def check(story: Story, log: Log | None) -> None:
    if log is None:
        assert story.synced == 0
        return
    assert log.log_end_offset >= story.synced
    assert log.topic_id == TOPIC_ID or not story.synced
    found = [
        each for each in values(log) if each[0] >= log.log_start_offset
    ]  # a batch that holds the start is read whole
    expected = [list(enumerate(history)) for history in story.histories]
    for offset, value in found:
        assert log.epochs.epoch_for_offset(offset) == int((value or b"00")[:2])
    if story.cleaned_to:
        check_compacted(story, log, found)
        return
    assert any(found == history[log.log_start_offset : log.log_end_offset] for history in expected)
    assert [offset for offset, _ in found] == list(range(log.log_start_offset, log.log_end_offset))


def check_compacted(story: Story, log: Log, found: list[tuple[int, bytes | None]]) -> None:
    """Old or cleaned, nothing between: what is there is true, and nothing lacks but what a later record of its key hides."""
    assert all(story.histories[0][offset] == value for offset, value in found)
    present = dict(found)
    for offset in range(log.log_end_offset):
        later = range(offset + story.keys, story.cleaned_to, story.keys)
        assert offset in present or offset in story.due or any(each in present or each in story.due for each in later)
    for tombstone in story.due - {*present}:
        assert not {*range(tombstone % story.keys, tombstone, story.keys)} & {*present}, "a deleted value is back"
    clean_to = read_owned(log.disk, f"/data/{CLEANER_OFFSETS}").get(log.key, 0)
    assert clean_to <= story.cleaned_to
    keys = [offset % story.keys for offset in present if offset < clean_to]
    assert len(keys) == len(set(keys)), "the cleaner's checkpoint is ahead of what is clean"
    assert not [name for name in log.disk.list_directory(log.directory) if name.endswith((".swap", ".cleaned"))]


def roll(story: Story) -> None:
    story.append(25)
    story.flush(checkpoint=False)
    story.append(25)
    story.flush()
    story.log.roll()
    story.append(5, epoch=1)
    story.flush()
    story.append(5, epoch=2)


def truncate(story: Story) -> None:
    story.append(25)
    story.flush()
    story.append(20, epoch=1)
    story.truncate_to(40)
    story.append(3, epoch=2)
    story.truncate_to(7)  # over several segments, below the recovery point
    story.append(13, epoch=2)  # up to where an old segment began
    story.append(17, epoch=3)
    story.flush()
    story.append(3, epoch=3)


def truncate_and_sync_later(story: Story) -> None:
    story.append(25)
    story.flush()
    story.append(6, epoch=1)
    story.truncate_to(27, sync=False)
    story.append(2, epoch=2)
    story.flush()
    story.truncate_to(24, sync=False)
    story.truncate_to(12, sync=False)  # another segment
    story.append(3, epoch=3)
    story.truncate_to(13, sync=False)
    story.log.disk.sync_everything("/data")
    story.log.cut_synced(story.log.generation)
    story.append(9, epoch=4)
    story.flush()


def delete(story: Story) -> None:
    story.append(60)
    story.flush()
    story.log.set_high_watermark(60)
    story.log.delete_old_segments(NOW_MS)
    assert story.log.log_start_offset > 0
    story.append(4)
    story.manager.checkpoints.save_points()
    story.manager.removals.purge(NOW_MS)
    story.manager.removals.purge(NOW_MS + 1000)
    story.append(4)
    story.flush()
    story.log.set_high_watermark(66)
    story.log.advance_log_start(65)
    story.log.delete_old_segments(NOW_MS)
    story.manager.checkpoints.save_points()


def truncate_to_the_start(story: Story) -> None:
    """That the log begins there nothing says but a segment's name: without it the next start began at 0, below what is committed."""
    begin_later(story)
    start = story.log.log_start_offset
    story.truncate_to(start)
    story.append(3, epoch=1)
    story.flush()


def truncate_to_a_start_inside_a_batch(story: Story) -> None:
    """The batch goes as a whole, and with it all that the log had. The start was in memory alone."""
    begin_later(story)
    start = story.log.log_end_offset
    batch = encode_batch([Record(start + i, NOW_MS, None, b"00") for i in range(3)], base_offset=start)
    story.histories[-1] += [b"00"] * 3
    story.log.append_as_follower(batch, 0)
    story.flush()
    story.log.set_high_watermark(start + 1)
    story.log.advance_log_start(start + 1)
    assert story.log.delete_old_segments(NOW_MS)
    story.truncate_to(start + 1)
    story.append(3, epoch=1)
    story.flush()


def begin_later(story: Story) -> None:
    """What was deleted is gone for good, and the log start need not be written down any more."""
    story.append(40)
    story.flush()
    story.log.set_high_watermark(40)
    story.log.delete_old_segments(NOW_MS)
    story.manager.removals.purge(NOW_MS)
    story.manager.removals.purge(NOW_MS + 1000)
    story.log.sync_names()
    story.manager.checkpoints.save_points()
    assert story.log.log_start_offset == story.log.segments[0].base_offset > 0


def close(story: Story) -> None:
    story.append(25)
    story.manager.close()
    story.synced = 25


def compact(story: Story) -> None:
    story.log.configure(msgspec.structs.replace(CONFIG, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0))
    story.keys = 3
    story.append(35)
    story.flush()
    story.append(4)
    story.log.set_high_watermark(39)
    run_cleaner(story, NOW_MS)
    story.append(3)
    story.manager.removals.purge(NOW_MS)
    story.manager.removals.purge(NOW_MS + 1000)
    story.flush()


def compact_twice(story: Story) -> None:
    """The second time tombstones of the first go, and what they delete must have gone for good."""
    story.log.configure(
        msgspec.structs.replace(
            CONFIG, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0, delete_retention_ms=1000
        )
    )
    story.keys, story.tombstones_every = 5, 4
    story.append(25)
    story.log.roll()
    story.flush()
    story.log.set_high_watermark(25)
    run_cleaner(story, NOW_MS)
    story.manager.removals.purge(NOW_MS)
    story.append(3)
    story.log.roll()
    story.flush()
    story.log.set_high_watermark(28)
    story.manager.removals.purge(NOW_MS + 1000)
    story.due = frozenset({24})
    run_cleaner(story, NOW_MS + 1000)
    assert [offset for offset, _ in values(story.log)] == [23, 25, 26, 27]
    story.append(3)
    story.flush()


def run_cleaner(story: Story, now_ms: int) -> None:
    """All of it: choose, map, write, swap, record."""
    cleaner = LogCleaner(story.manager.disk, CleanerSettings(), story.manager.checkpoints.cleaned)
    task = cleaner.next_task([story.log], now_ms)
    assert task is not None
    story.cleaned_to = task.dirty.first_uncleanable
    result = clean(story.manager.disk, task.job)
    assert result.cleaned
    assert result.end_offset == story.cleaned_to
    assert cleaner.install(task, Outcome(result=result))
    cleaner.record(task)


def operations_of(script: Callable[[Story], None]) -> int:
    platter = formatted(0)
    before = platter.operations
    story = Story()
    story.begin(SimulatedDisk(platter))
    script(story)
    return platter.operations - before


@pytest.mark.parametrize(
    "script",
    [
        roll,
        truncate,
        truncate_and_sync_later,
        truncate_to_the_start,
        truncate_to_a_start_inside_a_batch,
        delete,
        close,
        compact,
        compact_twice,
    ],
)
def test_a_power_cut_in_any_operation_costs_nothing_that_was_synced(script: Callable[[Story], None]) -> None:
    crashes = 0
    for number in range(1, operations_of(script) + 1):
        for seed in range(SEEDS):
            crashes += crash(script, seed, number)
    assert crashes > 100


def crash(script: Callable[[Story], None], seed: int, number: int) -> int:
    """Cuts the power in one operation of the script, then in one of the recovery, then checks; 1 if the script was cut."""
    platter, story, cut = formatted(seed), Story(), 0
    platter.crash_at_operation(number)
    try:
        story.begin(SimulatedDisk(platter))
        script(story)
    except SimulatedCrash:
        cut = 1
    platter.power_loss()
    platter.crash_at_operation(1 + number % 7)
    try:
        open_manager(SimulatedDisk(platter))
    except SimulatedCrash:
        platter.power_loss()
    platter.cancel_crash()
    platter.close_sessions()
    log = open_manager(SimulatedDisk(platter)).logs.get(PARTITION)
    check(story, log)
    if log is not None:
        end = log.log_end_offset
        batch = encode_batch([Record(end, NOW_MS, None, b"after")], base_offset=end, leader_epoch=9)
        log.append_as_follower(batch, 9)
        assert values(log)[-1] == (end, b"after")
    return cut
