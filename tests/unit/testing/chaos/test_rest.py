"""Who does not come to rest, or not soon, says what was missing."""

from typing import Any

import pytest

from ottla.testing.chaos import rest
from ottla.testing.chaos.rest import NoRest, wait_for_rest

CLUSTER: Any = None


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look at it is three seconds after the one before."""
    monkeypatch.setattr(rest, "_PAUSE_S", 0.0)
    monkeypatch.setattr("time.monotonic", iter(range(0, 3000, 3)).__next__)


def missing(monkeypatch: pytest.MonkeyPatch, *found: str | None) -> None:
    left = list(found)
    monkeypatch.setattr(rest, "unrest", lambda _: left.pop(0) if len(left) > 1 else left[0])


def test_a_cluster_at_rest_says_no_more_than_that(monkeypatch: pytest.MonkeyPatch, clock: None) -> None:
    missing(monkeypatch, "a leader", None)
    assert str(wait_for_rest(CLUSTER)) == "at rest after 6.0 s"


def test_who_takes_long_says_what_was_missing_last_and_since_when(monkeypatch: pytest.MonkeyPatch, clock: None) -> None:
    missing(monkeypatch, "a leader", "a replica", "a replica", None)
    told = "at rest after 12.0 s; what was missing changed 2 times, the last since 6.0 s: a replica"
    assert str(wait_for_rest(CLUSTER)) == told


def test_who_never_rests_says_what_was_missing_before(monkeypatch: pytest.MonkeyPatch, clock: None) -> None:
    missing(monkeypatch, "a leader", "a replica", "a broker")
    with pytest.raises(NoRest, match=r"after 20 s a broker; before that: since 3.0 s a leader; since 6.0 s a replica"):
        wait_for_rest(CLUSTER, 20)
