import logging

import pytest

from ottla.runtime.seldom import Seldom


def test_a_thing_that_happens_a_thousand_times_is_told_ten_times(caplog: pytest.LogCaptureFixture) -> None:
    seldom = Seldom(logging.getLogger("test"))
    for number in range(1000):
        seldom.warn("it happened to %d", number)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 10
    assert lines[:3] == ["it happened to 0", "it happened to 1 (2 times so far)", "it happened to 3 (4 times so far)"]


def test_what_was_well_again_is_told_anew(caplog: pytest.LogCaptureFixture) -> None:
    seldom = Seldom(logging.getLogger("test"))
    for _ in range(3):
        seldom.warn("it fails")
    seldom.forget()
    seldom.warn("it fails")
    assert [record.getMessage() for record in caplog.records] == ["it fails", "it fails (2 times so far)", "it fails"]
