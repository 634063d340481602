"""Bounded descriptors and bounded index memory."""

import errno
from weakref import ref

import pytest

from ottla.log.segments.open_files import CachedFile, OpenFiles
from ottla.runtime.disk import File
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter


@pytest.fixture
def files(disk: SimulatedDisk) -> OpenFiles:
    for number in range(10):
        disk.open(f"/data/{number}", create=True).write_at([bytes([number])], 0)
    return OpenFiles(disk, capacity=3)


def cached(files: OpenFiles) -> list[CachedFile]:
    return [CachedFile(files, f"/data/{number}") for number in range(10)]


def is_open(file: CachedFile) -> bool:
    return file.file is not None


def test_no_more_files_are_open_than_may_be_and_all_can_be_read(files: OpenFiles) -> None:
    every = cached(files)
    for _ in range(3):
        for number, file in enumerate(every):
            assert file.open().read_at(1, 0) == bytes([number])
            assert files.count <= 3
            assert sum(map(is_open, every)) == files.count


def test_a_file_in_use_stays_open_while_others_come_and_go(files: OpenFiles) -> None:
    every = cached(files)
    every[0].open()
    for file in every[1:]:
        file.open()
        every[0].used = True
        assert is_open(every[0])


def test_pinned_files_stay_open_though_there_are_too_many(files: OpenFiles) -> None:
    every = cached(files)
    pinned: list[File] = [file.pin() for file in every[:5]]
    for file in every[5:]:
        file.open()
    assert [file.read_at(1, 0)[0] for file in pinned] == [0, 1, 2, 3, 4]
    for file in every[:5]:
        file.unpin()
    for file in every[5:]:
        file.open()
    assert files.count <= 6


def test_a_pinned_file_that_is_closed_closes_with_its_last_pin(files: OpenFiles) -> None:
    (first, *_) = cached(files)
    file = first.pin()
    first.pin()
    first.close()
    assert files.count == 0
    assert first.file is None
    first.unpin()
    assert file.read_at(1, 0) == b"\0"
    first.unpin()
    with pytest.raises(OSError, match="Bad file"):
        file.read_at(1, 0)


def test_a_missing_file_is_an_error_and_counts_for_nothing(files: OpenFiles) -> None:
    with pytest.raises(FileNotFoundError):
        CachedFile(files, "/data/none").open()
    assert files.count == 0


class Owner:
    forgotten = False

    def forget_indexes(self) -> None:
        self.forgotten = True


def test_indexes_loaded_first_are_let_go_of_when_they_grow_too_many(disk: SimulatedDisk) -> None:
    files = OpenFiles(disk, index_bytes_max=100_000)
    owners = [Owner() for _ in range(4)]
    for owner in owners[:3]:
        files.indexes_loaded(owner, 40_000)
    assert [owner.forgotten for owner in owners] == [True, False, False, False]
    files.indexes_loaded(owners[3], 500_000)
    assert [owner.forgotten for owner in owners] == [True, True, True, False]


def test_indexes_without_entries_do_not_keep_segments_that_went(disk: SimulatedDisk) -> None:
    files = OpenFiles(disk, index_bytes_max=100_000)
    owners = [Owner() for _ in range(1_000)]
    left = [ref(owner) for owner in owners]
    while owners:
        files.indexes_loaded(owners.pop(0), 0)
    assert sum(owner() is not None for owner in left) < 200


class Watched(CachedFile):
    """With room for a reference that does not count."""


def test_files_that_were_closed_are_not_kept_though_there_is_room_for_more(files: OpenFiles) -> None:
    kept, left = cached(files)[0], []
    kept.open()
    for _ in range(1_000):
        file = Watched(files, "/data/1")
        file.open()
        left.append(ref(file))
        file.close()
    del file
    assert sum(each() is not None for each in left) < 200
    for other in cached(files):
        other.open()
    assert not is_open(kept), "it is known still, and had to make room"
    assert files.count <= 3


def test_with_fewer_descriptors_than_it_may_use_it_lives_with_less(files: OpenFiles, platter: Platter) -> None:
    files = OpenFiles(files.disk, 8)
    every = cached(files)
    for file in every[:4]:
        file.open()
    repair = platter.fail("/data", errno.EMFILE, ("open",))
    with pytest.raises(OSError, match="Too many"):
        every[5].open()
    repair()
    assert files.capacity == 2
    assert every[5].open().read_at(1, 0) == b"\5"
    assert files.count <= 3
    for _ in range(2):
        for file in every:
            file.open()
    assert files.capacity == 8, "and with more again, when there are some"
