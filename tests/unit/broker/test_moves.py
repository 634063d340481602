"""The pace of replicas that move between directories. That they arrive is tests/simulation/test_log_directories.py's."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.moves import PAUSE_MS, SLICE_BYTES, DirectoryMoves
from ottla.log.names import TopicPartition
from tests.unit.broker.fake_timers import FakeTimers

A_SECOND_EACH = SLICE_BYTES


def moves_on(timers: FakeTimers, bytes_per_second_max: int) -> DirectoryMoves:
    return DirectoryMoves(
        cast(Any, SimpleNamespace()),
        lambda name: False,
        timers,
        lambda: 0,
        lambda partition: None,
        lambda old, new: None,
        bytes_per_second_max,
    )


def move_of(partition: TopicPartition) -> Any:
    return SimpleNamespace(
        source=SimpleNamespace(partition=partition), copy=SimpleNamespace(root=SimpleNamespace(path="/b"))
    )


def test_a_move_that_comes_to_no_good_end_is_given_up_and_the_next_one_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    timers, ended, advanced = FakeTimers(), list[int](), list[int]()
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)

    def advance(_: DirectoryMoves, move: Any) -> bool:
        if move.source.partition == first:
            raise ValueError("a mistake of ours")
        advanced.append(timers.now_ms())
        return False

    monkeypatch.setattr(DirectoryMoves, "_advance", advance)
    monkeypatch.setattr("ottla.broker.moves.end_move", lambda manager, move, now_ms: ended.append(timers.now_ms()))
    moves = moves_on(timers, 1 << 62)
    moves.under_way |= {each: move_of(each) for each in (first, second)}
    moves._tick_soon()
    timers.advance(2 * PAUSE_MS)
    assert (ended, advanced, list(moves.under_way)) == ([PAUSE_MS], [2 * PAUSE_MS], [second])


def test_another_speed_counts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pause of the old speed may be one of hours."""
    timers, slices = FakeTimers(), list[int]()
    monkeypatch.setattr(DirectoryMoves, "_advance", lambda _, move: slices.append(timers.now_ms()))
    moves = moves_on(timers, 1)
    moves.set_speed(A_SECOND_EACH)  # with nothing under way
    moves.under_way[TopicPartition("t", 0)] = cast(Any, SimpleNamespace())
    moves._tick_soon()
    timers.advance(500)
    moves.set_speed(1 << 62)
    timers.advance(2 * PAUSE_MS)
    assert slices == [502, 504]
    moves.set_speed(A_SECOND_EACH)
    timers.advance(1_000)
    assert slices == [502, 504, 1504]
