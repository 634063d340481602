"""Where two logs part (KIP-595): what the leader answers, and how far the follower cuts. Epochs' ends stand as {epoch: end offset}."""

import pytest

from ottla.broker.replication.decisions.truncation import (
    UNDEFINED,
    Diverging,
    EndOffsetForEpoch,
    divergence,
    divergence_from_deleted,
    truncation_offset,
)

NOBODY_KNOWS = Diverging(UNDEFINED, UNDEFINED)


def log(**ends: int) -> EndOffsetForEpoch:
    """``log(e4=20)``: epoch 4 ends at 20."""
    epochs = {int(name[1:]): end for name, end in ends.items()}

    def end_offset_for_epoch(epoch: int) -> tuple[int, int]:
        known = [each for each in epochs if each <= epoch]
        return (max(known), epochs[max(known)]) if known else (UNDEFINED, UNDEFINED)

    return end_offset_for_epoch


@pytest.mark.parametrize("fetch_offset", [0, 19, 20])
def test_a_follower_that_has_a_part_of_the_leaders_log_goes_on(fetch_offset: int) -> None:
    assert divergence(fetch_offset, 4, log(e3=5, e4=20)) is None


def test_a_follower_that_has_more_of_an_epoch_than_the_leader_is_told_its_end() -> None:
    assert divergence(21, 4, log(e4=20)) == Diverging(4, 20)


def test_a_follower_with_an_epoch_that_the_leader_never_had_parts_from_a_log_that_is_longer() -> None:
    """What it has was written by a leader of that epoch alone, whatever stands at those offsets here."""
    assert divergence(10, 5, log(e4=20, e6=30)) == Diverging(4, 20)


def test_a_follower_with_an_epoch_before_all_of_the_leaders_cannot_be_told_where_they_part() -> None:
    assert divergence(10, 2, log(e4=20)) == NOBODY_KNOWS


def test_a_follower_with_an_empty_log_is_not_checked() -> None:
    assert divergence(100, UNDEFINED, log(e4=20)) is None


@pytest.mark.parametrize(
    ("diverging", "own", "log_end_offset", "cut"),
    [
        pytest.param(Diverging(4, 20), {"e4": 30}, 30, 20, id="the leader's end of an epoch that both have"),
        pytest.param(Diverging(4, 20), {"e4": 12, "e5": 30}, 30, 12, id="our own end of it where that is nearer"),
        pytest.param(Diverging(4, 20), {"e4": 30}, 15, 15, id="no more than there is"),
        pytest.param(Diverging(4, 20), {"e3": 8, "e5": 30}, 30, 8, id="the end of our largest smaller epoch, though the leader's is further"),
        pytest.param(Diverging(4, 20), {"e3": 28, "e5": 30}, 30, 28, id="that end, though it is beyond the leader's"),
        pytest.param(Diverging(4, 20), {"e3": 28}, 15, 15, id="no more than there is of a smaller epoch"),
        pytest.param(Diverging(4, 20), {"e5": 30}, 30, 20, id="where the leader's epoch ends, if all of ours are larger"),
        pytest.param(Diverging(4, 20), {"e5": 30}, 15, 15, id="no more than there is of larger epochs"),
    ],
)  # fmt: skip
def test_a_follower_cuts_at(diverging: Diverging, own: dict[str, int], log_end_offset: int, cut: int) -> None:
    assert truncation_offset(diverging, log_end_offset, log_end_offset, log(**own)) == cut


@pytest.mark.parametrize(("fetch_offset", "log_end_offset"), [(20, 30), (30, 20)])
def test_a_follower_that_nobody_can_tell_cuts_where_it_would_have_fetched(
    fetch_offset: int, log_end_offset: int
) -> None:
    assert truncation_offset(NOBODY_KNOWS, log_end_offset, fetch_offset, log(e4=30)) == 20


@pytest.mark.parametrize(
    ("fetch_offset", "follower_start", "told"),
    [
        pytest.param(51, 0, Diverging(4, 50), id="beyond our start it had nothing that is ours"),
        pytest.param(50, 0, NOBODY_KNOWS, id="up to there nobody can tell any more"),
        pytest.param(50, 50, None, id="it holds nothing, and begins where we do"),
        pytest.param(30, 30, None, id="it holds nothing, and is told where we begin when it asks"),
        pytest.param(51, 51, Diverging(4, 50), id="it holds nothing, beyond our start"),
    ],
)
def test_a_follower_whose_epoch_is_deleted_here_goes_by_where_our_log_begins(
    fetch_offset: int, follower_start: int, told: Diverging | None
) -> None:
    assert divergence_from_deleted(fetch_offset, 4, follower_start, log_start_offset=50) == told
