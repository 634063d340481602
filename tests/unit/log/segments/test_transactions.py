"""The index of aborted transactions."""

import errno
from pathlib import Path

import pytest

from ottla.log.segments.transactions import AbortedTransaction, TransactionIndex, TransactionIndexError, decode, encode
from ottla.runtime.real_disk import RealDisk
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter

ONE = AbortedTransaction(5, 11, 21, 22)  # as Apache Kafka 4.3.1 wrote it for a real transaction
ONE_BYTES = bytes.fromhex("0000 0000000000000005 000000000000000b 0000000000000015 0000000000000016")
TWO = AbortedTransaction(6, 15, 40, 30)


def index_at(tmp_path: Path) -> TransactionIndex:
    return TransactionIndex(RealDisk(), str(tmp_path / "00000000000000000000.txnindex"))


def test_the_bytes_are_kafkas() -> None:
    assert encode(ONE) == ONE_BYTES
    assert decode(ONE_BYTES) == [ONE]


def test_entries_outlive_the_object(tmp_path: Path) -> None:
    index = index_at(tmp_path)
    assert index.entries() == []
    index.append(ONE)
    index.append(TWO)
    assert index_at(tmp_path).entries() == [ONE, TWO] == index.entries()
    assert Path(index.path).read_bytes() == ONE_BYTES + encode(TWO)


def test_no_file_exists_before_something_is_aborted(tmp_path: Path) -> None:
    index = index_at(tmp_path)
    index.truncate_to(0)
    index.sync()
    index.reset()
    assert list(tmp_path.iterdir()) == []


def test_markers_must_rise(tmp_path: Path) -> None:
    index = index_at(tmp_path)
    index.append(ONE)
    with pytest.raises(TransactionIndexError):
        index.append(ONE)


def test_a_read_is_told_the_transactions_it_overlaps(tmp_path: Path) -> None:
    index = index_at(tmp_path)
    index.append(ONE)
    index.append(TWO)
    assert index.aborted_between(0, 11) == ([], True)
    assert index.aborted_between(0, 12) == ([ONE], True)
    assert index.aborted_between(21, 25) == ([ONE, TWO], True)
    assert index.aborted_between(22, 25) == ([TWO], True)
    assert index.aborted_between(22, 31) == ([TWO], False)
    assert index.aborted_between(41, 50) == ([], False)


def test_truncation_drops_markers_at_or_behind_the_offset(tmp_path: Path) -> None:
    index = index_at(tmp_path)
    index.append(ONE)
    index.append(TWO)
    index.truncate_to(40)
    assert index.entries() == index_at(tmp_path).entries() == [ONE]
    index.truncate_to(22)
    assert index.entries() == [ONE]
    index.append(TWO)
    index.sync()
    assert index_at(tmp_path).entries() == [ONE, TWO]


def test_truncation_takes_what_a_full_disk_left_of_an_entry() -> None:
    """Whoever reads the file, as compaction does, would have found an index that cannot be right."""
    platter = Platter.seeded(1)
    index = TransactionIndex(SimulatedDisk(platter), "/00000000000000000000.txnindex")
    index.append(ONE)
    platter.fail_once(1, errno.ENOSPC, ("write",), written=0.5)
    index.append(TWO)
    index.truncate_to(40)
    assert decode(SimulatedDisk(platter).read_bytes(index.path)) == [ONE]


def test_reset_empties_the_index(tmp_path: Path) -> None:
    index = index_at(tmp_path)
    index.append(ONE)
    index.reset()
    assert (index.entries(), index_at(tmp_path).entries()) == ([], [ONE])  # until it is written
    index.sync()
    assert index.entries() == index_at(tmp_path).entries() == []


@pytest.mark.parametrize(
    "data",
    [ONE_BYTES[:-1], b"\x00\x01" + ONE_BYTES[2:], ONE_BYTES + ONE_BYTES, encode(AbortedTransaction(1, 9, 8, 9))],
)
def test_an_index_that_cannot_be_right_is_refused(data: bytes) -> None:
    with pytest.raises(TransactionIndexError):
        decode(data)
