"""What a crash may leave undone between log and snapshots, and how a start makes them fit."""

from unittest.mock import Mock

import pytest

from ottla.log.batch import headers
from ottla.log.records import Record, encode_batch
from ottla.quorum import log_start
from ottla.quorum.control_records import control_batch
from ottla.quorum.log_start import LogStartError, log_summary, voter_history
from ottla.quorum.performing import Performer
from ottla.quorum.raft.events import SnapshotInstalled
from ottla.quorum.raft.instructions import AppendControl, InstallSnapshot, Voters
from ottla.quorum.raft.log_summary import OffsetAndEpoch
from ottla.quorum.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from ottla.quorum.snapshots.exchange import SnapshotExchange
from ottla.quorum.snapshots.files import SnapshotDescription, SnapshotFiles
from ottla.quorum.synced_mark import SyncedMark
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter
from ottla.testing.quorum.memory import MemoryLog, MemoryStore


def snapshots(*places: tuple[int, int]) -> SnapshotFiles:
    disk = SimulatedDisk(Platter.seeded(1))
    disk.make_directories("/metadata")
    files = SnapshotFiles(disk, "/metadata")
    for place in places:
        files.add(OffsetAndEpoch(*place), SnapshotDescription(0, 0))
    return files


def log(start: int, *epochs: int) -> MemoryLog:
    """One record of each epoch from ``start`` on."""
    made = MemoryLog()
    made.log_start_offset = start
    for offset, epoch in enumerate(epochs, start):
        batch = bytes(encode_batch([Record(offset, 0, None, b"x")], base_offset=offset, leader_epoch=epoch))
        assert next(headers(batch))[1].base_offset == offset
        made.append_as_follower(batch, epoch)
    return made


def align_log(log: MemoryLog, files: SnapshotFiles | None) -> SyncedMark:
    """With a mark at the log's end."""
    mark = SyncedMark(MemoryStore())
    mark.raise_to(log.log_end_offset)
    log_start.align_log(log, files, mark)
    return mark


def test_the_mark_is_taken_back_before_a_log_is_emptied_and_only_then() -> None:
    assert align_log(log(0, 1, 1, 1, 1), snapshots((2, 3))).offset == 0
    assert align_log(log(0, 1, 1), snapshots((2, 1))).offset == 2
    assert align_log(log(4), snapshots((9, 2))).offset == 0, "it is empty already, and for a moment it has no segment"


def test_the_mark_is_taken_back_before_a_snapshot_takes_the_place_of_a_log_though_that_is_empty() -> None:
    """Nothing was written since the snapshot that it begins with. Between two segments a process may end (seeds 36781, 48676)."""
    kept = log(4)
    mark = SyncedMark(MemoryStore())
    mark.raise_to(4)
    found: list[int] = []
    performer, others = Mock(_mark=mark, _log=kept), Mock(spec=SnapshotExchange)
    performer._exchange = others

    def install(_: InstallSnapshot) -> SnapshotInstalled:
        found.append(mark.offset)
        return SnapshotInstalled(OffsetAndEpoch(9, 2))

    others.install.side_effect = install
    Performer._install(performer, Mock(spec=InstallSnapshot))
    assert found == [0]


def test_a_log_from_the_beginning_needs_no_snapshot() -> None:
    whole = log(0, 1, 1, 2)
    align_log(whole, None)
    assert (whole.log_start_offset, whole.log_end_offset) == (0, 3)


def test_a_log_shorter_than_a_snapshot_goes_on_after_it() -> None:
    """The snapshot was received whole, and then the node died; or it was taken of what was not synced."""
    short = log(0, 1, 1)
    align_log(short, files := snapshots((5, 1)))
    assert (short.log_start_offset, short.log_end_offset) == (5, 5)
    assert log_summary(short, files).last_epoch == 1


def test_a_log_of_older_epochs_than_a_snapshot_is_another_story() -> None:
    """It is longer than the committed one, and nothing of it above the snapshot ever was committed."""
    diverged = log(0, 1, 1, 1, 1)
    align_log(diverged, snapshots((2, 3)))
    assert (diverged.log_start_offset, diverged.log_end_offset) == (2, 2)


def test_a_log_of_another_epoch_where_the_snapshot_ends_is_another_story() -> None:
    """The tail of a leader that was not heard: as long as the committed log, of a later epoch, and never committed."""
    diverged = log(0, 1, 2, 2)
    align_log(diverged, snapshots((3, 1)))
    assert (diverged.log_start_offset, diverged.log_end_offset) == (3, 3)


def test_a_log_that_goes_on_after_its_snapshots_is_left_as_it_is() -> None:
    fitting = log(0, 1, 1, 2, 2, 3)
    align_log(fitting, snapshots((2, 1), (4, 2)))
    assert (fitting.log_start_offset, fitting.log_end_offset) == (0, 5)


def test_an_empty_log_after_a_snapshot_is_left_as_it_is() -> None:
    empty = log(4)
    align_log(empty, files := snapshots((4, 2)))
    assert log_summary(empty, files).last_epoch == 2


def test_a_log_begins_where_a_snapshot_ends_not_where_its_segment_does() -> None:
    rest = log(1, 1, 1, 2, 2)
    align_log(rest, files := snapshots((3, 1), (4, 2)))
    assert rest.log_start_offset == 3
    summary = log_summary(rest, files)
    assert (summary.start, summary.base_epoch, summary.snapshot) == (3, 1, OffsetAndEpoch(4, 2))


def test_of_two_snapshots_that_end_where_the_log_begins_one_is_believed() -> None:
    """A crash may leave both: the one that was received, of another history, and the one whose place it takes."""
    summary = log_summary(log(4), files := snapshots((4, 2), (4, 3)))
    assert summary.snapshot == files.latest == (summary.start, summary.base_epoch)


@pytest.mark.parametrize("files", [None, snapshots(), snapshots((2, 1))], ids=["no directory", "none", "too old"])
def test_a_log_whose_beginning_nobody_has_is_refused(files: SnapshotFiles | None) -> None:
    with pytest.raises(LogStartError, match="begins at 3"):
        align_log(log(3, 1, 1), files)


def test_a_setting_that_counts_no_more_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    static = VoterSet.of([Voter(ReplicaKey(1), Endpoint("a", 1))])
    formatted = VoterSet.of([Voter(ReplicaKey(1, bytes([1]) * 16), Endpoint("a", 1))])
    assert voter_history(MemoryLog(), static, None).latest == static
    with_voters = MemoryLog()
    with_voters.append_as_follower(bytes(control_batch(AppendControl(0, 1, (Voters(formatted),)), 0)), 1)
    assert voter_history(with_voters, formatted, None).latest == formatted
    assert caplog.messages == []

    assert voter_history(with_voters, static, None).latest == formatted
    assert "controller.quorum.voters counts no more" in caplog.messages[0]
