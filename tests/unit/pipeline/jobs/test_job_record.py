"""A checkpoint goes on with what it was begun with."""

import json
from pathlib import Path

import pytest

from ottla.cli.failures import CommandError
from ottla.pipeline.jobs.job_record import NAME, JobRecord

JSON = {"value.format": "json", "value.schema": "a int"}
WIDER = {"value.format": "json", "value.schema": "a int, b int"}


def ingest(table: str = "/t", value: dict[str, str] | None = None) -> JobRecord:
    return JobRecord("ingest", table, "delta", ["topic"], value or {})


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path)


def has_run(checkpoint: str) -> None:
    path = Path(checkpoint, "offsets", "0")
    path.parent.mkdir(exist_ok=True)
    path.write_text('v1\n{}\n{"t":{"0":1}}')


def test_a_checkpoint_is_of_one_table(checkpoint: str) -> None:
    ingest().keep(checkpoint, may_change_schema=False)
    has_run(checkpoint)
    ingest().keep(checkpoint, may_change_schema=False)
    with pytest.raises(CommandError, match=r"is of ingest to /t \(delta, by topic\), not to /other"):
        ingest("/other").keep(checkpoint, may_change_schema=False)


def test_a_start_that_failed_before_its_first_batch_binds_nobody(checkpoint: str) -> None:
    ingest().keep(checkpoint, may_change_schema=False)
    ingest("/other").keep(checkpoint, may_change_schema=False)


def test_another_schema_is_taken_where_the_table_may_grow_and_all_are_kept(checkpoint: str) -> None:
    ingest(value=JSON).keep(checkpoint, may_change_schema=False)
    has_run(checkpoint)
    with pytest.raises(CommandError, match="--merge-schema goes on with the new one"):
        ingest(value=WIDER).keep(checkpoint, may_change_schema=False)
    ingest(value=WIDER).keep(checkpoint, may_change_schema=True)
    kept = json.loads(Path(checkpoint, NAME).read_text())
    assert [each["value.schema"] for each in kept["schemas"]] == ["a int", "a int, b int"]


def test_a_checkpoint_of_other_windows_is_refused(checkpoint: str) -> None:
    JobRecord("aggregate", "/t", "delta", [], query={"window": "1 s"}).keep(checkpoint, may_change_schema=True)
    has_run(checkpoint)
    with pytest.raises(CommandError, match=r"open windows of another query \(window: 1 s, not 2 s\)"):
        JobRecord("aggregate", "/t", "delta", [], query={"window": "2 s"}).keep(checkpoint, may_change_schema=True)


def test_a_checkpoint_of_before_there_were_records_is_taken(checkpoint: str) -> None:
    has_run(checkpoint)
    ingest().keep(checkpoint, may_change_schema=False)


def test_a_record_that_cannot_be_read_is_said(checkpoint: str) -> None:
    has_run(checkpoint)
    Path(checkpoint, NAME).write_text("{")
    with pytest.raises(CommandError, match="cannot be read"):
        ingest().keep(checkpoint, may_change_schema=False)
