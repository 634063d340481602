"""When a damaged replica may cut its log, rule by rule."""

import pytest

from ottla.broker.replication.decisions.healing import has_missed_an_end, may_cut, may_have_missed_ends, report_again_ms


@pytest.mark.parametrize(
    ("leader", "trusted", "fetched", "allowed"),
    [
        (2, (2, 3), False, True),
        (2, (2,), False, True),
        (2, (1, 2, 3), False, False),  # it could be elected
        (2, (2, 3), True, False),  # the leader may be taking it back
        (-1, (3,), False, False),  # nobody to fetch from
        (1, (2, 3), False, False),  # it leads
    ],
)
def test_when_a_damaged_replica_may_cut(leader: int, trusted: tuple[int, ...], fetched: bool, allowed: bool) -> None:
    assert may_cut(1, leader, trusted, fetched_in_epoch=fetched) is allowed


def test_reports_become_rarer() -> None:
    assert [report_again_ms(count) for count in (0, 1, 2, 9, 10_000)] == [1_000, 2_000, 4_000, 30_000, 30_000]


@pytest.mark.parametrize(
    ("end", "stable", "watermark", "start", "missed"),
    [
        (30, 20, 30, 0, True),
        (30, 10, 30, 0, False),  # it is open there too, or its end not committed
        (30, -1, 30, 0, False),  # a leader that does not say
        (29, 20, 30, 0, False),  # its end may come
        (30, 20, 20, 0, True),
        (30, 15, 30, 15, False),  # its records were deleted, and it is open
        (30, 20, 30, 15, True),
    ],
)
def test_when_a_follower_has_missed_how_a_transaction_ended(
    end: int, stable: int, watermark: int, start: int, missed: bool
) -> None:
    assert has_missed_an_end(10, end, stable, watermark, start, is_in_isr=False) is missed
    assert not has_missed_an_end(10, end, stable, watermark, start, is_in_isr=True)


def test_ends_go_from_a_leaders_log_after_the_time_for_which_deletes_are_retained() -> None:
    assert [may_have_missed_ends(silent_ms, 1_000) for silent_ms in (0, 999, 1_000)] == [False, False, True]
