"""Compaction of real logs on a simulated disk: through `Log`, power cuts and recovery included."""

import errno
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log.batch import headers
from ottla.log.compaction.cleaner import clean
from ottla.log.compaction.manager import CleanerSettings, CleaningTask, LogCleaner
from ottla.log.compaction.offsets import CleanedOffsets
from ottla.log.compaction.worker import Outcome
from ottla.log.config import LogConfig
from ottla.log.directories.checkpoints import CLEANER_OFFSETS, PartitionMetadata
from ottla.log.directories.directory import DirectoryState
from ottla.log.errors import StorageError
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.producers.snapshot import offsets
from ottla.log.records import Record, decode_records, encode_batch
from ottla.log.tools.verify import Finding, verify
from ottla.runtime.disk import Disk
from ottla.runtime.simulation.crash import SimulatedCrash
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter

NOW = 1_700_000_000_000
DIRECTORY = "/data/topic-0"
PARTITION = TopicPartition("topic", 0)
CONFIG = LogConfig(
    cleanup_policy=("compact",),
    segment_bytes=400,
    index_interval_bytes=100,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=10**15,  # tombstones stay: when they go is tested elsewhere
)


def damage(disk: Disk) -> list[Finding]:
    """Faults in batches. Indexes are not synced: after a power cut they may be anything, and are made anew when used."""
    return [finding for finding in verify(disk, DIRECTORY) if finding.fault and finding.path.endswith(".log")]


class Machine:
    """One log on one platter, and the model: every record that was appended and not lost to a power cut."""

    def __init__(self, seed: int) -> None:
        self.platter = Platter.seeded(seed)
        disk = SimulatedDisk(self.platter)
        disk.make_directories(DIRECTORY)
        disk.sync_directory("/")
        disk.sync_directory("/data")
        PartitionMetadata.write(disk, DIRECTORY, bytes(range(16)))
        self.recovery_point = 0
        self.records: list[Record] = []
        self.cleaned_to = 0
        self.start()

    def start(self) -> None:
        self.disk = SimulatedDisk(self.platter)
        self.log = Log.open(self.disk, DIRECTORY, PARTITION, CONFIG, now_ms=NOW, recovery_point=self.recovery_point)
        self.log.set_high_watermark(self.log.log_end_offset)
        self.cleaner = LogCleaner(self.disk, CleanerSettings(dedupe_buffer_bytes=160 * 8), CleanedOffsets(self.disk))

    def append(self, pairs: list[tuple[str, str | None]], codec: int) -> None:
        records = [
            Record(i, NOW, key.encode(), None if value is None else value.encode())
            for i, (key, value) in enumerate(pairs)
        ]
        batch = encode_batch(records, compression=codec)
        info = self.log.append_as_leader(memoryview(batch), 1, NOW)
        self.records += [record._replace(offset=info.first_offset + record.offset) for record in records]
        self.log.set_high_watermark(self.log.log_end_offset)

    def flush(self) -> None:
        self.log.flush()
        self.recovery_point = self.log.recovery_point

    def clean(self) -> None:
        self.flush()  # what is cleaned lies below the recovery point
        task = self.cleaner.next_task([self.log], NOW)
        if task is not None:
            self.finish(task)

    def finish(self, task: CleaningTask) -> None:
        outcome = Outcome(result=clean(self.disk, task.job))
        self.cleaner.foretell(task, outcome)
        assert self.cleaner.install(task, outcome)
        self.cleaned_to = task.end_offset
        self.cleaner.record(task)
        self.log.purge(NOW)
        self.log.purge(NOW + CONFIG.file_delete_delay_ms)

    def power_cut(self) -> None:
        self.platter.power_loss()
        self.recover()

    def recover(self) -> None:
        self.start()
        assert self.log.log_end_offset >= self.recovery_point
        self.records = [record for record in self.records if record.offset < self.log.log_end_offset]

    def found(self) -> list[Record]:
        found: list[Record] = []
        offset = 0
        while offset < self.log.log_end_offset:
            read = self.log.read(offset, 10_000)
            for position, header in headers(read.data):
                found += [
                    record for record in decode_records(read.data, header, position=position) if record.offset >= offset
                ]
            assert read.next_offset > offset
            offset = read.next_offset
        return found

    def expected(self, cleaned_to: int) -> list[Record]:
        last = {record.key: record.offset for record in self.records if record.offset < cleaned_to}
        return [record for record in self.records if record.offset >= cleaned_to or last[record.key] == record.offset]

    def check(self) -> None:
        assert self.found() == self.expected(self.cleaned_to)
        self.log.close()
        assert damage(self.disk) == []


def filled(seed: int) -> Machine:
    machine = Machine(seed)
    for number in range(24):
        machine.append(
            [(f"k{number % 5}", f"{number}"), ("often", None if number % 7 == 3 else str(number))], number % 5
        )
    machine.flush()
    return machine


def test_a_log_is_compacted_and_goes_on() -> None:
    machine = filled(1)
    before = machine.log.size_bytes
    while machine.cleaned_to < machine.log.active_base_offset:
        machine.clean()
    assert machine.log.size_bytes < before / 2
    machine.append([("k0", "new")], 0)
    assert machine.log.log_end_offset == 49
    machine.check()


def test_a_reader_is_led_over_the_gaps() -> None:
    machine = filled(2)
    while machine.cleaned_to < machine.log.active_base_offset:
        machine.clean()
    offsets = {record.offset for record in machine.found()}
    for offset in range(machine.log.log_end_offset):
        read = machine.log.read(offset, 1, minimum_one=True)
        header = next(header for _, header in headers(read.data))
        assert header.last_offset >= offset
        assert not set(range(offset, header.base_offset)) & offsets


def test_a_restarted_log_is_as_it_was_cleaned() -> None:
    machine = filled(3)
    machine.clean()
    machine.log.close()
    machine.start()
    machine.check()


def restarted(machine: Machine, gaps_to: int, recovery_point: int = 0) -> Log:
    """0: its checkpoint could not be read, or says more than the disk has."""
    root = DirectoryState("/data")
    root.gaps_to = lambda _: gaps_to
    disk = SimulatedDisk(machine.platter)
    return Log.open(disk, DIRECTORY, PARTITION, CONFIG, now_ms=NOW, root=root, recovery_point=recovery_point)


def cleaned_to_the_end(seed: int) -> Machine:
    machine = filled(seed)
    while machine.cleaned_to < machine.log.active_base_offset:
        machine.clean()
    segments = machine.log.segments
    ends = [segment.load_tail() for segment in segments[:-1]]
    assert any(end < segment.base_offset for end, segment in zip(ends, segments[1:], strict=True)), "no gap at an end"
    return machine


@pytest.mark.parametrize("seed", range(4))
def test_a_scan_from_the_start_does_not_take_what_was_compacted_for_a_lost_end(seed: int) -> None:
    machine = cleaned_to_the_end(seed)
    end, segments = machine.log.log_end_offset, [segment.base_offset for segment in machine.log.segments]
    machine.log.flush()
    machine.log = restarted(machine, machine.cleaned_to)
    assert machine.log.log_end_offset == end
    assert [segment.base_offset for segment in machine.log.segments] == segments
    machine.check()


def test_a_scan_from_the_start_finds_a_lost_end_behind_what_was_compacted() -> None:
    machine = cleaned_to_the_end(4)
    for number in range(8):
        machine.append([(f"k{number}", "new"), ("often", "new")], 0)
    machine.flush()
    segments = machine.log.segments
    lost = next(each for each in segments if each.base_offset >= machine.cleaned_to)
    assert lost is not segments[-1]
    *_, last = lost.walk_from(0)
    lost.truncate(last[0])
    machine.log.flush()
    machine.log = restarted(machine, machine.cleaned_to)
    assert machine.log.log_end_offset == last[1].base_offset


def test_what_an_older_node_left_of_a_longer_log_hides_no_lost_end() -> None:
    """It cut the log, and knows nothing of the file: that speaks of offsets above the recovery point, where nothing was ever cleaned."""
    machine = cleaned_to_the_end(4)
    stable = machine.log.log_end_offset
    for number in range(16):
        machine.append([(f"k{number}", "new"), ("often", "new")], 0)
    machine.log.flush()
    lost = next(each for each in machine.log.segments if each.base_offset > stable)
    assert lost is not machine.log.segments[-1]
    *_, last = lost.walk_from(0)
    lost.truncate(last[0])
    machine.log = restarted(machine, gaps_to=10_000, recovery_point=stable)
    assert machine.log.log_end_offset == last[1].base_offset


def is_cut_at(machine: Machine, operation: int) -> bool:
    """A cleaning during whose operation of that number the power goes; False: it was over before."""
    task = machine.cleaner.next_task([machine.log], NOW)
    assert task is not None
    machine.platter.crash_at_operation(operation)
    try:
        machine.finish(task)
    except SimulatedCrash:
        return True
    machine.platter.cancel_crash()
    return False


@pytest.mark.parametrize("seed", range(6))
def test_a_power_cut_at_any_operation_of_a_cleaning_loses_nothing(seed: int) -> None:
    for operation in range(1, 400):
        machine = filled(seed * 1000 + operation)
        cleanable = machine.log.active_base_offset
        if not is_cut_at(machine, operation):
            machine.check()
            return
        machine.recover()
        found = machine.found()
        # Group by group the new takes the old's place, so what is there lies between the two.
        assert {*machine.expected(10**9)} <= {*found} <= {*machine.records}
        assert found == sorted(found, key=lambda record: record.offset)
        assert {record for record in machine.records if record.offset >= cleanable} <= {*found}
        machine.log.close()
        assert damage(machine.disk) == []
    raise AssertionError("the cleaning never ended")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("are_cleaned_lost", [False, True])
def test_a_cut_at_any_operation_of_a_cleaning_and_lost_checkpoints_lose_nothing(
    seed: int, are_cleaned_lost: bool
) -> None:
    """The recovery points, and the cleaner's offsets perhaps."""
    for operation in range(1, 400):
        machine = filled(seed * 1000 + operation)
        if not is_cut_at(machine, operation):
            assert operation > 30
            return
        disk = machine.disk = SimulatedDisk(machine.platter)
        if are_cleaned_lost and disk.exists(f"/data/{CLEANER_OFFSETS}"):
            disk.unlink(f"/data/{CLEANER_OFFSETS}")
        machine.log = restarted(machine, CleanedOffsets(disk).gaps_to("/data", machine.log.key))
        assert {*machine.expected(10**9)} <= {*machine.found()}, operation
        machine.log.close()
    raise AssertionError("the cleaning never ended")


def test_a_log_that_was_read_anew_under_the_worker_keeps_what_it_had() -> None:
    machine = filled(1)
    log = machine.log
    task = machine.cleaner.next_task([log], NOW)
    assert task is not None
    outcome = Outcome(result=clean(machine.disk, task.job))
    machine.platter.fail_once(1, errno.ENOSPC, ("truncate",))
    with pytest.raises(StorageError):
        log.truncate_to(log.log_end_offset - 1)
    log.root.set_full(False)
    assert not machine.cleaner.install(task, outcome), "its files were swept away"
    assert machine.found() == [record for record in machine.records if record.offset < log.log_end_offset]
    assert machine.cleaner.next_task([log], NOW) is not None


Pairs = list[tuple[str, str | None]]
PAIRS = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.sampled_from(["1", "a value of some length", None])), min_size=1, max_size=4
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), PAIRS, st.integers(0, 4)),
        st.tuples(st.just("append"), PAIRS, st.integers(0, 4)),
        st.tuples(st.sampled_from(["roll", "clean", "flush", "power_cut", "restart"]), st.just([]), st.just(0)),
    ),
    min_size=5,
    max_size=40,
)
Step = tuple[Literal["append", "roll", "clean", "flush", "power_cut", "restart"], Pairs, int]


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), STEPS)
def test_any_history_of_appends_cleanings_and_power_cuts_keeps_the_last_values(seed: int, steps: list[Step]) -> None:
    machine = Machine(seed)
    for step, pairs, codec in steps:
        if step == "append":
            machine.append(pairs, codec)
        elif step == "restart":
            machine.log.close()
            machine.recovery_point = machine.log.recovery_point
            machine.start()
        elif step == "roll":
            machine.log.roll()
        else:
            getattr(machine, step)()
        assert machine.found() == machine.expected(machine.cleaned_to)
    machine.check()


def test_snapshots_of_segments_that_became_one_go() -> None:
    machine = Machine(1)
    for _ in range(2):
        for number in range(30):
            machine.append([("a", f"{number}")], 0)
        machine.clean()
    begun = [segment.base_offset for segment in machine.log.segments[1:]]
    assert len(begun) < 10
    assert offsets(machine.disk, DIRECTORY) == begun
