import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.quorum.raft.log_summary import LogSummary, OffsetAndEpoch


def summary(*epochs: int) -> LogSummary:
    """A log with one record of each given epoch."""
    log = LogSummary()
    for offset, epoch in enumerate(epochs):
        log.append(epoch, offset, offset + 1)
    return log


def test_an_epoch_ends_where_the_next_begins() -> None:
    log = summary(1, 1, 3, 3, 3, 4)

    assert log.end_offset_for(1) == (2, 1)
    assert log.end_offset_for(3) == (5, 3)
    assert log.end_offset_for(4) == (6, 4)


def test_an_unknown_epoch_is_answered_with_the_largest_below_it() -> None:
    log = summary(1, 1, 3, 3, 3, 4)

    assert log.end_offset_for(2) == (2, 1)
    assert log.end_offset_for(9) == (6, 4)


def test_an_epoch_older_than_the_log_ends_where_the_log_begins() -> None:
    log = summary(3, 4)

    assert log.end_offset_for(2) == (0, 2)


def test_truncation_forgets_epochs_that_began_later() -> None:
    log = summary(1, 1, 3, 4)
    log.durable_end = 4
    log.truncate(2)

    assert (log.end, log.durable_end, log.last_epoch) == (2, 2, 1)


def test_a_log_that_restarts_after_a_snapshot_remembers_the_epoch_before_it() -> None:
    log = summary(1, 2)
    log.restart_at(OffsetAndEpoch(10, 5))

    assert (log.start, log.end, log.durable_end, log.last_epoch) == (10, 10, 10, 5)
    assert log.end_offset_for(5) == (10, 5)
    log.append(6, 10, 12)
    assert log.end_offset_for(5) == (10, 5)
    assert log.epoch_below(10) == 5
    assert log.epoch_below(11) == 6


@given(st.lists(st.integers(1, 6), min_size=1, max_size=12).map(sorted), st.data())
def test_removing_the_beginning_leaves_the_rest_as_it_was(epochs: list[int], data: st.DataObject) -> None:
    log = summary(*epochs)
    start = data.draw(st.integers(0, len(epochs)))
    before = [log.epoch_below(end) for end in range(start, len(epochs) + 1)]
    ends = {epoch: log.end_offset_for(epoch) for epoch in set(epochs[start:])}
    log.advance_start(start)

    assert [log.epoch_below(end) for end in range(start, len(epochs) + 1)] == before
    assert {epoch: log.end_offset_for(epoch) for epoch in set(epochs[start:])} == ends


def test_a_gap_or_an_older_epoch_is_our_own_mistake() -> None:
    log = summary(2)
    with pytest.raises(AssertionError, match="append at"):
        log.append(2, 5, 6)
    with pytest.raises(AssertionError, match="epoch 1 after 2"):
        log.append(1, 1, 2)
