"""Tables without Spark: a writer is driven as Spark drives it, attempt by attempt."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from ottla.pipeline.sinks import delta, parquet
from ottla.pipeline.sinks.attempts import Attempt
from ottla.pipeline.sinks.options import table_options
from ottla.pipeline.sinks.table_sink import TableSink
from ottla.pipeline.sinks.table_write import TableWrite, Written

SINKS: dict[str, type[TableSink]] = {"delta": delta.DeltaSink, "parquet": parquet.ParquetSink}
FUNCTIONS: dict[str, Any] = {"delta": delta, "parquet": parquet}
ARROW = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("value", pa.string()),
    ]
)
SPARK_NAMES = {"int32": "integer", "int64": "long", "timestamp[us, tz=UTC]": "timestamp", "date32[day]": "date"}
Rows = Sequence[tuple[str, int, int, str]]


def spark_json(schema: pa.Schema) -> dict[str, Any]:
    return {
        "type": "struct",
        "fields": [
            {
                "name": each.name,
                "type": SPARK_NAMES.get(str(each.type), str(each.type)),
                "nullable": True,
                "metadata": {},
            }
            for each in schema
        ],
    }


def batch(rows: Rows) -> pa.RecordBatch:
    topics, partitions, offsets, values = zip(*rows, strict=True)
    times = [1_700_000_000_000_001 + offset for offset in offsets]
    return pa.record_batch([list(topics), list(partitions), list(offsets), times, list(values)], schema=ARROW)


class Query:
    """One streaming query, whose batches may be interrupted and come again."""

    def __init__(self, form: str, path: str, query: str = "q1", schema: pa.Schema = ARROW, **options: str) -> None:
        self.form, self.path, self.query, self.schema, self.options = form, path, query, schema, options
        self._attempts = iter(range(1 << 30))

    def writer(self, overwrite: bool = False) -> TableWrite:
        """Spark makes it anew for each thing that it asks of it."""
        options = table_options({"path": self.path, **self.options})
        return TableWrite(SINKS[self.form].log_at, options, spark_json(self.schema), self.schema, overwrite)

    def task(self, number: int, task: int, batches: Sequence[pa.RecordBatch]) -> Written:
        return self.writer().write(batches, Attempt(self.query, number, task, next(self._attempts)))

    def commit(self, number: int, written: Sequence[Written], overwrite: bool = False) -> bool:
        return self.writer(overwrite).commit(written, self.query, number, is_stream=bool(self.query))

    def batch(self, number: int, *tasks: pa.RecordBatch, overwrite: bool = False) -> bool:
        written = [self.task(number, task, [rows]) for task, rows in enumerate(tasks)]
        return self.commit(number, written, overwrite)


def files(path: Path) -> set[str]:
    return {str(each.relative_to(path)) for each in path.rglob("*.parquet") if "_delta_log" not in each.parts}


def values(form: str, path: str) -> list[str]:
    return sorted(row["value"] for row in rows(form, path))


def rows(form: str, path: str) -> Iterator[dict[str, Any]]:
    """As somebody sees them who knows the format and nothing of us, as far as there is one."""
    if form == "delta":
        from deltalake import DeltaTable

        yield from DeltaTable(path).to_pyarrow_table().to_pylist()
        return
    yield from parquet.dataset(path).to_table().to_pylist()
