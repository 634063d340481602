"""What is shown of a query: lines for logs, a table for a terminal, JSON for programs."""

import json
import sys
from pathlib import Path

import pytest

from ottla.pipeline.jobs.batches import Batch, Totals, batch_of
from ottla.pipeline.jobs.watching import LineView, LiveView, Work, Written, view_of


def batch(number: int = 0) -> Batch:
    source = {
        "startOffset": {"flights": {"0": 100, "1": 0}, "weather": {"0": 5}},
        "endOffset": {"flights": {"0": 600, "1": 500}, "weather": {"0": 5}},
        "latestOffset": {"flights": {"0": 900, "1": 500}, "weather": {"0": 5}},
    }
    return batch_of(
        {
            "name": "q",
            "timestamp": "t",
            "batchId": number,
            "batchDuration": 500,
            "numInputRows": 1000,
            "sources": [source],
        }
    )


def totals(*batches: Batch) -> Totals:
    made = Totals()
    for each in batches:
        made.add(each)
    return made


def test_a_log_has_a_line_a_batch(capsys: pytest.CaptureFixture[str]) -> None:
    view = view_of("ingest: flights to /t")
    assert isinstance(view, LineView)
    view.batch(batch(), totals(batch()))
    view.tick(Work(is_busy=True))
    view.close()
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        "ingest: flights to /t",
        "batch 0: 1,000 rows in 0.5 s (2,000/s), 300 left, done in 0.1 s",
    ]


def test_a_terminal_has_a_row_a_topic(capsys: pytest.CaptureFixture[str]) -> None:
    view = LiveView("ingest: flights to /t")
    view.batch(batch(), totals(batch()))
    view.tick(Work(is_busy=True, done=2, total=6))
    view.say("group g: offsets are not committed: [no] markup")
    view.close()
    shown = capsys.readouterr().err
    rows = [line.split() for line in shown.splitlines()]
    assert ["flights", "2", "1,000", "300", "2,000"] in rows
    assert ["weather", "1", "0", "0", "0"] in rows
    assert "group g: offsets are not committed: [no] markup" in shown


def test_a_query_is_at_work_or_waits() -> None:
    assert Work(is_busy=False).words == "waiting for records"
    assert Work(is_busy=True).words == "at work"
    assert Work(is_busy=True, done=2, total=6).words == "at work: 2 of 6 tasks done"


def test_programs_get_a_line_of_json_a_batch_behind_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    for number in range(2):
        written = Written(str(path))
        written.write(batch(number))
        written.close()
    assert [json.loads(line)["batch"] for line in path.read_text().splitlines()] == [0, 1]


def test_nothing_is_written_where_nobody_asked(capsys: pytest.CaptureFixture[str]) -> None:
    written = Written(None)
    written.write(batch())
    written.close()
    assert capsys.readouterr().out == ""


def test_standard_output_stays_open(capsys: pytest.CaptureFixture[str]) -> None:
    written = Written("stdout")
    written.write(batch())
    written.close()
    sys.stdout.write("still there")
    first, second = capsys.readouterr().out.splitlines()
    assert (json.loads(first)["rows"], second) == (1000, "still there")
