"""The pace of replicas that move between directories. That they arrive is tests/simulation/test_log_directories.py's."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.moves import PAUSE_MS, SLICE_BYTES, DirectoryMoves
from ottla.log.names import TopicPartition
from tests.unit.broker.fake_timers import FakeTimers

A_SECOND_EACH = SLICE_BYTES


def test_another_speed_counts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pause of the old speed may be one of hours."""
    timers, slices = FakeTimers(), list[int]()
    monkeypatch.setattr(DirectoryMoves, "_advance", lambda _, move: slices.append(timers.now_ms()))
    moves = DirectoryMoves(
        cast(Any, SimpleNamespace()),
        lambda name: False,
        timers,
        lambda: 0,
        lambda partition: None,
        lambda old, new: None,
        1,
    )
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
