"""What dump shows and what verify finds, on directories made by hand."""

import re
import struct
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from ottla.log.batch import read_header
from ottla.log.directories.checkpoints import MetaProperties, PartitionMetadata, write_epochs
from ottla.log.names import TopicPartition
from ottla.log.producers.state import ProducerStateManager
from ottla.log.records import ControlType, EndMarker, Record, control_key, encode_batch, end_marker_batch, value_batch
from ottla.log.segments.transactions import AbortedTransaction, encode
from ottla.log.tools.dump import (
    BatchRow,
    CheckpointRow,
    Damage,
    EpochRow,
    OffsetIndexRow,
    ProducerRow,
    PropertyRow,
    RecordRow,
    Row,
    TimeIndexRow,
    TransactionRow,
    dump_file,
)
from ottla.log.tools.verify import Finding, verify, verify_root
from ottla.runtime.identifiers import id_to_text
from ottla.runtime.real_disk import RealDisk
from ottla.testing.log.offset_checkpoint import OffsetCheckpoint

DISK = RealDisk()
TOPIC_ID = bytes(range(16))
STEM = f"{0:020d}"
NEXT_STEM = f"{13:020d}"


def batches() -> list[bytearray]:
    """Offsets 0..12: every codec, an aborted transaction, two leader epochs."""
    made = [
        encode_batch(
            [
                Record(2 * codec + i, 100 + codec, b"k%d" % i, None if codec == 4 else b"v", (("h", None),))
                for i in range(2)
            ],
            base_offset=2 * codec,
            leader_epoch=3,
            compression=codec,
            producer_id=7,
            producer_epoch=1,
            base_sequence=2 * codec,
        )
        for codec in range(5)
    ]
    aborted = [Record(10, 200, None, b"x"), Record(11, 200, None, b"y")]
    made.append(
        encode_batch(
            aborted,
            base_offset=10,
            leader_epoch=5,
            producer_id=8,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
    )
    marker = EndMarker(False, coordinator_epoch=2)
    made.append(
        end_marker_batch(marker, producer_id=8, producer_epoch=0, timestamp=201, base_offset=12, leader_epoch=5)
    )
    return made


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A sound root with one partition of two segments; returns the partition's directory."""
    partition = tmp_path / "topic-0"
    partition.mkdir()
    made = batches()
    positions = [sum(map(len, made[:i])) for i in range(len(made))]
    (partition / f"{STEM}.log").write_bytes(b"".join(made))
    (partition / f"{STEM}.index").write_bytes(struct.pack(">iiii", 5, positions[2], 11, positions[5]))
    (partition / f"{STEM}.timeindex").write_bytes(struct.pack(">qiqi", 102, 5, 201, 12))
    (partition / f"{STEM}.txnindex").write_bytes(encode(AbortedTransaction(8, 10, 12, 13)))
    (partition / f"{NEXT_STEM}.log").write_bytes(
        value_batch([b"a", b"b"], base_offset=13, leader_epoch=5, timestamp=300)
    )
    (partition / f"{NEXT_STEM}.index").write_bytes(b"")
    (partition / f"{NEXT_STEM}.timeindex").write_bytes(struct.pack(">qi", 300, 1))
    producers = ProducerStateManager()
    for batch in made:
        producers.replay(batch, read_header(batch))
    producers.take_snapshot(DISK, str(partition), 13)
    write_epochs(DISK, str(partition), ((3, 0), (5, 10)))
    PartitionMetadata.write(DISK, str(partition), TOPIC_ID)
    OffsetCheckpoint(DISK, str(tmp_path / "recovery-point-offset-checkpoint")).write({TopicPartition("topic", 0): 13})
    MetaProperties("cluster", 1, TOPIC_ID).write(DISK, str(tmp_path))
    return partition


def rows(path: Path, *, records: bool = False, decode: Callable[[Record], object] | None = None) -> list[Row]:
    return list(dump_file(DISK, str(path), records=records, decode=decode))


def test_a_segment_shows_its_batches(directory: Path) -> None:
    found = [row for row in rows(directory / f"{STEM}.log") if isinstance(row, BatchRow)]
    assert [row.codec for row in found] == ["none", "gzip", "snappy", "lz4", "zstd", "none", "none"]
    assert all(row.valid for row in found)
    first, transactional, marker = found[0], found[5], found[6]
    assert (first.base_offset, first.last_offset, first.count, first.leader_epoch) == (0, 1, 2, 3)
    assert (first.producer_id, first.producer_epoch, first.base_sequence, first.last_sequence) == (7, 1, 0, 1)
    assert (first.time_type, first.max_timestamp, first.delete_horizon) == ("CreateTime", 100, None)
    assert (transactional.transactional, transactional.control) == (True, False)
    assert (marker.transactional, marker.control, marker.last_sequence) == (True, True, -1)


def test_a_segment_shows_its_records_if_wanted(directory: Path) -> None:
    found = [row for row in rows(directory / f"{STEM}.log", records=True) if isinstance(row, RecordRow)]
    assert [row.offset for row in found] == list(range(13))
    assert found[3] == RecordRow(offset=3, timestamp=101, sequence=3, key=b"k1", value=b"v", headers=(("h", None),))
    assert [row.control for row in found[-2:]] == [None, "ABORT"]
    assert found[-1].sequence == -1


def test_records_are_decoded_by_whoever_knows_them(directory: Path) -> None:
    def decode(record: Record) -> str:
        if record.key is None:
            raise ValueError("no key")
        return record.key.decode()

    found = [row for row in rows(directory / f"{STEM}.log", records=True, decode=decode) if isinstance(row, RecordRow)]
    assert [row.decoded for row in found] == ["k0", "k1"] * 5 + [{"error": "no key"}] * 2 + [None]


def test_a_control_record_of_an_unknown_type_is_shown_as_such(tmp_path: Path) -> None:
    keys = [control_key(ControlType.LEADER_CHANGE), control_key(99), b""]
    path = tmp_path / f"{STEM}.log"
    path.write_bytes(encode_batch([Record(i, 0, key, b"") for i, key in enumerate(keys)], control=True))
    assert [row.control for row in rows(path, records=True) if isinstance(row, RecordRow)] == [
        "LEADER_CHANGE",
        "UNKNOWN",
        "UNKNOWN",
    ]


def test_a_batch_whose_crc_is_wrong_is_shown_but_not_decoded(directory: Path) -> None:
    path = directory / f"{STEM}.log"
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    found = rows(path, records=True)
    assert isinstance(found[0], BatchRow)
    assert not found[0].valid
    assert isinstance(found[1], BatchRow)
    assert found[1].valid


def test_a_segment_that_breaks_off_ends_in_damage(directory: Path) -> None:
    path = directory / f"{STEM}.log"
    path.write_bytes(path.read_bytes()[:-1])
    last = rows(path)[-1]
    assert isinstance(last, Damage)
    assert last.position == sum(map(len, batches()[:-1]))


def test_indexes_are_shown_with_absolute_offsets(directory: Path) -> None:
    made = batches()
    assert rows(directory / f"{STEM}.index") == [
        OffsetIndexRow(5, sum(map(len, made[:2]))),
        OffsetIndexRow(11, sum(map(len, made[:5]))),
    ]
    assert rows(directory / f"{NEXT_STEM}.timeindex") == [TimeIndexRow(300, 14)]
    assert rows(directory / f"{STEM}.txnindex") == [TransactionRow(8, 10, 12, 13)]


def test_the_zeros_of_an_unclosed_index_are_left_out(directory: Path) -> None:
    for suffix, zeros in (("index", 8), ("timeindex", 12)):
        path = directory / f"{STEM}.{suffix}"
        before = rows(path)
        path.write_bytes(path.read_bytes() + bytes(100 * zeros) + b"\x00")
        assert rows(path) == before


def test_snapshots_epochs_and_checkpoints_are_shown(directory: Path) -> None:
    assert rows(directory / f"{NEXT_STEM}.snapshot") == [
        ProducerRow(7, 1, 9, 9, 1, 104, -1, -1),
        ProducerRow(8, 0, 1, 11, 1, 201, 2, -1),
    ]
    assert rows(directory / "leader-epoch-checkpoint") == [EpochRow(3, 0), EpochRow(5, 10)]
    assert rows(directory / "partition.metadata")[1] == PropertyRow("topic_id", id_to_text(TOPIC_ID))
    root = directory.parent
    assert rows(root / "recovery-point-offset-checkpoint") == [CheckpointRow("topic", 0, 13)]
    assert PropertyRow("cluster.id", "cluster") in rows(root / "meta.properties")


def test_condemned_and_cleaned_files_are_read_like_the_others(directory: Path) -> None:
    before = rows(directory / f"{STEM}.log")
    for suffix in (".deleted", ".cleaned", ".swap"):
        (directory / f"{STEM}.log{suffix}").write_bytes((directory / f"{STEM}.log").read_bytes())
        assert rows(directory / f"{STEM}.log{suffix}") == before


def test_damaged_small_files_end_in_damage(directory: Path) -> None:
    for name in (f"{STEM}.txnindex", f"{NEXT_STEM}.snapshot", "leader-epoch-checkpoint"):
        (directory / name).write_bytes(b"\x07damaged")
        assert [type(row) for row in rows(directory / name)] == [Damage]


def test_other_files_are_refused(directory: Path) -> None:
    with pytest.raises(ValueError, match="not a file of a log"):
        rows(directory / "README.txt")


def test_rows_become_json_that_says_what_they_are(directory: Path) -> None:
    found = msgspec.to_builtins(rows(directory / "leader-epoch-checkpoint")[0])
    assert found == {"row": "epoch", "epoch": 3, "start_offset": 0}


def findings(directory: Path) -> list[Finding]:
    return verify(DISK, str(directory))


def test_a_sound_directory_has_no_findings(directory: Path) -> None:
    assert verify_root(DISK, str(directory.parent)) == []


Change = Callable[[Path], object]


def replaced(name: str, position: int, data: bytes) -> Change:
    def change(directory: Path) -> None:
        content = bytearray((directory / name).read_bytes())
        content[position : position + len(data)] = data
        (directory / name).write_bytes(content)

    return change


def written(name: str, data: bytes | bytearray) -> Change:
    def change(directory: Path) -> None:
        (directory / name).write_bytes(data)

    return change


def cut_off(name: str) -> Change:
    return lambda directory: written(name, (directory / name).read_bytes()[:-1])(directory)


def removed(name: str) -> Change:
    return lambda directory: (directory / name).unlink()


def renamed(name: str, other: str) -> Change:
    return lambda directory: (directory / name).rename(directory / other)


FAULTS: dict[str, tuple[Change, str]] = {
    "a flipped bit": (replaced(f"{STEM}.log", 70, b"\xaa"), "CRC"),
    "a torn segment that is not the last": (replaced(f"{STEM}.log", 2**20, b"\x00"), "cut off"),
    "a segment that begins too early": (
        renamed(f"{NEXT_STEM}.log", f"{12:020d}.log"),
        "begins at 12",
    ),
    "offsets that go back": (
        written(f"{NEXT_STEM}.log", value_batch([b"a"], base_offset=12, leader_epoch=5, timestamp=1)),
        "goes back",
    ),
    "an epoch that the checkpoint denies": (lambda d: write_epochs(DISK, str(d), ((3, 0), (6, 10))), "leader epoch 5"),
    "epochs that do not rise": (written("leader-epoch-checkpoint", b"0\n2\n3 0\n2 10\n"), "do not rise"),
    "an unreadable epoch file": (written("leader-epoch-checkpoint", b"x"), "version"),
    "records that are none": (
        written(
            f"{NEXT_STEM}.log",
            encode_batch([Record(13, 0, None, b"abc"), Record(13, 0, None, b"")], base_offset=13, leader_epoch=5),
        ),
        "out of order|last offset delta",
    ),
    "an index entry beside a batch": (
        replaced(f"{STEM}.index", 4, b"\x00\x00\x00\x01"),
        "the batch at 1 ends with None",
    ),
    "an index that goes back": (replaced(f"{STEM}.index", 8, b"\x00\x00\x00\x05"), "does not follow"),
    "a wrong time": (replaced(f"{STEM}.timeindex", 7, b"\x67"), "its batch has 102"),
    "a time index that goes back": (replaced(f"{STEM}.timeindex", 12, bytes(8)), "does not follow"),
    "a time index beyond the segment": (replaced(f"{STEM}.timeindex", 20, b"\x00\x00\x00\x40"), "no such offset"),
    "a transaction of another segment": (
        written(f"{NEXT_STEM}.txnindex", encode(AbortedTransaction(8, 10, 12, 13))),
        "not in this segment",
    ),
    "a transaction index cut off": (written(f"{STEM}.txnindex", b"\x00"), "whole entries"),
    "an index without a segment": (written(f"{99:020d}.index", b""), "no segment"),
    "a snapshot of the future": (
        renamed(f"{NEXT_STEM}.snapshot", f"{11:020d}.snapshot"),
        "at or behind",
    ),
}


@pytest.mark.parametrize("case", FAULTS)
def test_verify_finds(directory: Path, case: str) -> None:
    change, complaint = FAULTS[case]
    change(directory)
    found = [str(finding) for finding in findings(directory) if finding.fault]
    assert re.search(complaint, "\n".join(found))


NOTES: dict[str, tuple[Change, str]] = {
    "a torn tail": (
        cut_off(f"{NEXT_STEM}.log"),
        "cut off",
    ),
    "an index left open": (written(f"{NEXT_STEM}.index", bytes(80)), "zeros"),
    "a missing index": (removed(f"{STEM}.timeindex"), "missing"),
    "a gap": (
        written(f"{NEXT_STEM}.log", value_batch([b"a"], base_offset=14, leader_epoch=5, timestamp=300)),
        "no offsets 13..13",
    ),
    "a half index entry": (written(f"{STEM}.index", b"\x00\x00\x00"), "no whole entry"),
    "zeros in a closed index": (written(f"{STEM}.timeindex", bytes(24)), "zeros"),
    "a damaged snapshot": (written(f"{NEXT_STEM}.snapshot", b"\x00\x01"), "cut off"),
    "a leftover": (written(f"{STEM}.log.deleted", b""), "left over"),
}


@pytest.mark.parametrize("case", NOTES)
def test_what_a_node_repairs_or_explains_is_only_noted(directory: Path, case: str) -> None:
    change, message = NOTES[case]
    change(directory)
    found = findings(directory)
    assert re.search(message, "\n".join(map(str, found)))
    assert [finding for finding in found if finding.fault] == []


def test_checkpoints_at_the_root_are_checked(directory: Path) -> None:
    root = directory.parent
    (root / "meta.properties").write_text("version=9\n")
    (root / "replication-offset-checkpoint").write_text("0\n5\n")
    OffsetCheckpoint(DISK, str(root / "recovery-point-offset-checkpoint")).write({TopicPartition("gone", 1): -5})
    found = [(finding.path.rpartition("/")[2], finding.fault) for finding in verify_root(DISK, str(root))]
    assert found == [
        ("recovery-point-offset-checkpoint", True),
        ("recovery-point-offset-checkpoint", False),
        ("replication-offset-checkpoint", True),
        ("meta.properties", True),
    ]
