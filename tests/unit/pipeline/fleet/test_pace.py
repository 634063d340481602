"""Records leave at the rate that was asked for, whatever holds them up."""

import pytest

from ottla.pipeline.fleet.pace import Pace


def test_records_leave_evenly() -> None:
    pace, now_s, waits = Pace(1_000), 50.0, []
    for _ in range(4):
        wait_s = pace.wait_s(100, now_s)
        waits.append(wait_s)
        now_s += wait_s + 0.03  # what sending takes
    assert waits == pytest.approx([0, 0.07, 0.07, 0.07])
    assert pace.at_once == 100


def test_who_was_held_up_catches_up_for_a_second_at_most() -> None:
    pace = Pace(100)
    assert pace.wait_s(100, 0) == 0
    assert pace.wait_s(100, 60) == 0  # a minute late: one second of it is made up for
    assert pace.wait_s(100, 60) == 0
    assert pace.wait_s(100, 60) == pytest.approx(1)


def test_without_a_rate_nobody_waits() -> None:
    pace = Pace(None)
    assert [pace.wait_s(10**9, 0), pace.wait_s(1, 0)] == [0, 0]
    assert pace.at_once is None
