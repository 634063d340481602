"""When a replica without room asks to be relieved."""

import pytest

from ottla.broker.replication.decisions.handing_over import PAUSE_MAX_MS, PAUSE_MS, Pause, has_to_leave, pause_after


def test_the_pause_grows_each_time_up_to_ten_minutes() -> None:
    pause, now_ms, lengths = Pause(), 1_000, []
    for _ in range(9):
        pause = pause_after(pause, now_ms)
        lengths.append(pause.until_ms - now_ms)
        now_ms = pause.until_ms
    assert lengths == [5_000, 10_000, 20_000, 40_000, 80_000, 160_000, 320_000, 600_000, 600_000]


def test_after_a_while_with_room_it_begins_anew() -> None:
    long = Pause(until_ms=50_000, length_ms=320_000)
    assert pause_after(long, 50_000 + PAUSE_MAX_MS).length_ms == 600_000
    assert pause_after(long, 50_001 + PAUSE_MAX_MS).length_ms == PAUSE_MS


@pytest.mark.parametrize(
    ("is_full", "leads", "is_in_isr", "leaves"),
    [(True, True, True, True), (True, False, True, True), (True, False, False, False), (False, True, True, False)],
)
def test_who_keeps_others_from_their_work_leaves(is_full: bool, leads: bool, is_in_isr: bool, leaves: bool) -> None:
    assert has_to_leave(is_full=is_full, leads=leads, is_in_isr=is_in_isr) is leaves
