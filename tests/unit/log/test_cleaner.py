"""Compaction: what survives, what the files look like afterwards, and a model that any history is held against."""

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log.batch import DELETE_HORIZON, BatchHeader, CorruptBatchError, read_header
from ottla.log.cleaner import CleaningJob, CleaningResult, clean
from ottla.log.cleaner_map import KeyMap, map_key
from ottla.log.cleaner_plan import SegmentInfo
from ottla.log.cleaner_swap import swap_files
from ottla.log.dump import RecordRow, dump_file
from ottla.log.producer_state import ProducerStateManager
from ottla.log.records import EndMarker, Record, assemble_batch, decode_records, encode_batch, end_marker_batch
from ottla.log.scan import scan_batches
from ottla.log.transactions import AbortedTransaction, TransactionIndex
from ottla.log.verify import verify
from ottla.runtime.real_disk import RealDisk

DISK = RealDisk()
SCRATCH = "/dev/shm" if os.path.isdir("/dev/shm") else None
"""Memory, where there is some: these tests sync thousands of times."""

RETENTION = 1000
NOW = 10_000_000


class CompactedLog:
    """Segment files in a directory, and what a broker would know about them. The last segment is the active one."""

    def __init__(self, directory: Path) -> None:
        self.directory = str(directory)
        self.bases = [0]
        self.end = 0
        self.first_dirty = 0
        self.producers = ProducerStateManager()

    def path(self, base: int, suffix: str = ".log") -> str:
        return f"{self.directory}/{base:020d}{suffix}"

    def write(self, batch: bytearray) -> None:
        header = read_header(batch)
        with open(self.path(self.bases[-1]), "ab") as file:
            file.write(batch)
        completed = self.producers.replay(batch, header)
        if completed is not None and completed.aborted:
            index = TransactionIndex(DISK, self.path(self.bases[-1], ".txnindex"))
            index.append(
                AbortedTransaction(
                    completed.producer_id, completed.first_offset, completed.last_offset, completed.last_stable_offset
                )
            )
        self.end = header.next_offset

    def append(
        self,
        *pairs: tuple[str | None, str | None],
        codec: int = 0,
        pid: int = -1,
        sequence: int = -1,
        transactional: bool = False,
    ) -> int:
        """Appends a batch of (key, value); returns its base offset."""
        base = self.end
        records = [
            Record(
                base + i,
                1000 + base + i,
                None if k is None else k.encode(),
                None if v is None else v.encode(),
                (("h", b"1"),),
            )
            for i, (k, v) in enumerate(pairs)
        ]
        epoch = 0 if pid >= 0 else -1
        self.write(
            encode_batch(
                records,
                base_offset=base,
                leader_epoch=1,
                compression=codec,
                producer_id=pid,
                producer_epoch=epoch,
                base_sequence=sequence,
                transactional=transactional,
            )
        )
        return base

    def mark(self, pid: int, *, committed: bool) -> None:
        marker = EndMarker(committed, 0)
        self.write(
            end_marker_batch(
                marker,
                producer_id=pid,
                producer_epoch=0,
                timestamp=1000 + self.end,
                base_offset=self.end,
                leader_epoch=1,
            )
        )

    def roll(self) -> None:
        if not os.path.exists(self.path(self.bases[-1])):
            Path(self.path(self.bases[-1])).touch()
        if self.end > self.bases[-1]:
            self.bases.append(self.end)
            Path(self.path(self.end)).touch()

    def job(
        self,
        *,
        now_ms: int = NOW,
        buffer_bytes: int = 1 << 20,
        segment_bytes: int = 1 << 20,
        keep_producers: bool = False,
    ) -> CleaningJob:
        segments = [
            SegmentInfo(base, following, os.path.getsize(self.path(base)))
            for base, following in zip(self.bases, self.bases[1:], strict=False)
        ]
        return CleaningJob(
            directory=self.directory,
            segments=segments,
            first_dirty=self.first_dirty,
            now_ms=now_ms,
            delete_retention_ms=RETENTION,
            segment_bytes=segment_bytes,
            segment_index_bytes=10_000,
            index_interval_bytes=100,
            dedupe_buffer_bytes=buffer_bytes,
            last_records=self.producers.last_records() if keep_producers else {},
        )

    def clean(self, *, now_ms: int = NOW, buffer_bytes: int = 1 << 20, segment_bytes: int = 1 << 20) -> CleaningResult:
        """Rolls, cleans, and puts the result in place."""
        self.roll()
        result = clean(DISK, self.job(now_ms=now_ms, buffer_bytes=buffer_bytes, segment_bytes=segment_bytes))
        self.install(result)
        return result

    def install(self, result: CleaningResult) -> None:
        for cleaned in result.cleaned:
            for path in swap_files(DISK, self.directory, cleaned):
                os.unlink(path)
            self.bases = sorted({*self.bases, cleaned.base_offset} - {*cleaned.replaced} | {cleaned.base_offset})
        self.first_dirty = result.end_offset

    def batches(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        for base in self.bases:
            if os.path.exists(self.path(base)):
                file = DISK.open(self.path(base))
                yield from ((header, batch) for _, header, batch in scan_batches(file))
                file.close()

    def records(self) -> list[Record]:
        """All data records, with those of aborted transactions."""
        return [
            record
            for header, batch in self.batches()
            if not header.is_control
            for record in decode_records(batch, header)
        ]

    def pairs(self) -> list[tuple[int, str, str | None]]:
        return [
            (r.offset, (r.key or b"").decode(), None if r.value is None else r.value.decode()) for r in self.records()
        ]

    def controls(self) -> list[tuple[int, str]]:
        """(offset, type) of the control records."""
        rows = (row for base in self.bases for row in dump_file(DISK, self.path(base), records=True))
        return [(row.offset, row.control) for row in rows if isinstance(row, RecordRow) and row.control is not None]


@pytest.fixture
def log() -> Iterator[CompactedLog]:
    with TemporaryDirectory(dir=SCRATCH) as directory:
        yield CompactedLog(Path(directory))


@pytest.mark.parametrize("codec", range(5))
def test_the_last_value_of_each_key_stays_at_its_offset(log: CompactedLog, codec: int) -> None:
    log.append(("a", "1"), ("b", "1"), ("c", "1"), codec=codec)
    log.append(("b", "2"), ("a", "2"), ("b", "3"), codec=codec)
    before = {record.offset: record for record in log.records()}
    log.clean()
    assert log.pairs() == [(2, "c", "1"), (4, "a", "2"), (5, "b", "3")]
    assert all(record == before[record.offset] for record in log.records())
    assert [finding for finding in verify(DISK, log.directory) if finding.fault] == []


def test_batches_keep_their_bounds_and_lose_only_records(log: CompactedLog) -> None:
    log.append(("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"), ("c", "2"))
    log.append(("x", "1"))
    log.clean()
    header, _ = next(log.batches())
    assert (header.base_offset, header.last_offset_delta, header.records_count, header.leader_epoch) == (0, 4, 3, 1)
    assert header.max_timestamp == 1004


def test_the_largest_time_of_a_batch_is_that_of_the_records_left(log: CompactedLog) -> None:
    log.append(("a", "1"), ("b", "1"))
    log.append(("b", "2"))
    log.clean()
    assert next(log.batches())[0].max_timestamp == 1000


def test_a_batch_that_survives_whole_is_copied_byte_for_byte(log: CompactedLog) -> None:
    log.append(("a", "1"), ("b", "1"), codec=4)
    before = Path(log.path(0)).read_bytes()
    log.clean()
    assert Path(log.path(0)).read_bytes() == before


def test_the_active_segment_is_never_touched(log: CompactedLog) -> None:
    log.append(("a", "1"))
    log.roll()
    log.append(("a", "2"), ("a", "3"))
    result = clean(DISK, log.job())
    log.install(result)
    assert log.pairs() == [(0, "a", "1"), (1, "a", "2"), (2, "a", "3")]


def test_a_later_cleaning_removes_from_the_clean_part_what_came_again(log: CompactedLog) -> None:
    log.append(("a", "1"), ("b", "1"))
    log.clean()
    log.append(("a", "2"), ("c", "1"))
    log.clean()
    assert log.pairs() == [(1, "b", "1"), (2, "a", "2"), (3, "c", "1")]


def test_a_log_cleaned_twice_is_as_after_once(log: CompactedLog) -> None:
    log.append(("a", "1"), ("b", "1"), ("a", "2"))
    log.clean()
    before = Path(log.path(0)).read_bytes()
    log.first_dirty = 0
    log.clean()
    assert Path(log.path(0)).read_bytes() == before


def test_records_without_a_key_go(log: CompactedLog) -> None:
    log.append((None, "1"), ("a", "1"), (None, "2"))
    log.clean()
    assert log.pairs() == [(1, "a", "1")]


def test_an_empty_key_is_a_key(log: CompactedLog) -> None:
    log.append(("", "1"), ("", "2"))
    log.clean()
    assert log.pairs() == [(1, "", "2")]


@pytest.mark.parametrize("length", [32, 33, 40, 64, 200])
def test_keys_of_any_length_are_told_apart(log: CompactedLog, length: int) -> None:
    keys = ["k" * length, "k" * (length - 1) + "l", "k" * (length - 1)]
    log.append(*((key, "1") for key in keys), (keys[0], "2"))
    log.clean()
    assert log.pairs() == [(1, keys[1], "1"), (2, keys[2], "1"), (3, keys[0], "2")]


def test_digests_cannot_meet_keys_that_are_kept_whole() -> None:
    assert map_key(b"k" * 32) == b"k" * 32
    assert len(map_key(b"k" * 33)) == 40


def test_a_tombstone_stays_until_its_horizon_and_then_goes(log: CompactedLog) -> None:
    log.append(("a", "1"), ("b", "1"), ("a", None))
    log.append(("z", "1"))
    log.clean()
    assert log.pairs() == [(1, "b", "1"), (2, "a", None), (3, "z", "1")]
    header, batch = next(log.batches())
    assert header.attributes & DELETE_HORIZON
    assert header.base_timestamp == NOW + RETENTION
    assert [record.timestamp for record in decode_records(batch, header)] == [1001, 1002]
    assert header.max_timestamp == 1002
    log.append(("y", "1"))
    log.clean(now_ms=NOW + RETENTION - 1)
    assert (2, "a", None) in log.pairs()
    assert next(log.batches())[0].base_timestamp == NOW + RETENTION
    log.append(("x", "1"))
    log.clean(now_ms=NOW + RETENTION)
    assert log.pairs() == [(1, "b", "1"), (3, "z", "1"), (4, "y", "1"), (5, "x", "1")]


def test_a_value_after_a_tombstone_removes_the_tombstone_at_once(log: CompactedLog) -> None:
    log.append(("a", None))
    log.append(("a", "1"))
    log.clean()
    assert log.pairs() == [(1, "a", "1")]


def test_times_survive_in_compressed_batches_with_a_horizon(log: CompactedLog) -> None:
    log.append(("a", None), ("b", "1"), codec=3)
    before = log.records()
    log.clean()
    assert log.records() == before
    log.append(("b", "2"))
    log.clean()
    assert log.pairs() == [(0, "a", None), (2, "b", "2")]
    assert [record.timestamp for record in log.records()] == [1000, 1002]


def test_neighbouring_segments_become_one_and_the_last_batch_tells_its_end(log: CompactedLog) -> None:
    log.append(("a", "1"))
    log.roll()
    log.append(("a", "2"))
    log.roll()
    log.append(("a", "3"))
    log.roll()
    log.append(("a", "4"))
    log.roll()
    log.append(("b", "1"))
    result = clean(DISK, log.job())
    assert [part.replaced for part in result.cleaned] == [(0, 1, 2, 3)]
    log.install(result)
    assert log.pairs() == [(3, "a", "4"), (4, "b", "1")]
    log.append(("a", "5"))
    log.clean()
    assert log.pairs() == [(4, "b", "1"), (5, "a", "5")]


def test_a_group_whose_records_all_went_still_ends_where_it_did(log: CompactedLog) -> None:
    log.append(("a", "1"), ("a", "2"))
    log.roll()
    log.append(("a", "3"), ("a", "4"))
    result = log.clean(segment_bytes=1)
    assert [part.replaced for part in result.cleaned] == [(0,), (2,)]
    headers = [header for header, _ in log.batches()]
    assert [(h.base_offset, h.next_offset, h.records_count) for h in headers] == [(0, 2, 0), (2, 4, 1)]


def test_a_map_that_is_full_cleans_up_to_where_it_ends(log: CompactedLog) -> None:
    for number in range(10):
        log.append((f"k{number}", "1"), ("a", str(number)))
    result = log.clean(buffer_bytes=160 * 5)
    assert result.end_offset == 6
    assert log.pairs()[:4] == [(0, "k0", "1"), (2, "k1", "1"), (4, "k2", "1"), (5, "a", "2")]
    assert log.pairs()[4:] == [
        (o, k, v) for n in range(3, 10) for o, k, v in [(2 * n, f"k{n}", "1"), (2 * n + 1, "a", str(n))]
    ]
    while log.first_dirty < log.end:
        log.clean(buffer_bytes=160 * 5)
    assert log.pairs() == [(2 * n, f"k{n}", "1") for n in range(10)] + [(19, "a", "9")]


def test_one_batch_always_fits_the_map(log: CompactedLog) -> None:
    log.append(*((f"k{n}", "1") for n in range(10)))
    assert log.clean(buffer_bytes=1).end_offset == 10
    assert KeyMap(0).capacity == 1


def test_the_last_batch_of_a_living_producer_stays_empty(log: CompactedLog) -> None:
    log.append(("a", "1"), pid=5, sequence=0)
    log.append(("a", "2"), pid=6, sequence=0)
    log.append(("a", "3"))
    log.append(("z", "1"))
    log.roll()
    log.install(clean(DISK, log.job(keep_producers=True)))
    found = [(h.base_offset, h.producer_id, h.base_sequence, h.records_count) for h, _ in log.batches()]
    assert found == [(0, 5, 0, 0), (1, 6, 0, 0), (2, -1, -1, 1), (3, -1, -1, 1)]
    log.producers.expire(NOW * 2, 1)
    log.append(("y", "1"))
    log.roll()
    log.install(clean(DISK, log.job(keep_producers=True)))
    assert [h.base_offset for h, _ in log.batches()] == [2, 3, 4]


def test_aborted_records_go_and_do_not_hide_committed_ones(log: CompactedLog) -> None:
    log.append(("a", "1"), ("b", "1"))
    log.append(("a", "aborted"), ("c", "aborted"), pid=5, sequence=0, transactional=True)
    log.mark(5, committed=False)
    log.append(("b", "2"), pid=5, sequence=2, transactional=True)
    log.mark(5, committed=True)
    log.clean()
    assert log.pairs() == [(0, "a", "1"), (5, "b", "2")]
    assert log.controls() == [(4, "ABORT"), (6, "COMMIT")]


def test_markers_go_a_horizon_after_their_data(log: CompactedLog) -> None:
    log.append(("a", "x"), pid=5, sequence=0, transactional=True)
    log.mark(5, committed=False)
    log.append(("b", "x"), pid=6, sequence=0, transactional=True)
    log.mark(6, committed=True)
    log.append(("b", "2"))
    log.append(("z", "1"))
    log.clean()
    assert log.pairs() == [(4, "b", "2"), (5, "z", "1")]
    assert log.controls() == [(1, "ABORT"), (3, "COMMIT")]
    log.append(("y", "1"))
    log.clean(now_ms=NOW + 5)  # the data is gone now, so the horizon begins
    assert log.controls() == [(1, "ABORT"), (3, "COMMIT")]
    log.append(("x", "1"))
    log.clean(now_ms=NOW + 4 + RETENTION)
    assert log.controls() == [(1, "ABORT"), (3, "COMMIT")]
    log.append(("w", "1"))
    log.clean(now_ms=NOW + 5 + RETENTION)
    assert log.controls() == []


def test_the_transaction_index_names_aborted_data_that_may_still_be_read(log: CompactedLog) -> None:
    log.append(("a", "x"), pid=5, sequence=0, transactional=True)
    log.mark(5, committed=False)
    log.append(("z", "1"))
    log.clean()
    assert TransactionIndex(DISK, log.path(0, ".txnindex")).entries() == [AbortedTransaction(5, 0, 1, 2)]
    log.append(("y", "1"))
    log.clean()
    assert not os.path.exists(log.path(0, ".txnindex"))


def test_a_transaction_aborted_behind_the_cleaned_part_is_known(log: CompactedLog) -> None:
    log.append(("a", "1"))
    log.append(("a", "x"), pid=5, sequence=0, transactional=True)
    log.roll()
    log.append(("b", "1"))
    log.mark(5, committed=False)
    log.install(clean(DISK, log.job()))
    assert log.pairs() == [(0, "a", "1"), (2, "b", "1")]


def test_an_aborted_transaction_before_the_dirty_part_does_not_taint_a_later_one(log: CompactedLog) -> None:
    log.append(("a", "x"), pid=5, sequence=0, transactional=True)
    log.mark(5, committed=False)
    log.append(("q", "1"))
    log.clean()
    log.append(("a", "1"), pid=5, sequence=1, transactional=True)
    log.mark(5, committed=True)
    log.append(("a", "2"), pid=5, sequence=2, transactional=True)
    log.mark(5, committed=True)
    log.clean()
    assert log.pairs() == [(2, "q", "1"), (5, "a", "2")]


def test_a_damaged_batch_stops_the_cleaning(log: CompactedLog) -> None:
    log.append(("a", "1"))
    log.append(("a", "2"))
    log.roll()
    with open(log.path(0), "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\xaa")
    with pytest.raises(CorruptBatchError):
        clean(DISK, log.job())


def test_a_batch_whose_records_are_none_is_kept_as_it_is(log: CompactedLog) -> None:
    log.append(("a", "1"))
    header = read_header(encode_batch([Record(1, 0, b"a", b"")], base_offset=1, leader_epoch=1))
    log.write(assemble_batch(header._replace(records_count=3, last_offset_delta=2), b"\x10\x00\x00\x00\x02anonsense"))
    log.append(("a", "2"))
    before = [bytes(batch) for _, batch in log.batches()]
    log.clean()
    assert [bytes(batch) for _, batch in log.batches()] == before[1:]
    log.append(("b", "2"))
    log.clean()
    assert [bytes(batch) for _, batch in log.batches()][:2] == before[1:]


def test_what_an_earlier_cleaning_left_is_removed(log: CompactedLog) -> None:
    Path(log.path(77, ".log.cleaned")).touch()
    log.append(("a", "1"))
    log.clean()
    assert not os.path.exists(log.path(77, ".log.cleaned"))


def test_nothing_new_is_nothing_replaced(log: CompactedLog) -> None:
    log.append(("a", "1"))
    log.clean()
    result = clean(DISK, log.job())
    assert (result.cleaned, result.end_offset) == ([], 1)


def test_the_pace_is_told_every_byte_and_can_stop_it(log: CompactedLog) -> None:
    log.append(("a", "x" * 5000))
    log.roll()
    told: list[int] = []
    clean(DISK, log.job(), told.append)
    assert sum(told) == 2 * os.path.getsize(log.path(0))

    def stop(count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        clean(DISK, log.job(), stop)


def test_a_job_and_its_result_travel_as_json(log: CompactedLog) -> None:
    log.append(("a", "1"), pid=5, sequence=0)
    log.roll()
    job = log.job(keep_producers=True)
    assert msgspec.json.decode(msgspec.json.encode(job), type=CleaningJob) == job
    result = clean(DISK, job)
    assert msgspec.json.decode(msgspec.json.encode(result), type=CleaningResult) == result


def test_indexes_of_a_cleaned_segment_point_at_its_batches(log: CompactedLog) -> None:
    for number in range(50):
        log.append((f"k{number % 20}", "v" * 30), (f"l{number}", "v"))
    log.clean()
    index = Path(log.path(0, ".index")).read_bytes()
    assert len(index) >= 8 * 10
    assert [finding for finding in verify(DISK, log.directory) if finding.fault] == []
    assert struct.unpack(">qi", Path(log.path(0, ".timeindex")).read_bytes()[-12:]) == (1099, 99)


KEYS = ["a", "b", "c", "a much longer key, of more than thirty-two bytes", ""]
PAIRS = st.lists(st.tuples(st.sampled_from([*KEYS, None]), st.sampled_from(["1", "2", None])), min_size=1, max_size=5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), PAIRS, st.integers(0, 4)),
        st.tuples(st.just("transaction"), PAIRS, st.booleans()),
        st.tuples(st.just("roll"), st.just([]), st.just(0)),
        st.tuples(st.just("clean"), st.just([]), st.integers(1, 12)),
    ),
    min_size=2,
    max_size=25,
)
Step = tuple[str, list[tuple[str | None, str | None]], int]


class Model:
    """The log as a list. A record is right where it must be kept, wrong where it must be gone, and may do either in between."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def check(self, found: list[Record], cleaned_to: int, horizon_passed: bool) -> None:
        last = {record.key: record.offset for record in self.records if record.offset < cleaned_to}
        must, may = [], set()
        for record in self.records:
            if record.offset < cleaned_to and (record.key is None or last[record.key] != record.offset):
                continue
            may.add(record.offset)
            if record.value is not None or record.offset >= cleaned_to or not horizon_passed:
                must.append(record)
        assert [record for record in found if record.offset in {record.offset for record in must}] == must
        assert {record.offset for record in found} <= may


@settings(max_examples=150, deadline=None)
@given(STEPS, st.booleans())
def test_after_any_history_the_last_value_of_each_key_is_there_and_nothing_else(steps: list[Step], slow: bool) -> None:
    with TemporaryDirectory(dir=SCRATCH) as directory:
        log, model = CompactedLog(Path(directory)), Model()
        sequence, now_ms = 0, NOW
        for step, pairs, extra in steps:
            if step == "append":
                base = log.append(*pairs, codec=extra)
                model.records += [record for record in log.records() if record.offset >= base]
            elif step == "transaction":
                base = log.append(*pairs, pid=5, sequence=sequence, transactional=True)
                sequence += len(pairs)
                if extra:
                    model.records += [record for record in log.records() if record.offset >= base]
                log.mark(5, committed=bool(extra))
            elif step == "roll":
                log.roll()
            else:
                now_ms += 1 if slow else RETENTION
                result = log.clean(now_ms=now_ms, buffer_bytes=extra * 160, segment_bytes=extra * 100)
                found = [record for record in log.records() if record.offset < result.end_offset]
                kept = [record for record in model.records if record.offset < result.end_offset]
                assert {record.offset for record in found} <= {record.offset for record in kept}
                model.check(
                    [r for r in log.records() if r in set(model.records)], result.end_offset, horizon_passed=not slow
                )
                assert [finding for finding in verify(DISK, log.directory) if finding.fault] == []
