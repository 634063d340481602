"""Two histories may have records of one epoch when a voter's disk forgot its vote. A leader marks its epoch, and logs are matched by it."""

import pytest

from ottla.log.records import ControlType, Record, control_key, encode_batch
from ottla.quorum.batches import encode_values, parse_batches
from ottla.quorum.control_records import MARK_HEADER, control_batch
from ottla.quorum.log_start import log_summary
from ottla.quorum.raft import rules
from ottla.quorum.raft.instructions import AppendControl, LeaderChange, TruncateTo
from ottla.quorum.raft.log_summary import LogSummary, OffsetAndEpoch
from ottla.quorum.raft.messages import BatchInfo, FetchRequest, FetchResponse
from ottla.quorum.snapshots.files import SnapshotDescription, SnapshotFiles
from ottla.runtime.errors import KafkaError
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter
from ottla.testing.quorum.memory import MemoryLog
from tests.unit.quorum.raft_messages import follower, leader

LOG = LogSummary(0, 0, 10, 10, ((1, 0), (2, 4), (5, 7)), None, {2: 20, 5: 50})


@pytest.mark.parametrize(
    ("offset", "epoch", "mark", "found"),
    [
        (9, 5, 50, None),
        (9, 5, 0, None),  # an older node does not know
        (9, 5, 51, OffsetAndEpoch(7, 2)),
        (6, 2, 21, OffsetAndEpoch(4, 1)),
        (4, 1, 11, None),  # nor does this one
        (12, 5, 51, OffsetAndEpoch(7, 2)),
        (12, 5, 50, OffsetAndEpoch(10, 5)),
    ],
)
def test_an_epoch_that_somebody_else_began_is_none_of_ours(
    offset: int, epoch: int, mark: int, found: OffsetAndEpoch | None
) -> None:
    assert rules.divergence(LOG, offset, epoch, mark) == found


def test_each_leader_marks_its_epoch_and_says_so_when_it_fetches() -> None:
    core = leader(1)
    assert core.state.log.last_mark == rules.epoch_mark(1, core.state.now_ms) > 0
    assert rules.epoch_mark(1, 5) != rules.epoch_mark(2, 5) != rules.epoch_mark(2, 6)


def test_a_follower_says_whose_epoch_it_has_and_cuts_it_away() -> None:
    core = follower(1, 1)
    state = core.state
    state.log.append(2, 2, 5, 77)
    core.out.clear()
    core.answer(FetchRequest, 2, FetchResponse(epoch=2, leader_id=2, diverging=OffsetAndEpoch(2, 1)))
    assert core.found(TruncateTo) == [TruncateTo(2)]
    assert (state.log.last_mark, state.log.marks) == (0, {})


def test_the_mark_rides_on_the_first_record_of_the_epoch() -> None:
    change = LeaderChange(1, (), ())
    data = bytes(control_batch(AppendControl(4, 2, (change,), 77), 99))
    assert parse_batches(data).batches == (BatchInfo(4, 4, 2, None, 77),)
    assert parse_batches(bytes(control_batch(AppendControl(4, 2, (change,)), 99))).batches[0].mark == 0


def test_a_mark_that_cannot_be_read_is_damage() -> None:
    record = Record(4, 0, control_key(ControlType.LEADER_CHANGE), b"", ((MARK_HEADER, b"short"),))
    with pytest.raises(KafkaError, match="mark of an epoch"):
        parse_batches(bytes(encode_batch([record], base_offset=4, leader_epoch=2, control=True)))


def test_a_start_reads_the_marks_from_the_log_and_from_its_snapshot() -> None:
    log = MemoryLog()
    log.log_start_offset = 3
    log.append_as_follower(bytes(encode_values([b"x"], 3, 1, 0, "")), 1)
    log.append_as_follower(bytes(control_batch(AppendControl(4, 2, (LeaderChange(1, (), ()),), 77), 99)), 2)
    disk = SimulatedDisk(Platter.seeded(1))
    disk.make_directories("/metadata")
    files = SnapshotFiles(disk, "/metadata")
    files.add(OffsetAndEpoch(3, 1), SnapshotDescription(0, 0, None, 11))
    assert log_summary(log, files).marks == {1: 11, 2: 77}


def test_the_mark_of_a_received_snapshot_is_that_of_its_epoch() -> None:
    log = LogSummary(0, 0, 10, 10, ((1, 0), (2, 4)), None, {1: 10, 2: 20})
    log.advance_start(6)
    assert log.marks == {2: 20}
    log.restart_at(OffsetAndEpoch(20, 4), 40)
    assert (log.last_mark, log.marks) == (40, {4: 40})


def test_the_first_mark_of_an_epoch_counts_where_it_is_read_as_where_it_was_appended() -> None:
    """The node that a recovery made the only voter leads the epoch of what the recovery wrote, and appends a mark of its own."""
    log, summary = MemoryLog(), LogSummary()
    for offset, mark in ((0, 70), (1, 71)):
        log.append_as_follower(bytes(control_batch(AppendControl(offset, 2, (LeaderChange(1, (), ()),), mark), 99)), 2)
        summary.append(2, offset, offset + 1, mark)
    assert log_summary(log, None).marks == summary.marks == {2: 70}


def test_the_mark_of_a_snapshot_counts_before_those_that_follow_it() -> None:
    log = LogSummary()
    log.restart_at(OffsetAndEpoch(20, 4), 40)
    log.append(4, 20, 21, 41)
    assert log.marks == {4: 40}
