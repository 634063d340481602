"""The indexes of aborted transactions: right after a crash, and made anew when they cannot be right."""

import errno
from collections.abc import Callable
from random import Random

import pytest

from ottla.log import replay
from ottla.log.batch import headers
from ottla.log.compaction.cleaner import clean
from ottla.log.compaction.manager import CleanerSettings, LogCleaner
from ottla.log.compaction.offsets import CleanedOffsets
from ottla.log.compaction.worker import Outcome
from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.records import EndMarker, Record, encode_batch, end_marker_batch
from ottla.log.segments.transactions import ENTRY_BYTES, AbortedTransaction, decode, encode
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import FAILS_WITH, Platter

PARTITION = TopicPartition("flights", 0)
DIRECTORY = "/data/flights-0"
NOW_MS = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=900)
END = 60
EXPECTED = [AbortedTransaction(number % 3, 4 * number, 4 * number + 2, 4 * number + 3) for number in range(15)]


def open_log(disk: SimulatedDisk, *, recovery_point: int = 0, clean: bool = False, config: LogConfig = CONFIG) -> Log:
    return Log.open(
        disk, DIRECTORY, PARTITION, config, now_ms=NOW_MS, recovery_point=recovery_point, clean_shutdown=clean
    )


def written(disk: SimulatedDisk) -> Log:
    """Fifteen aborted transactions of two records each, a record of nobody's behind each, over several segments."""
    disk.make_directories(DIRECTORY)
    log = open_log(disk)
    for number in range(15):
        base, producer = 4 * number, number % 3
        data = [Record(base + i, NOW_MS, b"k", b"v") for i in range(2)]
        batches = (
            encode_batch(
                data,
                base_offset=base,
                leader_epoch=0,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=number // 3 * 2,
                transactional=True,
            ),
            end_marker_batch(
                EndMarker(False, 0),
                producer_id=producer,
                producer_epoch=0,
                timestamp=NOW_MS,
                base_offset=base + 2,
                leader_epoch=0,
            ),
            encode_batch([Record(base + 3, NOW_MS, b"k", b"v")], base_offset=base + 3, leader_epoch=0),
        )
        for batch in batches:
            log.append_as_follower(bytes(batch))
    assert len(log.segments) > 3
    assert log.aborted_transactions(0, END) == EXPECTED
    return log


@pytest.mark.parametrize("recovery_point", [0, 7, 21, 40, END])
def test_a_killed_log_knows_all_its_aborted_transactions(recovery_point: int) -> None:
    disk = SimulatedDisk(Platter.seeded(1))
    written(disk).flush()
    log = open_log(disk, recovery_point=recovery_point)
    assert log.aborted_transactions(0, END) == EXPECTED
    log.close()
    assert open_log(disk, clean=True).aborted_transactions(0, END) == EXPECTED


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_transaction_index_is_made_anew(seed: int, clean: bool) -> None:
    rng, disk = Random(seed), SimulatedDisk(Platter.seeded(seed))
    written(disk).close()
    indexes = [name for name in disk.list_directory(DIRECTORY) if name.endswith(".txnindex")]
    file = disk.open(f"{DIRECTORY}/{rng.choice(indexes)}")
    position = rng.randrange(file.size())
    match seed % 3:
        case 0:
            # Of the last stable offset only impossible values show: its lower bytes stay as they are.
            field = position // ENTRY_BYTES * ENTRY_BYTES + rng.randrange(26)
            file.write_at([bytes([file.read_at(1, field)[0] ^ 1 << rng.randrange(8)])], field)
        case 1:
            file.truncate(position if position % ENTRY_BYTES else position + 1)
        case _:
            file.write_at(
                [bytes(file.size() - position // ENTRY_BYTES * ENTRY_BYTES)], position // ENTRY_BYTES * ENTRY_BYTES
            )
    log = open_log(disk, recovery_point=rng.choice([0, 30, END]), clean=clean)
    assert log.aborted_transactions(0, END) == EXPECTED
    log.close()
    assert open_log(disk, clean=True).aborted_transactions(0, END) == EXPECTED


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda each: each._replace(producer_id=each.producer_id + 1), id="another producer's"),
        pytest.param(lambda each: each._replace(last_offset=each.last_offset + 1), id="no marker where it ends"),
        pytest.param(lambda each: each._replace(last_offset=each.first_offset), id="data of its own where it ends"),
        pytest.param(lambda each: each._replace(first_offset=each.first_offset - 1), id="nobody's data where it begins"),
        pytest.param(lambda each: each._replace(first_offset=each.first_offset - 4), id="another's where it begins"),
        pytest.param(lambda each: each._replace(first_offset=each.first_offset + 1), id="no batch begins there"),
        pytest.param(lambda each: each._replace(last_stable_offset=each.first_offset - 1), id="stable before it began"),
        pytest.param(lambda each: each._replace(last_stable_offset=each.last_offset + 2), id="stable beyond its marker"),
    ],
)  # fmt: skip
def test_an_entry_that_the_log_contradicts_is_not_believed(
    wrong: Callable[[AbortedTransaction], AbortedTransaction],
) -> None:
    disk = SimulatedDisk(Platter.seeded(1))
    written(disk).close()
    path = f"{DIRECTORY}/{[name for name in disk.list_directory(DIRECTORY) if name.endswith('.txnindex')][1]}"
    first, *others = decode(disk.read_bytes(path))
    disk.open(path).write_at([b"".join(map(encode, (wrong(first), *others)))], 0)
    assert open_log(disk, clean=True).aborted_transactions(0, END) == EXPECTED


def test_a_cut_keeps_a_damaged_index_from_being_believed() -> None:
    disk = SimulatedDisk(Platter.seeded(1))
    written(disk).close()
    last = [name for name in disk.list_directory(DIRECTORY) if name.endswith(".txnindex")][-1]
    disk.open(f"{DIRECTORY}/{last}").truncate(ENTRY_BYTES + 1)
    log = open_log(disk, clean=True)
    log.truncate_to(END - 1)
    assert log.aborted_transactions(0, END) == EXPECTED


def test_a_cleaning_finds_sound_indexes() -> None:
    disk = SimulatedDisk(Platter.seeded(1))
    written(disk).close()
    indexes = [name for name in disk.list_directory(DIRECTORY) if name.endswith(".txnindex")]
    for name in indexes:
        disk.open(f"{DIRECTORY}/{name}").truncate(ENTRY_BYTES + 1)
    open_log(disk, clean=True).ensure_aborted()
    found = [entry for name in indexes for entry in decode(disk.read_bytes(f"{DIRECTORY}/{name}"))]
    assert found == EXPECTED


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOSPC])
def test_a_cleaning_finds_what_could_not_be_written_when_it_was_aborted(number: int) -> None:
    """It would take the records of an aborted transaction for committed ones, and from then on everybody would."""
    platter = Platter.seeded(1)
    disk = SimulatedDisk(platter)

    def fail(operation: str, path: str) -> None:
        if path.endswith(".txnindex") and operation in FAILS_WITH[number]:
            raise OSError(number, "planted", path)

    platter.on_attempt = fail
    log = written(disk)
    platter.on_attempt = None
    log.ensure_aborted()
    names = disk.list_directory(DIRECTORY)
    found = [decode(disk.read_bytes(f"{DIRECTORY}/{name}")) for name in names if name.endswith(".txnindex")]
    assert [entry for entries in found for entry in entries] == EXPECTED


@pytest.mark.parametrize("seed", range(6))
def test_an_index_made_anew_after_a_power_cut_outlives_the_next(seed: int) -> None:
    """What it has lies below the saved recovery point: nobody would look for it again."""
    platter = Platter.seeded(seed)
    disk = SimulatedDisk(platter)
    log = written(disk)
    log.truncate_to(END - 2)  # where the last segment has some
    log.close()
    disk.sync_everything("/data")
    file = disk.open(log.active.path)
    file.write_at([b"torn"], file.size())
    open_log(disk, recovery_point=END - 2)
    disk.sync_directory(DIRECTORY)  # as before the next record that counts
    platter.power_loss()
    log = open_log(SimulatedDisk(platter), recovery_point=END - 2)
    assert log.aborted_transactions(0, END) == EXPECTED[:-1]


def test_a_segment_that_is_gone_leaves_no_index_for_a_cleaning_to_believe() -> None:
    """Its entry found no room when the transaction was aborted."""
    platter = Platter.seeded(1)
    disk = SimulatedDisk(platter)
    disk.make_directories(DIRECTORY)
    config = LogConfig(cleanup_policy=("compact", "delete"), min_cleanable_dirty_ratio=0.0)
    log = Log.open(disk, DIRECTORY, PARTITION, config, now_ms=NOW_MS)
    repair = platter.fail(f"{DIRECTORY}/{0:020d}.txnindex", errno.ENOSPC)
    transaction(log, committed=False)
    repair()
    log.roll()
    log.set_high_watermark(2)
    log.advance_log_start(2)
    assert log.delete_old_segments(NOW_MS) == [0]
    log.flush()
    transaction(log, committed=True)
    log.roll()
    log.flush()
    log.set_high_watermark(4)
    cleaner = LogCleaner(disk, CleanerSettings(), CleanedOffsets(disk))
    task = cleaner.next_task([log], NOW_MS)
    assert task is not None
    assert cleaner.install(task, Outcome(result=clean(disk, task.job)))
    assert [header.records_count for _, header in headers(log.read(2, 10_000).data)] == [1, 1]


def transaction(log: Log, *, committed: bool) -> None:
    """One record of producer 1 and its marker."""
    base = log.log_end_offset
    log.append_as_follower(
        bytes(
            encode_batch(
                [Record(base, NOW_MS, b"k", b"v")],
                base_offset=base,
                leader_epoch=0,
                producer_id=1,
                producer_epoch=0,
                base_sequence=base // 2,
                transactional=True,
            )
            + end_marker_batch(
                EndMarker(committed, 0),
                producer_id=1,
                producer_epoch=0,
                timestamp=NOW_MS,
                base_offset=base + 1,
                leader_epoch=0,
            )
        )
    )


ONE_SEGMENT = LogConfig(index_interval_bytes=50)
HISTORY = ["1", "2", "nobody", "2", "1", "abort2", "nobody", "3", "abort1", "abort3", "nobody", "3", "abort3", "1"]
BEGUN_BEFORE = AbortedTransaction(2, 1, 5, 0)  # by producer 2, while the older one of producer 1 is open
OVERLAPPING = [
    BEGUN_BEFORE,
    AbortedTransaction(1, 0, 8, 7),
    AbortedTransaction(3, 7, 9, 10),
    AbortedTransaction(3, 11, 12, 13),
]


def overlapping(disk: SimulatedDisk) -> None:
    """Transactions that end in another order than they began, all in one segment."""
    disk.make_directories(DIRECTORY)
    log = open_log(disk, config=ONE_SEGMENT)
    record = [Record(0, NOW_MS, b"k", b"v")]
    for offset, what in enumerate(HISTORY):
        if what == "nobody":
            log.append_as_leader(encode_batch(record), 0, NOW_MS)
            continue
        producer = int(what[-1])
        if what.startswith("abort"):
            marker = end_marker_batch(EndMarker(False, 0), producer_id=producer, producer_epoch=0, timestamp=NOW_MS)
            log.append_own(marker, 0, NOW_MS)
            continue
        entry = log.producers.entry(producer)
        sequence = entry.next_sequence if entry is not None else 0
        batch = encode_batch(record, producer_id=producer, producer_epoch=0, base_sequence=sequence, transactional=True)
        assert log.append_as_leader(batch, 0, NOW_MS, verified=True).first_offset == offset
    log.set_high_watermark(log.log_end_offset)
    assert log.aborted_transactions(0, END) == OVERLAPPING
    log.close()


def index_path(disk: SimulatedDisk) -> str:
    (name,) = [name for name in disk.list_directory(DIRECTORY) if name.endswith(".txnindex")]
    return f"{DIRECTORY}/{name}"


def test_an_index_of_transactions_that_overlap_is_believed_without_a_look_at_the_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was made anew in each life of the process, with all of the segment read while a consumer waited."""
    disk = SimulatedDisk(Platter.seeded(1))
    overlapping(disk)
    log = open_log(disk, clean=True, config=ONE_SEGMENT)
    monkeypatch.setattr(replay, "pieces", lambda *_: pytest.fail("the segment is read"))
    assert log.aborted_transactions(0, END) == OVERLAPPING


@pytest.mark.parametrize("stable", [-1, 2, 3, 5, 7, 1 << 60])
def test_an_open_transaction_that_is_not_where_an_entry_says_is_not_believed(stable: int) -> None:
    disk = SimulatedDisk(Platter.seeded(1))
    overlapping(disk)
    wrong = BEGUN_BEFORE._replace(last_stable_offset=stable)
    disk.open(index_path(disk)).write_at([encode(wrong)], 0)
    found = open_log(disk, clean=True, config=ONE_SEGMENT).aborted_transactions(0, END)
    # Nothing tells the first batch of a transaction from its second one.
    assert found == ([wrong, *OVERLAPPING[1:]] if stable == 3 else OVERLAPPING)


@pytest.mark.parametrize("cut", [False, True])
def test_an_index_made_anew_around_damage_keeps_what_it_knew_behind_it(cut: bool) -> None:
    """Nobody else knows it; without it the records of an aborted transaction were delivered at read_committed."""
    disk = SimulatedDisk(Platter.seeded(1))
    overlapping(disk)
    log = open_log(disk, clean=True, config=ONE_SEGMENT)
    (at,) = [position for position, header in log.active.walk_from(0) if header.base_offset == 4]
    disk.open(log.active.path).write_at([b"\x07"], at + 16)
    if cut:
        file = disk.open(index_path(disk))
        file.truncate(file.size() - 1)
    else:
        disk.open(index_path(disk)).write_at([encode(BEGUN_BEFORE._replace(producer_id=9))], 0)
    found = open_log(disk, clean=True, config=ONE_SEGMENT).aborted_transactions(0, END)
    assert found == (OVERLAPPING[:-1] if cut else OVERLAPPING[1:])
