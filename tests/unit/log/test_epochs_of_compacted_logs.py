"""Where an epoch began whose first records compaction took: a replica that had something else there has to cut it."""

from collections.abc import Callable

import pytest

from ottla.broker.replication.decisions.truncation import Diverging, divergence
from ottla.log.directories.checkpoints import LEADER_EPOCHS
from ottla.log.log import Log
from ottla.runtime.simulation.disk import SimulatedDisk
from tests.unit.log.conftest import MakeBatch, OpenLog

EPOCHS = ((0, 0), (1, 3), (3, 18))
"""Of a log whose last batch before the gaps ends at 3 and at 18."""


@pytest.fixture
def compacted(open_log: OpenLog, make_batch: MakeBatch) -> Callable[..., Log]:
    """Three records of epoch 0, nothing up to 14, four of epoch 1, nothing up to 30, then epoch 3, in segments of its own; or the log as it is found again."""

    def opened(*, full: bool = True, **settings: int) -> Log:
        log = open_log(cleanup_policy=("compact",), **settings)
        log.gaps_allowed = True
        if full:
            for count, base_offset, epoch in ((3, 0, 0), (4, 14, 1), (2, 30, 3)):
                log.append_as_follower(bytes(make_batch(count, base_offset=base_offset, leader_epoch=epoch)), epoch)
        return log

    return opened


def test_an_epoch_that_a_follower_is_given_late_began_where_the_one_before_ends(compacted: Callable[..., Log]) -> None:
    log = compacted()
    assert log.epochs.entries() == EPOCHS
    assert divergence(4, 0, log.end_offset_for_epoch) == Diverging(0, 3)
    assert divergence(3, 0, log.end_offset_for_epoch) is None
    assert log.end_offset_for_epoch(2) == (1, 18)


@pytest.mark.parametrize("segment_bytes", [10_000, 150], ids=["in one segment", "in one each"])
@pytest.mark.parametrize("is_torn", [False, True], ids=["no recovery point", "no epochs that can be read"])
def test_a_log_that_is_read_anew_says_the_same(
    compacted: Callable[..., Log], disk: SimulatedDisk, segment_bytes: int, is_torn: bool
) -> None:
    log = compacted(segment_bytes=segment_bytes)
    assert len(log.segments) == (1 if segment_bytes > 1_000 else 3)
    if is_torn:
        disk.write_atomically(f"{log.directory}/{LEADER_EPOCHS}", b"torn")
    assert compacted(full=False, segment_bytes=segment_bytes).epochs.entries() == EPOCHS


def test_where_the_next_batch_begins_is_found_behind_a_gap(compacted: Callable[..., Log]) -> None:
    log = compacted(segment_bytes=150)
    assert [log.next_written(offset) for offset in (0, 2, 3, 13, 14, 17, 18, 30, 31, 32, 40)] == [
        *(0, 2, 14, 14, 14, 17, 30, 30, 31, 32, 32)
    ]
