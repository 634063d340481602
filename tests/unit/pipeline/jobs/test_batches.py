"""What a batch's progress becomes for people and for programs."""

from typing import Any

from ottla.pipeline.jobs.batches import Batch, Totals, batch_of, line, ranges, record


def progress(number: int = 3, rows: int = 1000, **more: Any) -> dict[str, Any]:
    """As pyspark 4.3 tells it."""
    source = {
        "startOffset": {"a": {"0": 100, "1": 0}},
        "endOffset": {"a": {"0": 600, "1": 500}},
        "latestOffset": {"a": {"0": 900, "1": 500}},
    }
    return {
        "name": "q",
        "timestamp": "2026-11-22T20:51:39.259Z",
        "batchId": number,
        "batchDuration": 500,
        "numInputRows": rows,
        "durationMs": {"addBatch": 400},
        "stateOperators": [],
        "sources": [source],
        **more,
    }


def test_a_batch_is_a_line_of_a_log() -> None:
    batch = batch_of(progress())
    assert line(batch) == "batch 3: 1,000 rows in 0.5 s (2,000/s), 300 left"
    assert line(batch, 100.0) == "batch 3: 1,000 rows in 0.5 s (2,000/s), 300 left, done in 3.0 s"


def test_a_batch_with_windows_tells_its_watermark_and_what_came_late() -> None:
    states = [{"numRowsDroppedByWatermark": 7, "numRowsTotal": 40}]
    batch = batch_of(progress(stateOperators=states, eventTime={"watermark": "2026-11-22T20:00:00.000Z"}))
    assert line(batch).endswith(", 7 late, watermark 2026-11-22T20:00:00.000Z")
    assert (batch.late, batch.state_rows) == (7, 40)


def test_what_is_left_is_not_told_where_the_source_does_not_know() -> None:
    batch = batch_of(progress(sources=[{"startOffset": None, "endOffset": {"a": {"0": 5}}, "latestOffset": None}]))
    assert (batch.left, record(batch)["left_by_topic"]) == (None, None)
    assert line(batch) == "batch 3: 1,000 rows in 0.5 s (2,000/s)"


def test_a_source_that_is_none_of_ours_has_no_offsets() -> None:
    assert batch_of(progress(sources=[{"endOffset": {"logOffset": 3}}, {"endOffset": 7}])).end == {}


def test_a_program_gets_offsets_and_durations() -> None:
    told = record(batch_of(progress()))
    assert told["offsets"] == {"a": {"0": 600, "1": 500}}
    assert (told["rows"], told["left"], told["durations_ms"]) == (1000, 300, {"addBatch": 400})


def test_totals_add_up_what_was_read_of_each_topic() -> None:
    totals = Totals()
    for number in (3, 4):
        totals.add(batch_of(progress(number)))
    assert (totals.rows, totals.read, totals.rate) == (2000, {"a": 2000}, 2000.0)
    assert totals.summary()["last_batch"] == 4


def test_the_first_batch_says_nothing_of_the_rate_once_there_is_another() -> None:
    totals = Totals()
    totals.add(batch_of(progress(0, batchDuration=50_000)))
    assert totals.rate == 20.0
    totals.add(batch_of(progress(1)))
    assert totals.rate == 2000.0


def test_rows_stand_for_offsets_in_the_first_batch_of_a_query() -> None:
    first: Batch = batch_of(progress(0, 40, sources=[{"startOffset": None, "endOffset": {"a": {"0": 5040}}}]))
    totals = Totals()
    totals.add(first)
    assert totals.read == {"a": 40}


def test_a_range_names_first_and_last_offset() -> None:
    start, end = {("a", 0): 5, ("a", 1): 7}, {("a", 0): 10, ("a", 1): 7, ("b", 0): 3}
    assert ranges(start, end) == "a-0 offsets 5 to 9, b-0 offsets up to 2"


def test_many_ranges_are_counted() -> None:
    told = ranges({}, {("a", number): 1 for number in range(11)})
    assert told.endswith("a-7 offsets up to 0 and 3 partitions more")
