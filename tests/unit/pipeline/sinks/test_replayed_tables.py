"""A batch that comes again under its number with more than it brought: the query's checkpoint went back."""

from pathlib import Path

import pytest

from ottla.pipeline.sinks.errors import ReplayDiffers
from ottla.pipeline.sinks.manifests import SNAPSHOT_EVERY
from tests.unit.pipeline.sinks.tables import FUNCTIONS, Query, batch, files

ONE, TWO, THREE = batch([("t", 0, 0, "a"), ("t", 0, 1, "b")]), batch([("t", 1, 7, "c")]), batch([("t", 0, 2, "d")])


def test_a_batch_that_was_planned_anew_under_a_number_that_is_taken_is_refused(form: str, tmp_path: Path) -> None:
    """The checkpoint went back, and what lies beyond its old plans would be skipped."""
    query = Query(form, str(tmp_path))
    for number, rows_ in enumerate((ONE, TWO, THREE)):
        assert query.batch(number, rows_)
    before = files(tmp_path)
    assert not query.batch(1, batch([("t", 1, 7, "c"), ("t", 0, 2, "d")]))  # all of it is there
    with pytest.raises(ReplayDiffers, match=r"Batch 1 of q1 is in the table .* further now: t-1 to 8 \(there: 7\)\."):
        query.batch(1, batch([("t", 1, 7, "c"), ("t", 1, 8, "e")]))
    with pytest.raises(ReplayDiffers, match=r"further now: u-0 to 0 \(there: -1\)\."):
        query.batch(2, batch([("u", 0, 0, "f")]))
    assert files(tmp_path) == before
    assert query.batch(3, batch([("t", 1, 8, "e")]))


def test_what_is_told_no_more_accuses_nobody(tmp_path: Path) -> None:
    query = Query("parquet", str(tmp_path))
    for number in range(SNAPSHOT_EVERY + 1):
        query.batch(number, batch([("t", number % 2, number, "a")]))
    FUNCTIONS["parquet"].vacuum(str(tmp_path), older_than_hours=0)
    assert not query.batch(SNAPSHOT_EVERY - 1, batch([("t", 1, 100, "b"), ("u", 0, 0, "c")]))
    with pytest.raises(ReplayDiffers, match=r"t-0 to 100 \(there: 50\)\."):
        query.batch(SNAPSHOT_EVERY - 1, batch([("t", 0, 100, "b")]))
