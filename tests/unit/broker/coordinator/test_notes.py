"""What coordinators tell the log: facts, but not more than somebody can read."""

import logging

import pytest

from ottla.broker.coordinator.notes import A_SECOND, CHARACTERS_MAX, Notes


def test_of_a_storm_the_first_of_each_second_are_told_and_how_many_were_not(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    notes = Notes()
    for number in range(A_SECOND + 5):
        notes.tell(1_500, f"fact {number}")
    assert [each.getMessage() for each in caplog.records] == [f"fact {number}" for number in range(A_SECOND)]
    caplog.clear()
    notes.tell(2_000, "later")
    notes.tell(3_000, "later still")
    told = [each.getMessage() for each in caplog.records]
    assert told == ["5 facts of groups and transactions are left out here: they were too many", "later", "later still"]


def test_a_name_of_any_length_makes_a_line_of_some(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    notes = Notes()
    notes.tell(0, "g" * CHARACTERS_MAX)
    notes.tell(0, "g" * 32_000)
    whole, cut = (each.getMessage() for each in caplog.records)
    assert (len(whole), len(cut), cut[-2:]) == (CHARACTERS_MAX, CHARACTERS_MAX, "g…")
