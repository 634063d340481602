"""Choosing what to compact, and taking the result: on a simulated disk, with the worker's part run in place."""

import errno

import pytest

from ottla.log.compaction.cleaner import CleaningResult, clean
from ottla.log.compaction.manager import CleanerSettings, CleaningTask, LogCleaner
from ottla.log.compaction.offsets import CleanedOffsets
from ottla.log.compaction.output import CleanedSegment
from ottla.log.compaction.plan import SegmentInfo
from ottla.log.compaction.swap import swap_files
from ottla.log.compaction.worker import Outcome
from ottla.log.config import LogConfig
from ottla.log.directories.owned_offsets import read_owned
from ottla.log.names import TopicIdPartition, TopicPartition
from ottla.log.producers.state import ProducerStateManager
from ottla.log.records import Record, encode_batch
from ottla.runtime.disk import Disk
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter

NOW = 1_000_000


class FakeLog:
    """Segments of ten records of one key each; the last is active."""

    def __init__(self, disk: Disk, topic: str, segments: int, config: LogConfig | None = None) -> None:
        self.disk = disk
        self.key = TopicIdPartition(TopicPartition(topic, 0), bytes(range(16)))
        self.partition = TopicPartition(topic, 0)
        self.directory = f"/data/{topic}-0"
        self.config = config or LogConfig(cleanup_policy=("compact",))
        self.producers = ProducerStateManager()
        self.log_start_offset = 0
        self.ensured = 0
        self.bases: list[int] = []
        disk.make_directories(self.directory)
        for _ in range(segments):
            self.roll()

    def roll(self) -> None:
        base = self.bases[-1] + 10 if self.bases else 0
        batch = encode_batch([Record(base + i, 5, b"k", b"v" * 50) for i in range(10)], base_offset=base)
        file = self.disk.open(f"{self.directory}/{base:020d}.log", create=True)
        file.write_at([batch], 0)
        file.sync()
        self.bases.append(base)
        self.last_stable_offset = base + 10

    @property
    def active_base_offset(self) -> int:
        return self.bases[-1]

    def size(self, base: int) -> int:
        return len(self.disk.read_bytes(f"{self.directory}/{base:020d}.log"))

    def closed_segments(self) -> list[SegmentInfo]:
        return [
            SegmentInfo(base, following, self.size(base))
            for base, following in zip(self.bases, self.bases[1:], strict=False)
        ]

    def ensure_aborted(self) -> None:
        self.ensured += 1

    def install_cleaned(self, cleaned: CleanedSegment) -> None:
        swap_files(self.disk, self.directory, cleaned)
        self.bases = sorted({*self.bases} - {*cleaned.replaced} | {cleaned.base_offset})


@pytest.fixture
def disk() -> SimulatedDisk:
    simulated = SimulatedDisk(Platter.seeded(1))
    simulated.make_directories("/data")
    return simulated


SETTINGS = CleanerSettings(dedupe_buffer_bytes=1 << 20)


def cleaner_on(disk: Disk, threads: int = 1) -> LogCleaner:
    settings = CleanerSettings(threads=threads, dedupe_buffer_bytes=1 << 20, io_bytes_per_second=100)
    return LogCleaner(disk, settings, CleanedOffsets(disk))


def test_without_threads_nothing_is_due_until_some_are_given(disk: Disk) -> None:
    cleaner = cleaner_on(disk, threads=0)
    log = FakeLog(disk, "a", 3)
    assert cleaner.next_task([log], NOW) is None
    cleaner.configure(CleanerSettings(threads=2, dedupe_buffer_bytes=4 << 20, io_bytes_per_second=100))
    task = cleaner.next_task([log], NOW)
    assert task is not None
    assert (task.job.dedupe_buffer_bytes, cleaner.worker_bytes_per_second) == (2 << 20, 50)


def done(disk: Disk, task: CleaningTask) -> Outcome:
    return Outcome(result=clean(disk, task.job))


def test_a_due_log_is_cleaned_and_remembered(disk: Disk) -> None:
    log, cleaner = FakeLog(disk, "a", 4), cleaner_on(disk)
    task = cleaner.next_task([log], NOW)
    assert task is not None
    assert cleaner.install(task, done(disk, task))
    cleaner.record(task)
    assert log.bases == [0, 30]
    assert log.ensured == 1
    assert read_owned(disk, "/data/cleaner-offset-checkpoint") == {log.key: 30}
    assert cleaner_on(disk).next_task([log], NOW) is None
    log.roll()
    assert cleaner_on(disk).next_task([log], NOW) is not None


def test_the_dirtiest_log_goes_first_and_each_worker_has_its_own(disk: Disk) -> None:
    small, large = FakeLog(disk, "a", 2), FakeLog(disk, "b", 6)
    cleaner = cleaner_on(disk, threads=2)
    first = cleaner.next_task([large], NOW)
    assert first is not None
    assert cleaner.install(first, done(disk, first))
    cleaner.record(first)
    large.roll()
    chosen = [cleaner.next_task([large, small], NOW) for _ in range(3)]
    assert [None if task is None else task.log for task in chosen] == [small, large, None]


def test_memory_and_speed_are_shared_among_the_workers(disk: Disk) -> None:
    cleaner = cleaner_on(disk, threads=4)
    task = cleaner.next_task([FakeLog(disk, "a", 2)], NOW)
    assert task is not None
    assert task.job.dedupe_buffer_bytes == (1 << 20) // 4
    assert cleaner.worker_bytes_per_second == 25


def test_logs_of_other_policies_and_without_closed_segments_are_left_alone(disk: Disk) -> None:
    cleaner = cleaner_on(disk)
    assert cleaner.next_task([FakeLog(disk, "a", 4, LogConfig()), FakeLog(disk, "b", 1)], NOW) is None


def test_both_policies_together_are_compacted_too(disk: Disk) -> None:
    assert (
        cleaner_on(disk).next_task([FakeLog(disk, "a", 4, LogConfig(cleanup_policy=("compact", "delete")))], NOW)
        is not None
    )


def test_a_topic_that_is_not_compacted_any_more_keeps_what_a_worker_left_out(disk: Disk) -> None:
    log, cleaner = FakeLog(disk, "a", 4), cleaner_on(disk)
    task = cleaner.next_task([log], NOW)
    assert task is not None
    outcome = done(disk, task)
    log.config = LogConfig()
    assert not cleaner.install(task, outcome)
    assert log.bases == [0, 10, 20, 30]


def test_a_failed_worker_changes_nothing_and_is_tried_again(disk: Disk) -> None:
    log, cleaner = FakeLog(disk, "a", 4), cleaner_on(disk)
    task = cleaner.next_task([log], NOW)
    assert task is not None
    done(disk, task)
    assert not cleaner.install(task, Outcome(failure="killed"))
    assert log.bases == [0, 10, 20, 30]
    assert [name for name in disk.list_directory(log.directory) if name.endswith(".cleaned")] == []
    assert cleaner.next_task([log], NOW) is not None


def test_a_log_of_which_no_worker_comes_back_keeps_no_other_from_being_cleaned(disk: Disk) -> None:
    cleaner = cleaner_on(disk)
    logs = [FakeLog(disk, name, 4) for name in "abc"]
    tried = []
    for _ in range(6):
        task = cleaner.next_task(logs, NOW)
        assert task is not None
        assert not cleaner.install(task, Outcome(failure="killed"))
        tried.append(task.log)
    assert tried == [*logs, *logs]


def test_a_log_that_failed_once_has_its_turn_though_others_are_always_due(disk: Disk) -> None:
    cleaner = cleaner_on(disk)
    logs = [FakeLog(disk, name, 4) for name in "abc"]
    failed = cleaner.next_task(logs, NOW)
    assert failed is not None
    assert not cleaner.install(failed, Outcome(failure="killed"))
    cleaned = []
    for _ in range(3):
        task = cleaner.next_task(logs, NOW)
        assert task is not None
        assert cleaner.install(task, done(disk, task))
        cleaner.record(task)
        cleaned.append(task.log)
        for log in logs[1:]:
            log.roll()
    assert cleaned == [*logs[1:], logs[0]]


def test_a_damaged_log_is_set_aside_by_name(disk: Disk) -> None:
    log, cleaner = FakeLog(disk, "a", 4), cleaner_on(disk)
    task = cleaner.next_task([log], NOW)
    assert task is not None
    assert not cleaner.install(task, Outcome(damage="CRC"))
    assert cleaner.uncleanable == {log.partition: "CRC"}
    assert cleaner.next_task([log], NOW) is None
    cleaner.cancel(log.partition)
    assert cleaner.next_task([log], NOW) is not None


@pytest.mark.parametrize("change", ["gone", "cut"])
def test_a_result_is_dropped_when_its_sources_changed(disk: Disk, change: str) -> None:
    log, cleaner = FakeLog(disk, "a", 4), cleaner_on(disk)
    task = cleaner.next_task([log], NOW)
    assert task is not None
    outcome = done(disk, task)
    if change == "gone":
        del log.bases[0]
    else:
        disk.open(f"{log.directory}/{10:020d}.log").truncate(5)
    before = list(log.bases)
    assert not cleaner.install(task, outcome)
    assert log.bases == before


def test_retention_takes_the_first_segments_and_the_others_are_compacted(disk: Disk) -> None:
    log, cleaner = (
        FakeLog(disk, "a", 4, LogConfig(cleanup_policy=("compact", "delete"), segment_bytes=100)),
        cleaner_on(disk),
    )
    task = cleaner.next_task([log], NOW)
    assert task is not None
    outcome = done(disk, task)
    disk.unlink(f"{log.directory}/{0:020d}.log")
    del log.bases[0]
    size = log.size(10)
    assert cleaner.install(task, outcome)
    assert log.bases == [10, 20, 30]
    assert log.size(10) < size
    assert not [name for name in disk.list_directory(log.directory) if name.startswith(f"{0:020d}")]
    assert task.end_offset == 30


def test_a_log_of_which_nothing_is_left_that_was_cleaned_is_not_clean(disk: Disk) -> None:
    log, cleaner = (
        FakeLog(disk, "a", 4, LogConfig(cleanup_policy=("compact", "delete"), segment_bytes=100)),
        cleaner_on(disk),
    )
    task = cleaner.next_task([log], NOW)
    assert task is not None
    outcome = done(disk, task)
    del log.bases[:-1]
    assert not cleaner.install(task, outcome)


def test_the_result_for_a_log_deleted_meanwhile_is_dropped(disk: Disk) -> None:
    log, cleaner = FakeLog(disk, "a", 4), cleaner_on(disk)
    task = cleaner.next_task([log], NOW)
    assert task is not None
    cleaner.cancel(log.partition)
    assert not cleaner.install(
        task, Outcome(result=CleaningResult(end_offset=1, cleaned=[], read_bytes=0, written_bytes=0))
    )


def test_a_damaged_checkpoint_costs_a_cleaning_from_the_start(disk: Disk) -> None:
    log = FakeLog(disk, "a", 4)
    disk.write_atomically("/data/cleaner-offset-checkpoint", b"nonsense")
    task = cleaner_on(disk).next_task([log], NOW)
    assert task is not None
    assert task.job.first_dirty == 0


def cleaned(disk: Disk, log: FakeLog, cleaner: LogCleaner) -> CleaningTask:
    task = cleaner.next_task([log], NOW)
    assert task is not None
    assert cleaner.install(task, done(disk, task))
    return task


@pytest.mark.parametrize("restarted", [False, True])
def test_a_forgotten_log_is_not_clean_after_a_crash_either(disk: Disk, restarted: bool) -> None:
    log, other, offsets = FakeLog(disk, "a", 4), FakeLog(disk, "b", 4), CleanedOffsets(disk)
    cleaner = LogCleaner(disk, SETTINGS, offsets)
    for each in (log, other):
        cleaner.record(cleaned(disk, each, cleaner))
    if restarted:
        offsets = CleanedOffsets(disk)
    offsets.forget("/data", {log.key: 20})
    assert read_owned(disk, "/data/cleaner-offset-checkpoint") == {other.key: 30}


def test_deleted_logs_go_from_the_checkpoint_with_one_write(disk: Disk) -> None:
    logs, offsets = [FakeLog(disk, topic, 4) for topic in "abc"], CleanedOffsets(disk)
    cleaner = LogCleaner(disk, SETTINGS, offsets)
    for each in logs:
        cleaner.record(cleaned(disk, each, cleaner))
    before = disk.modified_ms("/data/cleaner-offset-checkpoint")
    for each in logs[:2]:
        offsets.drop("/data", each.key)
        assert offsets.of("/data", each.key) == -1
    assert disk.modified_ms("/data/cleaner-offset-checkpoint") == before
    assert len(read_owned(disk, "/data/cleaner-offset-checkpoint")) == 3
    offsets.write_dropped("/data")
    assert read_owned(disk, "/data/cleaner-offset-checkpoint") == {logs[2].key: 30}
    assert not offsets.has_dropped("/data")


def test_a_deleted_log_that_comes_back_is_not_clean_after_a_crash_either(disk: Disk) -> None:
    log, offsets = FakeLog(disk, "a", 4), CleanedOffsets(disk)
    cleaner = LogCleaner(disk, SETTINGS, offsets)
    cleaner.record(cleaned(disk, log, cleaner))
    offsets.drop("/data", log.key)
    offsets.make_way("/data", log.key)
    assert read_owned(disk, "/data/cleaner-offset-checkpoint") == {}


def test_what_is_clean_of_a_topic_says_nothing_of_the_next_one_of_its_name(disk: Disk) -> None:
    log, offsets = FakeLog(disk, "a", 4), CleanedOffsets(disk)
    cleaner = LogCleaner(disk, SETTINGS, offsets)
    cleaner.record(cleaned(disk, log, cleaner))
    again = CleanedOffsets(disk)
    assert again.of("/data", log.key) == 30
    assert again.of("/data", TopicIdPartition(log.partition, b"N" * 16)) == -1


def test_what_is_about_to_be_installed_is_on_disk_and_forgotten_with_the_rest(disk: Disk) -> None:
    log, offsets = FakeLog(disk, "a", 4), CleanedOffsets(disk)
    cleaner = LogCleaner(disk, SETTINGS, offsets)
    task = cleaner.next_task([log], NOW)
    assert task is not None
    cleaner.foretell(task, done(disk, task))
    again = CleanedOffsets(disk)
    assert (again.of("/data", log.key), again.gaps_to("/data", log.key)) == (-1, 30)
    again.forget("/data", {log.key: 20})
    assert CleanedOffsets(disk).gaps_to("/data", log.key) == 20, "below the cut they are as they were"


def test_a_cut_that_could_not_be_noted_is_noted_when_it_is_tried_again(disk: SimulatedDisk) -> None:
    log, offsets = FakeLog(disk, "a", 4), CleanedOffsets(disk)
    offsets.foretell("/data", log.key, 30)
    disk.platter().fail_once(1, errno.ENOSPC, ("rename",))
    with pytest.raises(OSError, match="No space"):
        offsets.forget("/data", {log.key: 20})
    assert offsets.gaps_to("/data", log.key) == 30, "it is not cut, and may be read anew"
    offsets.forget("/data", {log.key: 20})
    assert CleanedOffsets(disk).gaps_to("/data", log.key) == 20


def test_a_shorter_cleaning_leaves_what_was_foretold_of_a_longer_one(disk: Disk) -> None:
    log, offsets = FakeLog(disk, "a", 4), CleanedOffsets(disk)
    offsets.foretell("/data", log.key, 30)
    offsets.foretell("/data", log.key, 20)
    assert CleanedOffsets(disk).gaps_to("/data", log.key) == 30


def test_a_log_forgotten_before_its_cleaning_is_foretold_is_not_foretold(disk: Disk) -> None:
    log, offsets = FakeLog(disk, "a", 4), CleanedOffsets(disk)
    cleaner = LogCleaner(disk, SETTINGS, offsets)
    task = cleaner.next_task([log], NOW)
    assert task is not None
    cleaner.cancel(log.partition)
    cleaner.foretell(task, done(disk, task))
    assert offsets.gaps_to("/data", log.key) == -1


def test_a_log_forgotten_before_its_cleaning_is_recorded_is_not_recorded(disk: Disk) -> None:
    log, cleaner = FakeLog(disk, "a", 4), cleaner_on(disk)
    task = cleaned(disk, log, cleaner)
    cleaner.cancel(log.partition)
    cleaner.record(task)
    assert read_owned(disk, "/data/cleaner-offset-checkpoint") == {}


def test_a_log_whose_directory_fails_stays_as_clean_as_it_was(disk: Disk) -> None:
    log, cleaner = FakeLog(disk, "a", 4), cleaner_on(disk)
    cleaner.record(cleaned(disk, log, cleaner))
    cleaner.cancel(log.partition)
    assert read_owned(disk, "/data/cleaner-offset-checkpoint") == {log.key: 30}


def test_the_dirtiest_ratio_is_told_for_the_metrics(disk: Disk) -> None:
    cleaner = cleaner_on(disk)
    cleaner.next_task([], NOW)
    assert cleaner.dirtiest_ratio == 0.0
    cleaner.next_task([FakeLog(disk, "a", 4), FakeLog(disk, "b", 1)], NOW + 1)
    assert cleaner.dirtiest_ratio == 1.0
