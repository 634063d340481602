"""A snapshot goes on from an earlier one only where nothing between the two can be missing."""

import json
from dataclasses import replace

import pytest

from ottla.pipeline.jobs.snapshot_plan import (
    Manifest,
    Now,
    SnapshotError,
    clipped,
    ended_at,
    manifest_of,
    require_goes_on,
    starting,
    taken,
)

HOUR = 3_600_000
NOW = Now("t", "id-1", {0: 0, 1: 40}, {0: 100, 1: 50, 2: 7}, 100 * HOUR, 24 * HOUR)
SINCE = Manifest("t", "id-1", {"0": 60, "1": 30}, 99 * HOUR)


def test_a_manifest_comes_back_as_it_was_written() -> None:
    assert manifest_of(SINCE.text()) == SINCE


@pytest.mark.parametrize("text", ["", "{", "[1]", "{}", json.dumps({"kind": "ottla-snapshot", "topic": "t"})])
def test_what_no_snapshot_wrote_is_no_manifest(text: str) -> None:
    with pytest.raises(SnapshotError, match="no snapshot's"):
        manifest_of(text)


def test_reading_begins_where_the_snapshot_before_ended_or_the_log_begins() -> None:
    now = replace(NOW, starts={0: 0, 1: 40, 2: 0})
    assert starting(SINCE, now) == {0: 60, 1: 40, 2: 0}
    assert starting(None, now) == {0: 0, 1: 40, 2: 0}


def test_a_snapshot_of_the_same_topic_goes_on() -> None:
    require_goes_on(SINCE, NOW)


@pytest.mark.parametrize(
    ("since", "said"),
    [
        (replace(SINCE, topic="u"), "it is of topic u"),
        (replace(SINCE, topic_id="id-0"), "deleted and made again"),
        (replace(SINCE, taken_ms=70 * HOUR), "it is 30.0 h old, and tombstones are kept for 24.0 h"),
        (replace(SINCE, taken_ms=78 * HOUR), "some may be gone"),
        (replace(SINCE, ends={"0": 101}), "it reaches to 101 of t-0, and this one ends at 100"),
    ],
    ids=["topic", "made again", "too old", "nearly too old", "reaches further"],
)
def test_one_that_something_may_be_missing_behind_is_refused(since: Manifest, said: str) -> None:
    with pytest.raises(SnapshotError, match=said):
        require_goes_on(since, NOW)


def test_a_topic_that_keeps_tombstones_for_ever_goes_on_from_any_snapshot() -> None:
    require_goes_on(replace(SINCE, taken_ms=0), replace(NOW, tombstones_kept_ms=1 << 62))


def test_ends_that_are_not_named_are_those_of_the_log() -> None:
    assert clipped({0: 10}, NOW) == {0: 10, 1: 50, 2: 7}


@pytest.mark.parametrize(
    ("wanted", "said"), [({3: 1}, "no partition 3: it has 3"), ({2: 8}, "t-2 ends at 7, before offset 8")]
)
def test_ends_that_cannot_be_are_refused(wanted: dict[int, int], said: str) -> None:
    with pytest.raises(SnapshotError, match=said):
        clipped(wanted, NOW)


def test_a_snapshot_of_all_that_there_is_holds_the_tombstones_of_when_it_was_taken() -> None:
    assert taken(ended_at({}, NOW)) == Manifest("t", "id-1", {"0": 100, "1": 50, "2": 7}, 100 * HOUR)


def test_one_that_ends_earlier_is_gone_on_from_only_where_tombstones_stay_for_ever() -> None:
    """Those between its ends and the topic's were there when it was taken, and may be gone long before it is as old as they are kept."""
    early = taken(ended_at({0: 70}, NOW))
    assert early.ends["0"] == 70
    with pytest.raises(SnapshotError, match="it ends before the topic did, and tombstones"):
        require_goes_on(early, NOW)
    require_goes_on(early, replace(NOW, tombstones_kept_ms=1 << 62))


def test_nothing_is_gone_on_from_where_nobody_says_how_long_tombstones_are_kept() -> None:
    with pytest.raises(SnapshotError, match="tombstones are kept for nobody says how long"):
        require_goes_on(SINCE, replace(NOW, tombstones_kept_ms=0))
