"""The two index files: Kafka's bytes, lookups, what is refused."""

from struct import pack

import pytest

from ottla.log.segments.index import IndexCorruptError, OffsetIndex, TimeIndex
from ottla.runtime.simulation.disk import SimulatedDisk

PATH = "/data/00000000000000000000.index"


def put(disk: SimulatedDisk, data: bytes) -> None:
    disk.write_atomically(PATH, data)


def test_the_offset_index_is_pairs_of_big_endian_integers(disk: SimulatedDisk) -> None:
    index = OffsetIndex(PATH)
    index.add(5, 4100)
    index.add(90, 8200)
    index.write(disk)
    index.add(91, 70_000)
    assert index.unwritten == 1
    index.write(disk)
    assert disk.read_bytes(PATH) == pack(">iiiiii", 5, 4100, 90, 8200, 91, 70_000)
    again = OffsetIndex(PATH)
    again.load(disk, 70_001)
    assert (list(again.offsets), list(again.positions)) == ([5, 90, 91], [4100, 8200, 70_000])


def test_the_time_index_is_a_long_and_an_integer(disk: SimulatedDisk) -> None:
    index = TimeIndex(PATH)
    index.add(10**12, 3)
    index.add(10**12, 7)  # not later: no entry
    index.add(10**12 + 1, 9)
    index.write(disk)
    assert disk.read_bytes(PATH) == pack(">qi", 10**12, 3) + pack(">qi", 10**12 + 1, 9)
    again = TimeIndex(PATH)
    again.load(disk, 10)
    assert (list(again.timestamps), list(again.offsets)) == ([10**12, 10**12 + 1], [3, 9])


def test_records_without_a_time_are_not_in_the_time_index() -> None:
    index = TimeIndex(PATH)
    index.add(-1, 3)
    assert len(index.timestamps) == 0


def test_the_entry_at_or_below_is_found() -> None:
    index, times = OffsetIndex(PATH), TimeIndex(PATH)
    for number in range(1, 4):
        index.add(10 * number, 1000 * number)
        times.add(100 * number, 10 * number)
    assert [index.floor(offset) for offset in (9, 10, 11, 29, 30, 99)] == [-1, 0, 0, 1, 2, 2]
    assert [index.floor_of_position(position) for position in (999, 1000, 2999, 3000)] == [-1, 0, 1, 2]
    assert [times.floor(timestamp) for timestamp in (100, 101, 200, 301)] == [-1, 0, 0, 2]


def test_entries_behind_a_cut_go_from_the_file_too(disk: SimulatedDisk) -> None:
    index, times = OffsetIndex(PATH), TimeIndex(PATH + ".t")
    for number in range(4):
        index.add(10 * number, 1000 * number)
        times.add(100 * number, 10 * number)
    index.write(disk)
    index.add(50, 5000)
    index.cut(disk, 2000)
    times.cut(disk, 20)
    assert (list(index.positions), index.unwritten) == ([0, 1000], 0)
    assert len(disk.read_bytes(PATH)) == 16
    assert list(times.offsets) == [0, 10]
    index.add(40, 4000)
    index.write(disk)
    assert len(disk.read_bytes(PATH)) == 24


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("half an entry", pack(">iiH", 5, 100, 3)),
        ("zeros at the end", pack(">iiii", 5, 100, 0, 0)),
        ("offsets that fall", pack(">iiii", 5, 100, 4, 200)),
        ("positions that fall", pack(">iiii", 5, 100, 6, 90)),
        ("a position behind the end", pack(">ii", 5, 1000)),
        ("a negative offset", pack(">ii", -5, 100)),
    ],
)
def test_an_offset_index_that_cannot_be_is_refused(disk: SimulatedDisk, name: str, data: bytes) -> None:
    put(disk, data)
    with pytest.raises(IndexCorruptError):
        OffsetIndex(PATH).load(disk, 1000)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("half an entry", pack(">qiH", 5, 100, 3)),
        ("zeros at the end", pack(">qiqi", 5, 100, 0, 0)),
        ("times that fall", pack(">qiqi", 5, 100, 4, 200)),
        ("offsets that fall", pack(">qiqi", 5, 100, 6, 90)),
        ("an offset behind the end", pack(">qi", 5, 1000)),
        ("a negative offset", pack(">qi", 5, -3)),
    ],
)
def test_a_time_index_that_cannot_be_is_refused(disk: SimulatedDisk, name: str, data: bytes) -> None:
    put(disk, data)
    with pytest.raises(IndexCorruptError):
        TimeIndex(PATH).load(disk, 1000)


def test_a_missing_file_is_for_the_owner_to_notice(disk: SimulatedDisk) -> None:
    with pytest.raises(FileNotFoundError):
        OffsetIndex(PATH).load(disk, 10)
