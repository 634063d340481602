"""The metadata log read from a directory: with and without a snapshot, torn, damaged, incomplete."""

import pytest

from ottla.quorum.listener import CommittedBatch
from ottla.quorum.metadata.archive import ArchiveError, DirectoryArchive
from ottla.quorum.metadata.history import at, blame
from tests.unit.quorum.metadata.conftest import MetadataDirectory
from tests.unit.quorum.metadata.metadata_story import STORY


def decoded(archive: DirectoryArchive) -> list[CommittedBatch]:
    return [batch.decoded() for batch in archive.batches()]


def test_the_batches_of_all_segments_come_back_with_their_causes(directory: MetadataDirectory) -> None:
    directory.add(STORY[:4])
    directory.add(STORY[4:])
    archive = directory.open()
    assert decoded(archive) == STORY
    assert (archive.start, archive.first_offset, archive.end_offset) == (None, 0, STORY[-1].last_offset + 1)


def test_history_goes_on_from_the_snapshot_that_the_log_begins_with(directory: MetadataDirectory) -> None:
    directory.add(STORY[3:], base=STORY[3].base_offset)
    directory.snapshot(at(STORY, 5), 6, 3)
    archive = directory.open()
    assert archive.start is not None
    assert (archive.start.offset, archive.first_offset) == (5, 6)
    assert at(decoded(archive), 7, archive.start) == at(STORY, 7)
    assert [row.offset for row in blame(decoded(archive), "topic-1", 0, archive.start)] == [6, 7, 16]


def test_what_a_segment_holds_from_before_the_snapshot_is_not_told_twice(directory: MetadataDirectory) -> None:
    directory.add(STORY[1:], base=STORY[1].base_offset)
    directory.snapshot(at(STORY, 5), 6, 3)
    assert decoded(directory.open()) == STORY[3:]


def test_the_oldest_snapshot_gives_the_longest_history(directory: MetadataDirectory) -> None:
    directory.add(STORY[2:], base=STORY[2].base_offset)
    for end in (6, 7):
        directory.snapshot(at(STORY, end - 1), end, 3)
    assert directory.open().first_offset == 6


def test_of_two_snapshots_that_end_where_the_log_begins_the_one_that_a_node_would_believe_counts(
    directory: MetadataDirectory,
) -> None:
    """A crash may leave both: the one that was received, of another history, and the one whose place it takes."""
    directory.add(STORY[3:], base=STORY[3].base_offset)
    directory.snapshot(at(STORY, 3), 6, 2)
    directory.snapshot(at(STORY, 5), 6, 3)
    start = directory.open().start
    assert start == at(STORY, 5)
    assert start.epoch == 3


def test_a_log_that_has_its_beginning_needs_no_snapshot(directory: MetadataDirectory) -> None:
    directory.add(STORY)
    directory.snapshot(at(STORY, 5), 6, 3)
    assert directory.open().start is None


@pytest.mark.parametrize(("end", "whole"), [(6, False), (3, True)])
def test_a_log_whose_beginning_is_in_no_snapshot_is_refused(
    directory: MetadataDirectory, end: int, whole: bool
) -> None:
    directory.add(STORY[3:], base=6)
    directory.snapshot(at(STORY, 5), end, 3, whole=whole)
    with pytest.raises(ArchiveError, match="the log begins at 6 and no snapshot has what lies before"):
        directory.open()


@pytest.mark.parametrize("harm", ["cut off", "flipped"])
def test_the_log_ends_where_its_last_segment_breaks_off(directory: MetadataDirectory, harm: str) -> None:
    file = directory.add(STORY)
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data[:-1] if harm == "cut off" else data)
    archive = directory.open()
    assert decoded(archive) == STORY[:-1]
    assert archive.end_offset == STORY[-1].base_offset


def test_damage_before_the_last_segment_is_named(directory: MetadataDirectory) -> None:
    file = directory.add(STORY[:4])
    directory.add(STORY[4:])
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(ArchiveError, match=r"00000000000000000000\.log is damaged: .*--verify"):
        list(directory.open().batches())


def test_a_directory_without_a_log_is_refused(directory: MetadataDirectory) -> None:
    with pytest.raises(ArchiveError, match="holds no metadata log"):
        directory.open()


def test_reading_changes_nothing_in_the_directory(directory: MetadataDirectory) -> None:
    directory.add(STORY[3:], base=6)
    directory.snapshot(at(STORY, 5), 6, 3)
    before = directory.names()
    decoded(directory.open())
    assert directory.names() == before
