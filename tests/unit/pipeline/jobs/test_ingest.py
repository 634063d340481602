"""What columns a landed row has."""

from typing import Any

import pytest

from ottla.pipeline.jobs import ingest_run
from ottla.pipeline.jobs.ingest import IngestOptions
from ottla.pipeline.jobs.values import ValueWords
from ottla.pipeline.jobs.words import InputWords, SessionWords, StreamWords

OPTIONS = IngestOptions(InputWords("a:9092", ("t",)), StreamWords(), SessionWords(), ValueWords(), "/lake/t")


class Rows:
    """As far as a DataFrame is asked here."""

    def __init__(self, *columns: str) -> None:
        self.columns = [*columns]


@pytest.mark.parametrize("name", ["date", "Date", "DATE"])
def test_a_date_of_the_values_own_stays_as_it_is_however_it_is_written(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark does not tell Date from date: the timestamp's day would take the place of the value's column."""
    rows: Any = Rows("key", name, "topic", "timestamp")
    monkeypatch.setattr(ingest_run, "parsed", lambda *_: rows)
    assert ingest_run.landed(rows, OPTIONS) is rows
