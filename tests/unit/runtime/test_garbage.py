"""The collector looks at what is new, never at what stayed, and at everything only when the memory has doubled."""

import gc
import logging
import sys
import weakref
from collections.abc import Iterator

import pytest

from ottla.runtime.garbage import Garbage

MANY = 300_000
AT_A_TIME = 100_000
"""More than a full collection finds new: its thresholds are some 40,000."""


class Node:
    """One of a cycle."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def garbage() -> Iterator[Garbage]:
    before = gc.get_threshold()
    garbage = Garbage(allowance_blocks=0)
    garbage.start()
    yield garbage
    garbage.stop()
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


def test_what_stayed_is_not_looked_at_again(garbage: Garbage) -> None:
    at_most = 0
    kept: list[list[int]] = []
    for number in range(MANY):
        kept.append([number])
        if number % 10_000 == 0:
            at_most = max(at_most, len(gc.get_objects(generation=2)))
    assert at_most < AT_A_TIME
    assert gc.get_freeze_count() > MANY - AT_A_TIME


def test_a_cycle_that_dies_young_is_freed_soon(garbage: Garbage) -> None:
    seen = weakref.ref(Node())
    kept = [[number] for number in range(AT_A_TIME)]
    assert seen() is None
    assert len(kept) == AT_A_TIME


def test_a_cycle_that_dies_old_is_freed_when_the_memory_has_doubled(
    garbage: Garbage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    node = Node()
    seen = weakref.ref(node)
    gc.freeze()
    del node
    garbage.look()
    assert seen() is not None, "nothing came on top: nothing is looked at"
    kept = [bytes(10) for _ in range(2 * sys.getallocatedblocks())]
    garbage.look()
    assert seen() is None
    garbage.look()
    assert len(caplog.records) == 1, "once, until it has doubled again"
    assert kept
