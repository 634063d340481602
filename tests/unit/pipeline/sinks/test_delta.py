"""What is Delta's alone: conflicts, statistics, what a commit that failed late leaves."""

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError
from pyarrow import parquet

from ottla.pipeline.sinks.delta import DeltaLog
from ottla.pipeline.sinks.errors import NoSpace, SinkError, WriteConflict
from ottla.pipeline.sinks.statistics import statistics
from tests.unit.pipeline.sinks.tables import Query, batch, values

ONE, TWO = batch([("t", 0, 0, "a")]), batch([("t", 0, 1, "b")])


def meanwhile(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], Any]) -> None:
    """Once, between the look at the table and the commit."""
    real, left = DeltaLog._append, [happens]

    def append(self: DeltaLog, table: DeltaTable, batch: Any) -> None:
        if left:
            left.pop()()
        real(self, table, batch)

    monkeypatch.setattr(DeltaLog, "_append", append)


def test_the_same_batch_by_two_drivers_is_there_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query("delta", str(tmp_path))
    query.batch(0, ONE)
    meanwhile(monkeypatch, lambda: Query("delta", str(tmp_path)).batch(1, TWO))
    assert not query.batch(1, TWO)
    assert values("delta", str(tmp_path)) == ["a", "b"]


def test_another_querys_append_is_no_conflict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query("delta", str(tmp_path))
    query.batch(0, ONE)
    meanwhile(monkeypatch, lambda: Query("delta", str(tmp_path), "q2").batch(0, ONE))
    assert query.batch(1, TWO)
    assert values("delta", str(tmp_path)) == ["a", "a", "b"]


def test_a_conflict_is_named_and_nothing_of_the_batch_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def changes_the_schema() -> None:
        fields = json.dumps(
            {"type": "struct", "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {}}]}
        )
        DeltaTable(str(tmp_path)).alter.add_columns(Schema.from_json(fields).fields)

    query = Query("delta", str(tmp_path))
    query.batch(0, ONE)
    with monkeypatch.context() as patched:
        meanwhile(patched, changes_the_schema)
        with pytest.raises(WriteConflict, match="was changed by somebody else while a batch was committed"):
            query.batch(1, TWO)
    assert values("delta", str(tmp_path)) == ["a"]


def test_two_that_make_the_table_both_find_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, left = DeltaLog._create, [Query("delta", str(tmp_path), "q2")]

    def create(self: DeltaLog, batch: Any) -> None:
        if left:
            left.pop().batch(0, TWO)
        real(self, batch)

    monkeypatch.setattr(DeltaLog, "_create", create)
    assert Query("delta", str(tmp_path)).batch(0, ONE)
    assert values("delta", str(tmp_path)) == ["a", "b"]


def test_a_disk_that_is_full_when_the_batch_is_committed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise DeltaError("Failed to write: No space left on device (os error 28)")

    query = Query("delta", str(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr(DeltaLog, "_create", full)
        with pytest.raises(NoSpace, match="No space left for"):
            query.batch(0, ONE)
    assert query.batch(0, ONE)


def test_a_folder_that_is_no_table_says_so(tmp_path: Path) -> None:
    from ottla.pipeline.sinks import delta

    with pytest.raises(SinkError, match="There is no Delta table at"):
        delta.committed_files(str(tmp_path / "none"))
    assert delta.last_version(str(tmp_path / "none"), "q1") is None


def test_readers_pass_over_files_by_their_statistics(tmp_path: Path) -> None:
    query = Query("delta", str(tmp_path))
    query.batch(0, ONE)
    query.batch(1, TWO)
    adds = pa.table(DeltaTable(str(tmp_path)).get_add_actions(flatten=True))
    assert sorted(adds["max.offset"].to_pylist()) == [0, 1]
    assert adds["num_records"].to_pylist() == [1, 1]


def test_statistics_say_only_what_is_true(tmp_path: Path) -> None:
    late = datetime(2024, 5, 1, 12, 0, 0, 1, tzinfo=UTC)
    table = pa.table(
        {
            "number": pa.array([3, None, -1]),
            "none": pa.array([None, None, None], pa.int64()),
            "text": pa.array(["b", "a", None]),
            "long": pa.array(["x" * 40, "y", "z"]),
            "real": pa.array([1.0, float("nan"), 2.0]),
            "bytes": pa.array([b"\xff", b"", None]),
            "day": pa.array([date(2024, 5, 1)] * 3),
            "time": pa.array([late] * 3, pa.timestamp("us", "UTC")),
            "true": pa.array([True, False, None]),
            "nested": pa.array([[1], None, []]),
        }
    )
    path = tmp_path / "file.parquet"
    parquet.write_table(table, path, row_group_size=2)
    told = json.loads(statistics(parquet.read_metadata(path)))
    assert told == {
        "numRecords": 3,
        "minValues": {"number": -1, "text": "a", "day": "2024-05-01", "time": "2024-05-01T12:00:00.000Z"},
        "maxValues": {"number": 3, "text": "b", "day": "2024-05-01", "time": "2024-05-01T12:00:00.001Z"},
        "nullCount": {
            "number": 1,
            "none": 3,
            "text": 1,
            "long": 0,
            "real": 0,
            "bytes": 1,
            "day": 0,
            "time": 0,
            "true": 1,
        },
    }


def _with_times(path: Path, *micros: int) -> None:
    rows = batch([("t", 0, offset, str(offset)) for offset in range(len(micros))])
    times = pa.array(micros, pa.int64()).cast(pa.timestamp("us", "UTC"))
    Query("delta", str(path)).batch(0, rows.set_column(3, "timestamp", times))


def test_readers_find_what_is_of_an_early_year(tmp_path: Path) -> None:
    first = -62_135_596_800_000_000
    _with_times(tmp_path, first, first + 1_500)

    before = [("timestamp", "<", datetime(1000, 1, 1, tzinfo=UTC))]
    assert DeltaTable(str(tmp_path)).to_pyarrow_table(filters=before).num_rows == 2
    (stats,) = DeltaTable(str(tmp_path)).get_add_actions(flatten=True)["max.timestamp"].to_pylist()
    assert stats == datetime(1, 1, 1, 0, 0, 0, 2_000, tzinfo=UTC)


def test_times_that_python_has_not_are_written_without_bounds(tmp_path: Path) -> None:
    """As of a producer that took microseconds for milliseconds."""
    micros = [1_700_000_000_000_000, 1_700_000_000_000_000_000]
    _with_times(tmp_path, *micros)

    found = DeltaTable(str(tmp_path)).to_pyarrow_table()["timestamp"].cast(pa.int64())
    assert found.to_pylist() == micros
